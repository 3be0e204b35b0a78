"""What somebody who follows logs is told while nothing comes: who waits, and for what. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batchyard.batch.jobs import JobState
from batchyard.engines.base import JobDetail, Wait
from batchyard.plan import Plan
from batchyard.units import format_duration, pluralize

#: between two reminders at most
_LONGEST_GAP_S = 1800.0
#: a run may have hundreds of steps
_MOST_STEPS = 5
_CAUSES = (JobState.RUNNING, JobState.STARTING, JobState.RUNNABLE)
_NOT_YET = (JobState.PENDING, JobState.SUBMITTED)


class Quiet:
    """When to say what is waited for: after so long a silence, and while it lasts after twice as long each time."""

    def __init__(self, patience_s: float, now_s: float) -> None:
        self._patience_s = patience_s
        self.heard(now_s)

    def heard(self, now_s: float) -> None:
        """Something was written."""
        self._gap_s = self._patience_s
        self._due_s = now_s + self._gap_s

    def is_due(self, now_s: float) -> bool:
        """Asked at every look; True once for each reminder."""
        if now_s < self._due_s:
            return False
        self._gap_s = max(self._patience_s, min(2 * self._gap_s, _LONGEST_GAP_S))
        self._due_s = now_s + self._gap_s
        return True


def lines(
    plan: Plan,
    jobs: Sequence[JobDetail],
    waits: Sequence[Wait] | None,
    wanted: str | None,
    now_ms: int,
    flags: str = "",
) -> list[str]:
    """``waits``: on AWS, who waits for a host; None on this machine. ``wanted``: the one step that is followed.
    ``flags``: what the commands that are suggested need to find the run's environment."""
    counts = _counts(jobs)
    going = {
        step
        for step, by_state in counts.items()
        if any(by_state[state] for state in (*_CAUSES, *_NOT_YET))
    }
    concerned = _with_needs(plan, wanted) & going if wanted else going
    steps = [job.step for job in plan.jobs if job.step in (concerned or going)]
    causes = [step for step in steps if any(counts[step][state] for state in _CAUSES)]
    # What waits for another step is not why nothing happens, unless it is asked about, or nothing else is there.
    shown = [step for step in steps if step in causes or step == wanted] if causes else steps
    found = []
    for step in shown[:_MOST_STEPS]:
        states = _CAUSES if step in causes and step != wanted else (*_CAUSES, *_NOT_YET)
        for state in states:
            if counts[step][state]:
                who = _who(step, state, counts[step][state])
                found.append(who + _what_for(plan, step, state, waits, going, now_ms, flags))
    if len(shown) > _MOST_STEPS:
        found.append(f"waiting: {pluralize(len(shown) - _MOST_STEPS, 'more step')}")
    return found


def _counts(jobs: Sequence[JobDetail]) -> dict[str, dict[JobState, int]]:
    """Of the children of each step, whose array may be several jobs."""
    found: dict[str, dict[JobState, int]] = {}
    for job in jobs:
        by_state = found.setdefault(job.step, dict.fromkeys(JobState, 0))
        for state in JobState:
            by_state[state] += job.count(state)
    return found


def _with_needs(plan: Plan, step: str) -> set[str]:
    """The step, and all that must end before it."""
    needs: Mapping[str, list[str]] = {
        job.step: [need.step for need in job.needs] for job in plan.jobs
    }
    found: set[str] = set()
    left = [step]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += needs.get(one, [])
    return found


def _who(step: str, state: JobState, count: int) -> str:
    return f"waiting: {pluralize(count, 'child', 'children')} of {step} {'is' if count == 1 else 'are'} {state.value}"


def _what_for(
    plan: Plan,
    step: str,
    state: JobState,
    waits: Sequence[Wait] | None,
    going: set[str],
    now_ms: int,
    flags: str,
) -> str:
    """How the line goes on; empty where nothing more is known."""
    if state is JobState.RUNNABLE:
        if waits is None:
            return ", to start when others have ended"
        hosts = [wait for wait in waits if wait.step == step]
        if not hosts:
            return ""
        span = format_duration(max(0, now_ms - min(wait.since_ms for wait in hosts)) // 1000)
        return f" for {span}; `batchyard doctor job {hosts[0].job_id} --env {hosts[0].environment}{flags}` says why"
    needed = (
        [need.step for need in plan.job(step).needs if need.step in going]
        if state in _NOT_YET
        else []
    )
    return (
        f" until {', '.join(needed)} {'has' if len(needed) == 1 else 'have'} ended"
        if needed
        else ""
    )
