"""BY067: secrets, logs or volumes of the container were not ready."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY067", Severity.ERROR, 93, "secrets, roles and volumes were ready")
CAUSE = Cause(
    KIND,
    mentions("resourceinitializationerror"),
    "secrets, logs or volumes were not ready: check the execution role and the network",
    ("check that the execution role may read each secret, and that the subnets reach its service",),
)
