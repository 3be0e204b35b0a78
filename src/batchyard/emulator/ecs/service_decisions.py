"""Decisions of the service scheduler: what to start and stop, when to give up. Pure."""

from __future__ import annotations

from typing import NamedTuple

#: Failures of a deployment before its tasks are started more and more rarely.
_FREE_FAILURES = 3
#: ECS waits up to a quarter of an hour between the tasks of a service that always fail.
_MAX_BACKOFF_S = 60.0
_MIN_THRESHOLD, _MAX_THRESHOLD, _THRESHOLD_PERCENT = 3, 200, 50


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


def failure_threshold(desired: int) -> int:
    """Return how many failed tasks let the circuit breaker fail a deployment."""
    half = -(-desired * _THRESHOLD_PERCENT // 100)
    return min(max(half, _MIN_THRESHOLD), _MAX_THRESHOLD)


def backoff_s(failed_tasks: int) -> float:
    """Return how long a service waits before its next task, after so many failures in a row."""
    if failed_tasks < _FREE_FAILURES:
        return 0.0
    return float(min(2 ** min(failed_tasks - _FREE_FAILURES, 16), _MAX_BACKOFF_S))
