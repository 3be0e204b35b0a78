"""BY048: Fargate has no size with the requested vCPUs, memory and GPUs."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, waiting_job
from batchyard.doctor.facts import Facts, Job
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY048", Severity.ERROR, 85, "the Fargate size exists")
#: Fargate's sizes: vCPUs -> minimum, maximum and step of the memory, in MiB
FARGATE_SIZES = {
    0.25: (512, 2048, 512),
    0.5: (1024, 4096, 1024),
    1: (2048, 8192, 1024),
    2: (4096, 16384, 1024),
    4: (8192, 30720, 1024),
    8: (16384, 61440, 4096),
    16: (32768, 122880, 8192),
}


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
    if job.vcpus not in FARGATE_SIZES:
        sizes = ", ".join(f"{vcpus:g}" for vcpus in FARGATE_SIZES)
        return (f"requests {job.vcpus:g} vCPUs", f"sizes: {sizes} vCPUs")
    low, high, step = FARGATE_SIZES[job.vcpus]
    if low <= job.memory_mib <= high and (job.memory_mib - low) % step == 0:
        return ()
    return (
        f"requests {job.memory_mib:,} MiB with {job.vcpus:g} vCPUs",
        f"with {job.vcpus:g} vCPUs: {low:,} to {high:,} MiB in steps of {step:,}",
    )
