"""BY003: AWS Batch reports the job queue as invalid."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, is_running_or_over
from batchyard.doctor.facts import Facts, require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY003", Severity.ERROR, 96, "the queue is valid")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    if facts.queue is None or is_running_or_over(facts):
        return None
    queue = require(facts.queue)
    if queue.status in ("VALID", "CREATING", "UPDATING"):
        return []
    reason = f": {queue.status_reason}" if queue.status_reason else ""
    return Finding(
        KIND,
        f"the queue {queue.name} is {queue.status}",
        (f"status {queue.status}{reason}",),
        (f"aws batch describe-job-queues --job-queues {queue.name}",),
        f"queue {queue.name}",
    )
