"""What those who watch a run do about its costs: leave spot instances in time, and keep its cap.

A ``Supervisor`` is called with each state of the run. What it decides is in pure functions; what it
does is done by the engine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from batchyard import cost_cap
from batchyard.batch.jobs import JobState
from batchyard.cost_cap import CapAction, Decision
from batchyard.engines.base import (
    Backoff,
    JobDetail,
    Overview,
    Polling,
    RunEngine,
    RunRecord,
    Say,
)
from batchyard.errors import OperationalError
from batchyard.units import format_duration

_ACTIVE = (JobState.STARTING, JobState.RUNNING)
_ENDED = (JobState.SUCCEEDED, JobState.FAILED)
_WAITING = (JobState.SUBMITTED, JobState.PENDING, JobState.RUNNABLE)
#: Between two looks at a run that is held: only a child that is tried again could start.
_HELD_POLLING = Polling(cost_cap.MIN_LOOK_S, 30.0)


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
        find_cost: Callable[[], float | None] | None = None,
    ) -> None:
        """``find_cost`` returns what the run has cost until now; None if it costs nothing."""
        self._record = record
        self._engine = engine
        self._say = say
        self._clock = clock
        self._find_cost = find_cost or self._find_paid_usd
        rule = record.plan.spot
        self._wait_s = None if rule is None else rule.wait_s
        self._patience = None if self._wait_s is None else SpotPatience(self._wait_s)
        self._next_look_s = -math.inf
        self._said: set[CapAction] = set()
        #: What was decided at the cap; None before it. It is never taken back.
        self._last_decision: Decision | None = None
        #: Children by state of each job, when the run was held with success.
        self._held_counts: list[tuple[int, ...]] | None = None
        self._backoff = Backoff(_HELD_POLLING)

    def __call__(self, overview: Overview) -> float:
        """Do what the rules ask for. Returns the seconds until the next look, at the latest."""
        return min(self._leave_spot(overview), self._keep_cap(overview))

    def _leave_spot(self, overview: Overview) -> float:
        if self._patience is None or self._wait_s is None:
            return math.inf
        for step in self._patience.find_stuck_steps(overview.jobs, self._clock()):
            wait = format_duration(self._wait_s)
            reason = f"no child started on spot for {wait}: it goes on, on demand"
            if self._engine.leave_spot(step, reason):
                self._say(f"{step}: {reason}, when the run is over")
        return self._wait_s

    def _keep_cap(self, overview: Overview) -> float:
        cap, now_s = self._record.cap, self._clock()
        if cap is None:
            return math.inf
        if self._last_decision is not None:
            return self._keep_held(self._last_decision, overview)
        if now_s < self._next_look_s:
            return self._next_look_s - now_s
        cost_usd = self._find_cost()
        if cost_usd is None:
            return math.inf
        decision = cost_cap.decide(cap, cost_usd)
        self._next_look_s = now_s + decision.look_s
        if decision.action is CapAction.WARN:
            text = f"warning: the run has cost ${cost_usd:.4f} of max_cost ${cap.usd:g}"
            self._say_once(decision.action, text)
        if decision.action not in (CapAction.HOLD, CapAction.STOP):
            return decision.look_s
        self._last_decision = decision
        return self._keep_held(decision, overview)

    def _keep_held(self, decision: Decision, overview: Overview) -> float:
        """Let nothing more start; again if children have ended, and others wait to start."""
        counts = [job.counts for job in overview.jobs]
        has_waiting = any(job.count(*_WAITING) for job in overview.jobs)
        if self._held_counts is None or (counts != self._held_counts and has_waiting):
            self._held_counts = counts if self._carry_out(decision, overview) else None
        return self._backoff.next_delay_s(counts)

    def _carry_out(self, decision: Decision, overview: Overview) -> bool:
        """Hold or stop the run; return whether that was possible."""
        is_stop = decision.action is CapAction.STOP
        effect = "the run is stopped" if is_stop else "children that run go on"
        self._say_once(decision.action, f"{decision.reason}; {effect}")
        try:
            # The record of it first, so that the reason is shown.
            self._engine.hold(decision.reason)
            if is_stop:
                self._engine.stop([job.id for job in overview.jobs], decision.reason)
        except OperationalError as exc:
            # The cap must be kept on being watched: the next look does it again.
            self._say(f"warning: {exc.message}; it is tried again")
            return False
        return True

    def _say_once(self, action: CapAction, text: str) -> None:
        if action not in self._said:
            self._said.add(action)
            self._say(text)

    def _find_paid_usd(self) -> float | None:
        # Runs without a cap load nothing about prices.
        from batchyard.cost.caps import count_for_cap
        from batchyard.cost.run_bill import bill_so_far

        bill, cap = bill_so_far(self._record, self._engine), self._record.cap
        return None if bill is None or cap is None else count_for_cap(bill, cap)
