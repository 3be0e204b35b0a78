"""BY063: the host was terminated while the job ran on it."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY063", Severity.WARNING, 92, "the host was not terminated")
CAUSE = Cause(
    KIND,
    mentions("host ec2"),
    "the host was terminated while the job ran: a Spot reclaim, a scale-in, or by hand",
    (
        "retries: 2 and retry_on: [spot] in the step; "
        "on AWS: evaluateOnExit onStatusReason 'Host EC2*' RETRY",
    ),
    describe_job=lambda job: f"attempts allowed: {job.attempts}",
)
