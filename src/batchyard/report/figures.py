"""Compute the figures of a report: a few numbers for each step, from its ended attempts. Pure.

The attempts are read once and not stored. The charts need only a few integers of each, since there
can be a million attempts.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.base import AttemptDetail, RunState
from batchyard.plan import PlannedJob
from batchyard.report import lanes
from batchyard.status import RunStatus, StepStatus, explain_failure


class Ending(IntEnum):
    """How an attempt ended."""

    SUCCEEDED = 0
    FAILED = 1
    #: the attempt failed, and another one followed
    RETRIED = 2


@dataclass(slots=True)
class AttemptStats:
    """Ended attempts of a step. Entry i of each of the first six arrays is about one attempt."""

    starts_ms: array[int] = field(default_factory=lambda: array("q"))
    ends_ms: array[int] = field(default_factory=lambda: array("q"))
    endings: bytearray = field(default_factory=bytearray)
    #: number of the child in its step
    indices: array[int] = field(default_factory=lambda: array("q"))
    #: number of the attempt; 1 is the first attempt of a child
    numbers: array[int] = field(default_factory=lambda: array("q"))
    #: where the attempt ran, as a number of ``hosts``
    host_numbers: array[int] = field(default_factory=lambda: array("q"))
    #: slot of this machine, or id of a host -> its number here
    hosts: dict[str, int] = field(default_factory=dict)
    #: duration of each child's last attempt, by its ending
    succeeded_ms: array[int] = field(default_factory=lambda: array("q"))
    failed_ms: array[int] = field(default_factory=lambda: array("q"))
    busy_ms: int = 0
    cpu_s: float = 0.0
    peak_kib: int = 0
    #: reason -> number of attempts that failed for good
    failures: Counter[str] = field(default_factory=Counter)
    #: reason -> number of attempts that failed and were retried
    retries: Counter[str] = field(default_factory=Counter)
    #: reason -> children with such an attempt
    retried_children: dict[str, set[int]] = field(default_factory=dict)
    #: children that succeeded in a later attempt
    recovered: set[int] = field(default_factory=set)
    #: status reason -> number of children that failed without an attempt
    never_started: Counter[str] = field(default_factory=Counter)

    def add(self, attempt: AttemptDetail) -> None:
        """Add an ended attempt."""
        ending = _ENDINGS[attempt.state]
        if not attempt.attempt:
            self.never_started[attempt.status_reason] += 1
            return
        # An attempt that could not be started is drawn at its end.
        start_ms = attempt.ended_ms
        if attempt.started_ms is not None:
            start_ms = min(attempt.started_ms, attempt.ended_ms)
        self.starts_ms.append(start_ms)
        self.ends_ms.append(attempt.ended_ms)
        self.endings.append(ending)
        self.indices.append(attempt.index)
        self.numbers.append(attempt.attempt)
        self.host_numbers.append(self.hosts.setdefault(attempt.host, len(self.hosts)))
        self.busy_ms += attempt.ended_ms - start_ms
        self.cpu_s += attempt.cpu_s
        self.peak_kib = max(self.peak_kib, attempt.peak_memory_kib)
        if ending is Ending.SUCCEEDED:
            self.succeeded_ms.append(attempt.ended_ms - start_ms)
            if attempt.attempt > 1:
                self.recovered.add(attempt.index)
        elif ending is Ending.RETRIED:
            reason = explain_failure(attempt)
            self.retries[reason] += 1
            self.retried_children.setdefault(reason, set()).add(attempt.index)
        else:
            self.failures[explain_failure(attempt)] += 1
            if attempt.started_ms is not None:
                self.failed_ms.append(attempt.ended_ms - start_ms)

    @property
    def count(self) -> int:
        """Number of ended attempts."""
        return len(self.endings)

    @property
    def has_slots(self) -> bool:
        """Whether each attempt ran in a slot of this machine that is known."""
        return bool(self.hosts) and all(host.isdecimal() for host in self.hosts)


_ENDINGS: dict[JobState | None, Ending] = {
    JobState.SUCCEEDED: Ending.SUCCEEDED,
    JobState.FAILED: Ending.FAILED,
    None: Ending.RETRIED,
}


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The figures of a step, for its row of the table and for its charts."""

    status: StepStatus
    stats: AttemptStats
    wall_s: float | None
    #: of the last attempts of the children; None if no attempt has ended
    median_s: float | None
    p95_s: float | None
    max_s: float | None
    #: share of the slots of the step that were busy, 0 to 1; None if unknown
    efficiency: float | None
    #: largest number of attempts that ran at once
    peak: int

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def never_started(self) -> Counter[str]:
        """Reason -> number of children that failed without an attempt.

        An engine may list only some of them. The others have the reason of the step.
        """
        listed = self.stats.never_started
        failed_count = self.status.failed - self.stats.failures.total()
        unlisted_count = max(0, failed_count - listed.total())
        return listed + Counter({self.status.reason: unlisted_count})


