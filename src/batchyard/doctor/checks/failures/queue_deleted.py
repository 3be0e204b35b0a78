"""BY070: the queue was deleted while the job was in it."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY070", Severity.ERROR, 90, "the queue was not deleted")
CAUSE = Cause(
    KIND,
    mentions("jobqueue deleted"),
    "the queue was deleted while the job was in it",
    ("submit it again to a queue that exists: aws batch describe-job-queues",),
)
