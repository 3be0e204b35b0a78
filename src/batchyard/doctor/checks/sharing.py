"""What jobs share: consumable resources and fair-share policies. And jobs of special forms. Pure."""

from __future__ import annotations

from batchyard.doctor.checks.common import Found, Setting, environments, waiting_job
from batchyard.doctor.checks.kinds import (
    CONSUMABLE_RESOURCE_USED_UP,
    FAIR_SHARE_RESERVATION,
    FARGATE_SIZE_UNKNOWN,
    MULTI_NODE_WITHOUT_ON_DEMAND,
)
from batchyard.doctor.facts import Facts, known
from batchyard.doctor.finding import Finding
from batchyard.units import counted

#: Fargate's sizes: vCPUs -> lowest, highest, step, in MiB
FARGATE_SIZES = {
    0.25: (512, 2048, 512),
    0.5: (1024, 4096, 1024),
    1: (2048, 8192, 1024),
    2: (4096, 16384, 1024),
    4: (8192, 30720, 1024),
    8: (16384, 61440, 4096),
    16: (32768, 122880, 8192),
}


def consumables(facts: Facts, setting: Setting) -> Found:
    job = waiting_job(facts)
    if job is None or not job.consumables:
        return None
    there = {c.name: c for c in known(facts.consumables)}
    found = []
    for wanted in job.consumables:
        resource = there.get(wanted.resource)
        total, available = (resource.total, resource.available) if resource else (0, 0)
        is_never = wanted.quantity > total
        if not is_never and (wanted.quantity <= available or setting.is_early):
            continue
        cause = "there will never be enough of" if is_never else "not enough is free of"
        found.append(
            Finding(
                CONSUMABLE_RESOURCE_USED_UP,
                f"{cause} the consumable resource {wanted.resource}",
                (f"asks {wanted.quantity}; {available} of {total} free",),
                (
                    f"aws batch update-consumable-resource --consumable-resource {wanted.resource} "
                    f"--operation SET --quantity {max(wanted.quantity, total * 2)}",
                ),
                f"job {job.job_id}",
            )
        )
    return found


def fair_share(facts: Facts, setting: Setting) -> Found:
    """What the reservation for shares that are not active leaves."""
    job = waiting_job(facts)
    if job is None or facts.policy is None or setting.is_early:
        return None
    policy = known(facts.policy)
    total = sum(e.max_vcpus for e in environments(facts))
    active = max(1, len(policy.active_shares))
    reserved = (policy.compute_reservation / 100) ** active if policy.compute_reservation else 0.0
    usable = total * (1 - reserved)
    used = policy.used_vcpus or 0
    if used + job.vcpus <= usable or not reserved:
        return []
    return [
        Finding(
            FAIR_SHARE_RESERVATION,
            "the fair-share policy keeps vCPUs for shares that have no jobs now",
            (
                f"computeReservation {policy.compute_reservation} with {counted(active, 'active share')} keeps "
                f"{reserved:.0%} of {total} vCPUs",
                f"usable {usable:.0f}, in use {used:g}; the job asks {job.vcpus:g}",
            ),
            (
                "aws batch update-scheduling-policy --arn ARN --fairshare-policy computeReservation=0",
            ),
            f"job {job.job_id}",
        )
    ]


def multi_node(facts: Facts, setting: Setting) -> Found:
    job = waiting_job(facts)
    if job is None or not job.nodes:
        return None
    these = environments(facts)
    good = [e for e in these if e.kind == "EC2" and e.is_managed]
    if good:
        return []
    kinds = ", ".join(f"{e.name} is {e.kind if e.is_managed else 'UNMANAGED'}" for e in these)
    return [
        Finding(
            MULTI_NODE_WITHOUT_ON_DEMAND,
            "a multi-node job runs on managed On-Demand instances only, and its queue has none",
            (f"{job.nodes} nodes; {kinds or 'no environments'}",),
            ("submit it to a queue with a MANAGED environment of type EC2",),
            f"job {job.job_id}",
        )
    ]


def fargate_size(facts: Facts, setting: Setting) -> Found:
    job = waiting_job(facts)
    if job is None or job.platform != "FARGATE":
        return None
    if job.gpus:
        asked, instead = f"{job.gpus} GPUs", "Fargate has no GPUs: use an EC2 environment"
    elif job.vcpus not in FARGATE_SIZES:
        asked, instead = (
            f"{job.vcpus:g} vCPUs",
            f"sizes: {', '.join(f'{n:g}' for n in FARGATE_SIZES)} vCPUs",
        )
    else:
        low, high, step = FARGATE_SIZES[job.vcpus]
        if low <= job.memory_mib <= high and (job.memory_mib - low) % step == 0:
            return []
        if job.vcpus == 0.25 and job.memory_mib in (512, 1024, 2048):
            return []
        asked = f"{job.memory_mib:,} MiB with {job.vcpus:g} vCPUs"
        instead = f"with {job.vcpus:g} vCPUs: {low:,} to {high:,} MiB in steps of {step:,}"
    return [
        Finding(
            FARGATE_SIZE_UNKNOWN,
            "Fargate has no such size",
            (f"asks {asked}", instead),
            ("register the job definition again with a size that exists",),
            f"job {job.job_id}",
        )
    ]
