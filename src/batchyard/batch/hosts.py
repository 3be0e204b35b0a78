"""Estimate how much of its nominal memory a host offers to jobs. Pure.

Firmware and kernel take a part first, and AWS Batch reserves some for the ECS agent. Only a running
host shows the exact number (DescribeContainerInstances, registeredResources). The emulator uses
this estimate, and the doctor shows it as "about" where no host runs.
"""

from __future__ import annotations

#: memory that AWS Batch reserves for the ECS agent (ECS_RESERVED_MEMORY)
RESERVED_MIB = 32

#: memory that the kernel reports: m4.large by AWS's guide, the others as measured on Amazon Linux 2
#: for Karpenter (https://github.com/aws/karpenter-provider-aws/pull/4517)
_MEASURED_MIB = {
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
#: For other types: page tables take a fraction, and the kernel a fixed amount, less on small hosts.
_PAGE_TABLES_FRACTION = 0.03
_KERNEL_MIB = 200
_MAX_KERNEL_FRACTION = 0.05


def registered_mib(memory_mib: int, instance_type: str = "") -> int:
    """Return about how much memory a host with this nominal memory offers to jobs, in MiB.

    For most types this is within 2 % of what was measured.
    """
    kernel_mib = _MEASURED_MIB.get(instance_type)
    if kernel_mib is None:
        overhead_mib = min(_KERNEL_MIB, memory_mib * _MAX_KERNEL_FRACTION)
        kernel_mib = int(memory_mib * (1 - _PAGE_TABLES_FRACTION) - overhead_mib)
    return kernel_mib - RESERVED_MIB
