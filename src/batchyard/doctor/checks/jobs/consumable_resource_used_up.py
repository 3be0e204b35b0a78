"""BY044: a consumable resource does not suffice for the job."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, waiting_job
from batchyard.doctor.facts import Consumable, ConsumableRequest, Facts, Job, require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY044", Severity.ERROR, 80, "the consumable resources suffice")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = waiting_job(facts)
    if job is None or not job.consumables:
        return None
    resources = {resource.name: resource for resource in require(facts.consumables)}
    findings = []
    for request in job.consumables:
        resource = resources.get(request.resource) or Consumable(request.resource, 0, 0)
        is_short_now = request.quantity > resource.available and not timing.is_early
        if request.quantity > resource.total or is_short_now:
            findings.append(_finding(job, request, resource))
    return findings


def _finding(job: Job, request: ConsumableRequest, resource: Consumable) -> Finding:
    is_never_enough = request.quantity > resource.total
    cause = "there will never be enough of" if is_never_enough else "not enough is free of"
    return Finding(
        KIND,
        f"{cause} the consumable resource {resource.name}",
        (f"requests {request.quantity}; {resource.available} of {resource.total} free",),
        (
            f"aws batch update-consumable-resource --consumable-resource {resource.name} "
            f"--operation SET --quantity {max(request.quantity, resource.total * 2)}",
        ),
        f"job {job.job_id}",
    )
