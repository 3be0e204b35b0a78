"""The numbers of a report: ended attempts, read once, become a few figures a step. Pure.

Attempts are not kept: what the charts need of each is a few machine words, since there can be a million of them.
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


class Fate(IntEnum):
    """What an attempt came to."""

    SUCCEEDED = 0
    FAILED = 1
    #: failed, and another attempt followed
    RETRIED = 2


@dataclass(slots=True)
class Tally:
    """The ended attempts of one step. The arrays run side by side: entry i of each is about one attempt."""

    starts_ms: array[int] = field(default_factory=lambda: array("q"))
    ends_ms: array[int] = field(default_factory=lambda: array("q"))
    fates: bytearray = field(default_factory=bytearray)
    #: numbers of the children in their step
    indices: array[int] = field(default_factory=lambda: array("q"))
    #: 1 for a child's first attempt
    numbers: array[int] = field(default_factory=lambda: array("q"))
    #: how long each child's last attempt took, by how it ended
    succeeded_ms: array[int] = field(default_factory=lambda: array("q"))
    failed_ms: array[int] = field(default_factory=lambda: array("q"))
    busy_ms: int = 0
    cpu_s: float = 0.0
    peak_kib: int = 0
    #: why attempts failed for good, and why those that were tried again
    failures: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    #: reason -> children that were tried again for it
    retried: dict[str, set[int]] = field(default_factory=dict)
    #: children that succeeded after all
    recovered: set[int] = field(default_factory=set)
    #: children that failed without an attempt
    never_started: int = 0

    def add(self, attempt: AttemptDetail) -> None:
        fate = _FATES[attempt.state]
        if not attempt.attempt:
            self.never_started += 1
            return
        # Where nothing could be started, the failure is still a moment in time.
        start = (
            attempt.ended_ms
            if attempt.started_ms is None
            else min(attempt.started_ms, attempt.ended_ms)
        )
        self.starts_ms.append(start)
        self.ends_ms.append(attempt.ended_ms)
        self.fates.append(fate)
        self.indices.append(attempt.index)
        self.numbers.append(attempt.attempt)
        self.busy_ms += attempt.ended_ms - start
        self.cpu_s += attempt.user_s + attempt.system_s
        self.peak_kib = max(self.peak_kib, attempt.max_rss_kib)
        if fate is Fate.SUCCEEDED:
            self.succeeded_ms.append(attempt.ended_ms - start)
            if attempt.attempt > 1:
                self.recovered.add(attempt.index)
        elif fate is Fate.RETRIED:
            reason = explain_failure(attempt)
            self.retries[reason] += 1
            self.retried.setdefault(reason, set()).add(attempt.index)
        else:
            self.failures[explain_failure(attempt)] += 1
            if attempt.started_ms is not None:
                self.failed_ms.append(attempt.ended_ms - start)

    @property
    def count(self) -> int:
        return len(self.fates)


_FATES: dict[JobState | None, Fate] = {
    JobState.SUCCEEDED: Fate.SUCCEEDED,
    JobState.FAILED: Fate.FAILED,
    None: Fate.RETRIED,
}


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One row of the table, and what its charts are drawn from."""

    status: StepStatus
    tally: Tally
    wall_s: float | None
    #: of the children's last attempts; None where none has ended
    median_s: float | None
    p95_s: float | None
    max_s: float | None
    #: busy slots out of those that the step could have had; None where that cannot be said
    efficiency: float | None
    #: attempts that ran at the same time, at most
    peak: int

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def never_started(self) -> int:
        """Failed without an attempt: the engine need not have a row for each of them."""
        return max(self.tally.never_started, self.status.failed - self.tally.failures.total())


def tallied(steps: Iterable[StepStatus], attempts: Iterable[AttemptDetail]) -> dict[str, Tally]:
    tallies = {step.name: Tally() for step in steps}
    for attempt in attempts:
        if attempt.step in tallies:
            tallies[attempt.step].add(attempt)
    return tallies


def last_sign_ms(status: RunStatus, tallies: Iterable[Tally], now_ms: int) -> int:
    """Where the page's time ends: the run's end, now, or the last that is known of a run whose process died."""
    last = max((max(tally.ends_ms, default=0) for tally in tallies), default=0)
    if status.ended_ms is not None:
        return max(status.ended_ms, last)
    if status.is_interrupted:
        return max(last, status.started_ms or 0)
    return max(now_ms, last) if status.state is RunState.RUNNING else last


def step_figures(step: StepStatus, tally: Tally, slots: int | None, until_ms: int) -> StepFigures:
    wall_ms = (
        None if step.started_ms is None else max(0, (step.ended_ms or until_ms) - step.started_ms)
    )
    durations = sorted((*tally.succeeded_ms, *tally.failed_ms))
    return StepFigures(
        status=step,
        tally=tally,
        wall_s=None if wall_ms is None else wall_ms / 1000,
        median_s=quantile_s(durations, 0.5),
        p95_s=quantile_s(durations, 0.95),
        max_s=quantile_s(durations, 1.0),
        efficiency=_efficiency(tally, slots),
        peak=lanes.most_at_once(tally.starts_ms, tally.ends_ms),
    )


def slots_of(job: PlannedJob, capacity: Resources) -> int:
    """How many children of the job could run at once, were it alone on the machine."""
    asked = job.resources
    pairs = (
        (capacity.vcpus, asked.vcpus),
        (capacity.memory_mib, asked.memory_mib),
        (capacity.gpus, asked.gpus),
    )
    room = min((has // wants for has, wants in pairs if wants), default=job.size)
    return max(1, min(room, job.size, job.max_running or job.size))


def quantile_s(ascending_ms: Sequence[int], part: float) -> float | None:
    """Nearest rank: always a duration that some child did have."""
    if not ascending_ms:
        return None
    rank = max(1, -(-len(ascending_ms) * round(part * 100) // 100))
    return ascending_ms[rank - 1] / 1000


def _efficiency(tally: Tally, slots: int | None) -> float | None:
    if not slots or not tally.count:
        return None
    span_ms = max(tally.ends_ms) - min(tally.starts_ms)
    # Children of less than a millisecond can add up to a little more than there was.
    return min(1.0, tally.busy_ms / (slots * span_ms)) if span_ms > 0 else None
