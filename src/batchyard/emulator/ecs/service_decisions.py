"""Decisions of the service scheduler: what to start and stop, when to give up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: Failures of a deployment before its tasks are started more and more rarely.
_FREE_FAILURES = 3
#: ECS waits up to a quarter of an hour between the tasks of a service that always fail.
_MAX_BACKOFF_S = 60.0
_MIN_THRESHOLD, _MAX_THRESHOLD = 3, 200


class Counts(NamedTuple):
    """Tasks that are not stopped or stopping."""

    pending: int = 0
    running: int = 0

    @property
    def total(self) -> int:
        return self.pending + self.running


class Plan(NamedTuple):
    """How many tasks of the newest deployment start, and how many of which kind stop."""

    start: int = 0
    stop_new: int = 0
    stop_old: int = 0


def plan(
    desired: int, minimum_percent: int, maximum_percent: int, new: Counts, old: Counts
) -> Plan:
    """Return the next step of a rolling deployment, or of keeping the desired count.

    ``old``: tasks of earlier deployments, and on instances that are drained. While new tasks are
    missing, at least ``minimum_percent`` of the desired count run and at most ``maximum_percent``
    exist. Old tasks stop as soon as new ones run, or if new ones have no room beside them.
    """
    lower = -(-desired * minimum_percent // 100)
    upper = max(desired * maximum_percent // 100, 1 if desired else 0)
    if new.total > desired:
        return Plan(stop_new=new.total - desired, stop_old=old.total)
    missing = desired - new.total
    room = max(0, upper - new.total - old.total)
    running = new.running + old.running
    spare = running - (desired if room >= missing else lower)
    stop_old = old.pending + min(old.running, max(0, spare))
    return Plan(min(missing, room), 0, stop_old)


def is_complete(desired: int, new: Counts, old: Counts) -> bool:
    return new == Counts(0, desired) and old.total == 0


class CircuitBreaker(NamedTuple):
    """What ends a deployment whose tasks fail, as `deploymentCircuitBreaker` of a service."""

    is_enabled: bool = False
    #: Whether the service returns to the last deployment that was completed.
    is_rolled_back: bool = False
    #: Whether a task that becomes healthy sets the count of failures back to 0.
    is_reset_by_healthy_tasks: bool = True
    #: BOUNDED_PERCENT and UNBOUNDED_PERCENT of the desired count, or COUNT.
    threshold_type: str = "BOUNDED_PERCENT"
    threshold_value: int = 50

    @classmethod
    def parse(cls, members: Mapping[str, Any]) -> CircuitBreaker:
        threshold = members.get("thresholdConfiguration", {})
        return cls(
            bool(members.get("enable")),
            bool(members.get("rollback")),
            bool(members.get("resetOnHealthyTask", True)),
            threshold.get("type", "BOUNDED_PERCENT"),
            threshold.get("value", 50),
        )

    def threshold(self, desired: int) -> int:
        """Return how many failed tasks fail a deployment, at least 1."""
        if self.threshold_type == "COUNT":
            return max(1, self.threshold_value)
        part = -(-desired * self.threshold_value // 100)
        if self.threshold_type == "UNBOUNDED_PERCENT":
            return max(1, part)
        return min(max(part, _MIN_THRESHOLD), _MAX_THRESHOLD)


def backoff_s(failed_tasks: int) -> float:
    """Return how long a service waits before its next task, after so many failures in a row."""
    if failed_tasks < _FREE_FAILURES:
        return 0.0
    return float(min(2 ** min(failed_tasks - _FREE_FAILURES, 16), _MAX_BACKOFF_S))
