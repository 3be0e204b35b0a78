"""What an EC2 instance of a type offers to the jobs of a compute environment."""

from __future__ import annotations

from batchyard.batch.hosts import registered_mib
from batchyard.batch.jobs import Resources
from batchyard.ec2_types import TYPES


def registered_resources(name: str) -> Resources | None:
    """Return what an instance of this type registers with ECS, or None for an unknown type."""
    listed = TYPES.get(name)
    if listed is None:
        return None
    memory_mib = registered_mib(listed.memory_mib, name)
    return Resources(vcpus=listed.vcpus, memory_mib=memory_mib, gpus=listed.gpus)