def collect_stats(
    steps: Iterable[StepStatus], attempts: Iterable[AttemptDetail]
) -> dict[str, AttemptStats]:
    """Return step -> the statistics of its attempts. The attempts are read once."""
    stats = {step.name: AttemptStats() for step in steps}
    for attempt in attempts:
        if attempt.step in stats:
            stats[attempt.step].add(attempt)
    return stats


def begin_ms(status: RunStatus, stats: Iterable[AttemptStats], now_ms: int) -> int:
    """Return the time at which the page's charts begin."""
    first_ms = min((min(step.starts_ms) for step in stats if step.count), default=now_ms)
    return first_ms if status.started_ms is None else min(first_ms, status.started_ms)


def end_ms(status: RunStatus, stats: Iterable[AttemptStats], now_ms: int) -> int:
    """Return the time at which the page's charts end.

    It is the end of the run, or ``now_ms``, or the last recorded end of an interrupted run.
    """
    last_ms = max((max(step.ends_ms, default=0) for step in stats), default=0)
    if status.ended_ms is not None:
        return max(status.ended_ms, last_ms)
    if status.is_interrupted:
        return max(last_ms, status.started_ms or 0)
    return max(now_ms, last_ms) if status.state is RunState.RUNNING else last_ms


def step_figures(
    step: StepStatus, stats: AttemptStats, slots: int | None, until_ms: int
) -> StepFigures:
    """Return the figures of a step. A step that is not over is measured up to ``until_ms``."""
    wall_s = None
    if step.started_ms is not None:
        wall_s = max(0, (step.ended_ms or until_ms) - step.started_ms) / 1000
    durations_ms = sorted((*stats.succeeded_ms, *stats.failed_ms))
    return StepFigures(
        status=step,
        stats=stats,
        wall_s=wall_s,
        median_s=quantile_s(durations_ms, 0.5),
        p95_s=quantile_s(durations_ms, 0.95),
        max_s=quantile_s(durations_ms, 1.0),
        efficiency=_efficiency(stats, slots),
        peak=lanes.max_concurrency(stats.starts_ms, stats.ends_ms),
    )


def slots_of(job: PlannedJob, capacity: Resources) -> int:
    """Return how many children of the job can run at once if no other job runs."""
    child = job.resources
    amounts = (
        (capacity.vcpus, child.vcpus),
        (capacity.memory_mib, child.memory_mib),
        (capacity.gpus, child.gpus),
    )
    fitting = min((total // needed for total, needed in amounts if needed), default=job.size)
    return max(1, min(fitting, job.size, job.max_running or job.size))


def quantile_s(ascending_ms: Sequence[int], part: float) -> float | None:
    """Return a quantile by nearest rank: always the duration of one of the children."""
    if not ascending_ms:
        return None
    rank = max(1, -(-len(ascending_ms) * round(part * 100) // 100))
    return ascending_ms[rank - 1] / 1000


def _efficiency(stats: AttemptStats, slots: int | None) -> float | None:
    if not slots or not stats.count:
        return None
    span_ms = max(stats.ends_ms) - min(stats.starts_ms)
    # The rounded durations of very short children can add up to more than the span.
    return min(1.0, stats.busy_ms / (slots * span_ms)) if span_ms > 0 else None
