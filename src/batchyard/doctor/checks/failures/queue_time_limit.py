"""BY069: a time limit of the queue cancelled the job."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY069", Severity.ERROR, 94, "no time limit of the queue ended the job")
CAUSE = Cause(
    KIND,
    mentions("jobstatetimelimit"),
    "a time limit of the queue cancelled the job while it was RUNNABLE",
    lambda job, _: (
        f"aws batch describe-job-queues --job-queues {job.queue or 'QUEUE'} "
        "--query 'jobQueues[].jobStateTimeLimitActions'",
    ),
)
