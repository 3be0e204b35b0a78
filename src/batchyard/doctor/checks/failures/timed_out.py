"""BY065: the attempt took longer than its timeout."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY065", Severity.ERROR, 94, "the attempt ended within its timeout")
CAUSE = Cause(
    KIND,
    mentions("exceeded timeout"),
    "the attempt took longer than its timeout, which is never retried",
    ("raise the step's timeout, or give each child less to do (a larger array)",),
    is_in_log=True,
)
