"""Why the child at the head of a queue can never start, in AWS Batch's words (facts, 9.1). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment

NO_ENVIRONMENT = "ACTION_REQUIRED - CE(s) associated with the job queue are invalid."
MAX_VCPUS = (
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s) associated with the job queue "
    "cannot meet the CPU requirement of the job."
)
NO_INSTANCE = (
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is "
    "higher than that can be met by the CE(s) attached to the job queue."
)
NO_CAPACITY = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested for "
    "instance type [instanceTypeName]"
)


def blocked_reason(
    requested: Resources,
    environments: Sequence[ComputeEnvironment],
    machine: Resources | None = None,
) -> str:
    """Return why a child can never start; empty if it can, at the latest when others have ended.

    ``machine``: the capacity that all environments share, if they share one.
    """
    reason = _reason_of_environments(requested, environments)
    if not reason and machine is not None and not requested.fits_in(machine):
        return NO_CAPACITY
    return reason


def _reason_of_environments(
    requested: Resources, environments: Sequence[ComputeEnvironment]
) -> str:
    enabled = [environment for environment in environments if environment.is_enabled]
    if not enabled:
        return NO_ENVIRONMENT
    reasons = [_reason_of_environment(requested, environment) for environment in enabled]
    if "" in reasons:
        return ""
    return MAX_VCPUS if MAX_VCPUS in reasons else NO_INSTANCE


def _reason_of_environment(requested: Resources, environment: ComputeEnvironment) -> str:
    """Return why a child can never start in an enabled environment; empty if it can."""
    max_vcpus = environment.capacity.vcpus
    if environment.fleet is None:
        if requested.vcpus > max_vcpus:
            return MAX_VCPUS
        return "" if requested.fits_in(environment.capacity) else NO_INSTANCE
    sizes = [
        instance_type.resources.vcpus
        for instance_type in environment.fleet.types
        if requested.fits_in(instance_type.resources)
    ]
    if not sizes:
        return NO_INSTANCE
    return "" if min(sizes) <= max_vcpus else MAX_VCPUS


def reason_code(reason: str) -> str:
    """Return the reason without its explanation: `CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY`."""
    return reason.partition(" - ")[0]
