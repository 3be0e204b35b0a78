"""BY064: the container overrides are longer than AWS Batch accepts."""

from __future__ import annotations

from batchyard.batch.limits import MAX_OVERRIDE_CHARS
from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY064", Severity.ERROR, 95, "the overrides are short enough")
CAUSE = Cause(
    KIND,
    mentions("container overrides length must be at most"),
    "the command and environment given at submission are too long",
    (
        "put the list in a file or in S3 and give its address: "
        f"{MAX_OVERRIDE_CHARS:,} characters is the limit",
    ),
)
