"""Why the child at the head of a queue can never start, in AWS Batch's words (facts, 9.1). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard.batch.capacity import fits_an_instance
from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment

NO_ENVIRONMENT = "ACTION_REQUIRED - CE(s) associated with the job queue are invalid."
MAX_VCPUS = (
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s) associated with the job queue cannot meet the CPU "
    "requirement of the job."
)
NO_INSTANCE = (
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is higher than that "
    "can be met by the CE(s) attached to the job queue."
)
NO_CAPACITY = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested for instance type "
    "[instanceTypeName]"
)


def reason(
    wanted: Resources, environments: Sequence[ComputeEnvironment], machine: Resources | None = None
) -> str:
    """Empty where it could start, if not now then once something else has ended."""
    enabled = [environment for environment in environments if environment.is_enabled]
    if not enabled:
        return NO_ENVIRONMENT
    with_instance = [
        environment for environment in enabled if fits_an_instance(wanted, environment)
    ]
    if not with_instance:
        return NO_INSTANCE
    large_enough = [
        environment for environment in with_instance if wanted.vcpus <= environment.capacity.vcpus
    ]
    if not large_enough:
        return MAX_VCPUS
    if not any(wanted.fits_in(environment.capacity) for environment in large_enough):
        return NO_INSTANCE
    if machine is not None and not wanted.fits_in(machine):
        return NO_CAPACITY
    return ""


def code(text: str) -> str:
    """What stands before the explanation: `CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY`."""
    return text.partition(" - ")[0]
