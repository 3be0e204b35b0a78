"""BY048: Fargate has no size with the requested vCPUs, memory and GPUs."""

from __future__ import annotations

from batchyard.batch.limits import FARGATE_MEMORY_MIB
from batchyard.doctor.checks.base import Timing, check_facts, waiting_job
from batchyard.doctor.facts import Facts, Job
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY048", Severity.ERROR, 85, "the Fargate size exists")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = waiting_job(facts)
    if job is None or job.platform != "FARGATE":
        return None
    evidence = _explain_mismatch(job)
    if not evidence:
        return []
    return Finding(
        KIND,
        "Fargate has no such size",
        evidence,
        ("register the job definition again with a size that exists",),
        f"job {job.job_id}",
    )


def _explain_mismatch(job: Job) -> tuple[str, ...]:
    """Return what the job requests and what Fargate offers instead; empty where the size exists."""
    if job.gpus:
        return (f"requests {job.gpus} GPUs", "Fargate has no GPUs: use an EC2 environment")
    if job.vcpus not in FARGATE_MEMORY_MIB:
        sizes = ", ".join(f"{vcpus:g}" for vcpus in FARGATE_MEMORY_MIB)
        return (f"requests {job.vcpus:g} vCPUs", f"sizes: {sizes} vCPUs")
    offered_mib = FARGATE_MEMORY_MIB[job.vcpus]
    if job.memory_mib in offered_mib:
        return ()
    return (
        f"requests {job.memory_mib:,} MiB with {job.vcpus:g} vCPUs",
        f"with {job.vcpus:g} vCPUs: {', '.join(f'{mib:,}' for mib in offered_mib)} MiB",
    )
