"""BY027: AWS has no capacity for the instance types in the zones of the environment."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_facts,
    join_names,
    listed_environments,
    waiting_job,
)
from batchyard.doctor.checks.launches import refusals
from batchyard.doctor.facts import Facts, Job, MissingFactError
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY027", Severity.ERROR, 75, "AWS has the requested capacity")
_STATUS_REASON = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
_CAUSE = "AWS has no capacity for these instance types in these zones now"
_REMEDY = (
    "name more instance types, and subnets in more zones",
    "put an On-Demand environment second in the queue's order",
)


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = waiting_job(facts)
    if job is None or not job.status_reason.startswith(_STATUS_REASON):
        return _find_refusals(facts)
    # The status reason suffices: failed launches are evidence where they could be listed.
    try:
        findings = _find_refusals(facts) or []
    except MissingFactError:
        findings = []
    return [*findings, _finding(facts, job)]


def _find_refusals(facts: Facts) -> list[Finding] | None:
    return refusals.find_refusals(facts, refusals.CAPACITY, KIND, _CAUSE, _REMEDY)


def _finding(facts: Facts, job: Job) -> Finding:
    types = join_names(
        name for environment in listed_environments(facts) for name in environment.instance_types
    )
    evidence = (job.status_reason, *([f"types {types}"] if types else []))
    return Finding(KIND, _CAUSE, evidence, _REMEDY, f"job {job.job_id}", likelihood=99)
