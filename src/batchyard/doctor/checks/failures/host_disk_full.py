"""BY068: the disk of the host was full."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY068", Severity.ERROR, 94, "the host's disk had room")
CAUSE = Cause(
    KIND,
    mentions("no space left on device"),
    "the host's disk was full",
    ("give the launch template a larger /dev/xvda: BlockDeviceMappings, VolumeSize 100 or more",),
)
