"""BY312: a disk of the host is nearly full."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host
from batchyard.doctor.host.facts import Disk, HostFacts
from batchyard.units import format_memory

KIND = Kind("BY312", Severity.WARNING, 70, "the disks have room")
MIN_FREE_MIB = 2048
MIN_FREE_SHARE = 0.05
#: A disk with this share free is not full, however small it is: /tmp may be in memory.
_ENOUGH_FREE_SHARE = 0.25


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    full_disk = next((disk for disk in require(facts.disks) if _is_nearly_full(disk)), None)
    if full_disk is None:
        return []
    return Finding(
        KIND,
        f"the disk of {full_disk.path} is nearly full: "
        "images cannot be pulled, logs cannot be written",
        (f"{format_memory(full_disk.free_mib)} of {format_memory(full_disk.total_mib)} free",),
        ("docker system df; docker image prune -a", "give the launch template a larger /dev/xvda"),
    )


def _is_nearly_full(disk: Disk) -> bool:
    free_share = disk.free_mib / max(1, disk.total_mib)
    if free_share < MIN_FREE_SHARE:
        return True
    return disk.free_mib < MIN_FREE_MIB and free_share < _ENOUGH_FREE_SHARE
