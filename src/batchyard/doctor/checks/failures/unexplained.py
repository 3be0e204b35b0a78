"""BY073: the job failed for a reason that no cause in this folder matches."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY073", Severity.ERROR, 50, "the reason of every failure is known")
CAUSE = Cause(
    KIND,
    lambda ending: True,
    "the job failed, for a reason that the doctor does not know",
    ("aws batch describe-jobs --jobs JOB_ID   # all that AWS Batch says of it",),
)
