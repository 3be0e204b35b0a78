"""BY045: the fair-share policy reserves vCPUs for shares that have no jobs."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, environments_of, waiting_job
from batchyard.doctor.facts import Facts, require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.units import pluralize

KIND = Kind("BY045", Severity.WARNING, 45, "the fair-share policy leaves room for the job")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = waiting_job(facts)
    if job is None or facts.policy is None or timing.is_early:
        return None
    policy = require(facts.policy)
    total_vcpus = sum(environment.max_vcpus for environment in environments_of(facts))
    if not policy.compute_reservation:
        return []
    # AWS Batch reserves (computeReservation / 100) to the power of the number of active shares.
    active_shares = max(1, len(policy.active_shares))
    reserved = (policy.compute_reservation / 100) ** active_shares
    usable_vcpus = total_vcpus * (1 - reserved)
    used_vcpus = policy.used_vcpus or 0
    if used_vcpus + job.vcpus <= usable_vcpus:
        return []
    return Finding(
        KIND,
        "the fair-share policy keeps vCPUs for shares that have no jobs now",
        (
            f"computeReservation {policy.compute_reservation} with "
            f"{pluralize(active_shares, 'active share')} keeps "
            f"{reserved:.0%} of {total_vcpus} vCPUs",
            f"usable {usable_vcpus:.0f}, in use {used_vcpus:g}; the job requests {job.vcpus:g}",
        ),
        (
            f"aws batch update-scheduling-policy --arn {policy.arn or 'ARN'} "
            "--fairshare-policy computeReservation=0",
        ),
        f"job {job.job_id}",
    )
