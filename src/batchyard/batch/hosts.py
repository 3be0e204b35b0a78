"""What a host offers to jobs of the memory it is sold with. Pure.

A host never registers all of it: firmware and kernel take their part first, and AWS Batch keeps some for the agent. The
true number is known from a host alone (DescribeContainerInstances, registeredResources); where none is up this is what
the emulator gives and the doctor calls "about".
"""

from __future__ import annotations

#: what AWS Batch keeps for the agent (ECS_RESERVED_MEMORY)
RESERVED_MIB = 32

#: what the kernel is left with: m4.large by AWS's guide, the others as measured on Amazon Linux 2 by the makers of
#: Karpenter (https://github.com/aws/karpenter-provider-aws/pull/4517)
_SEEN_MIB = {
    "m4.large": 7_985,
    "g4dn.xlarge": 15_684,
    "g4dn.2xlarge": 31_619,
    "g4dn.4xlarge": 63_490,
    "g4dn.8xlarge": 127_326,
    "g4dn.12xlarge": 191_068,
    "g5.xlarge": 15_794,
    "g5.2xlarge": 31_729,
    "g5.4xlarge": 63_600,
    "g5.8xlarge": 127_436,
    "g5.12xlarge": 191_178,
    "g5.48xlarge": 765_880,
}
#: of the others, the page tables' share, and what the kernel takes of any host; a small one has less to take
_SHARE = 0.03
_FIXED_MIB = 200
_FIXED_SHARE = 0.05


def registered_mib(memory_mib: int, instance_type: str = "") -> int:
    """About what a host with so much nominal memory offers to jobs: within 2 % of what was measured for most types."""
    seen = _SEEN_MIB.get(instance_type)
    if seen is None:
        seen = int(memory_mib * (1 - _SHARE) - min(_FIXED_MIB, memory_mib * _FIXED_SHARE))
    return seen - RESERVED_MIB
