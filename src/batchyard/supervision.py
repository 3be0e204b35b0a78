"""What those who watch a run do about its costs: leave spot instances in time, and keep its cap.

A ``Supervisor`` is called with each state of the run. What it decides is in pure functions; what it
does is done by the engine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from batchyard.batch.jobs import JobState
from batchyard.engines.base import JobDetail, Overview, RunEngine, RunRecord, Say
from batchyard.units import format_duration

_ACTIVE = (JobState.STARTING, JobState.RUNNING)
_ENDED = (JobState.SUCCEEDED, JobState.FAILED)


class SpotPatience:
    """Finds steps of which no child has started for a while, from what was seen of them."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        #: step -> (children that have ended, since when nothing has started)
        self._waiting: dict[str, tuple[int, float]] = {}

    def find_stuck_steps(self, jobs: Sequence[JobDetail], now_s: float) -> Iterator[str]:
        """Return the steps whose children wait, all of them, for longer than the limit.

        Each step is returned once.
        """
        for step in dict.fromkeys(job.step for job in jobs):
            step_jobs = [job for job in jobs if job.step == step]
            runnable, active, ended = (
                sum(job.count(*states) for job in step_jobs)
                for states in ((JobState.RUNNABLE,), _ACTIVE, _ENDED)
            )
            if active or not runnable:
                self._waiting.pop(step, None)
                continue
            seen_ended, since_s = self._waiting.get(step, (ended, now_s))
            if seen_ended != ended:
                since_s = now_s
            self._waiting[step] = (ended, since_s)
            if now_s - since_s >= self._wait_s:
                self._waiting[step] = (ended, math.inf)
                yield step


class Supervisor:
    """Holds a run to its rules about costs, for as long as somebody watches it."""

    def __init__(
        self,
        record: RunRecord,
        engine: RunEngine,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._say = say
        self._clock = clock
        rule = record.plan.spot
        self._wait_s = None if rule is None else rule.wait_s
        self._patience = None if self._wait_s is None else SpotPatience(self._wait_s)

    def __call__(self, overview: Overview) -> float:
        """Do what the rules ask for. Returns the seconds until the next look, at the latest."""
        if self._patience is None or self._wait_s is None:
            return math.inf
        for step in self._patience.find_stuck_steps(overview.jobs, self._clock()):
            wait = format_duration(self._wait_s)
            reason = f"no child started on spot for {wait}: it goes on, on demand"
            self._say(f"{step}: {reason}, when the run is over")
            self._engine.leave_spot(step, reason)
        return self._wait_s
