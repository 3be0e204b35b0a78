"""BY002: the job queue is disabled."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, is_running_or_over
from batchyard.doctor.facts import Facts, require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY002", Severity.ERROR, 96, "the queue is enabled")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    if facts.queue is None or is_running_or_over(facts):
        return None
    queue = require(facts.queue)
    if queue.state == "ENABLED":
        return []
    return Finding(
        KIND,
        f"the queue {queue.name} is {queue.state}: it accepts no jobs and starts none",
        (f"state {queue.state}",),
        (f"aws batch update-job-queue --job-queue {queue.name} --state ENABLED",),
        f"queue {queue.name}",
    )
