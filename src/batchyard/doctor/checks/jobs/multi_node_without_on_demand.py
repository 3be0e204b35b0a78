"""BY047: a multi-node job is in a queue without managed On-Demand instances."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, environments_of, waiting_job
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY047", Severity.ERROR, 82, "a multi-node job has On-Demand instances to run on")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = waiting_job(facts)
    if job is None or not job.nodes:
        return None
    environments = environments_of(facts)
    if any(e.kind == "EC2" and e.is_managed for e in environments):
        return []
    kinds = ", ".join(
        f"{e.name} is {e.kind if e.is_managed else 'UNMANAGED'}" for e in environments
    )
    return Finding(
        KIND,
        "a multi-node job runs on managed On-Demand instances only, and its queue has none",
        (f"{job.nodes} nodes; {kinds or 'no environments'}",),
        ("submit it to a queue with a MANAGED environment of type EC2",),
        f"job {job.job_id}",
    )
