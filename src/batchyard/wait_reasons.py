"""Lines that say what a run waits for. `logs -f` prints them, and the page shows them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from batchyard.batch.jobs import JobState
from batchyard.engines.base import JobDetail, Wait
from batchyard.plan import Plan
from batchyard.units import format_duration, pluralize

#: A run may have hundreds of steps.
_MAX_STEPS = 5
#: States of children that can keep the rest of a run waiting, in the order of the lines.
_ACTIVE = (JobState.RUNNING, JobState.STARTING, JobState.RUNNABLE)
#: States of children that wait for other steps.
_DEPENDENT = (JobState.PENDING, JobState.SUBMITTED)

#: Number of children by state.
_Counts = Mapping[JobState, int]


def describe_waits(
    plan: Plan,
    jobs: Sequence[JobDetail],
    host_waits: Sequence[Wait] | None,
    followed_step: str | None,
    now_ms: int,
    flags: str = "",
) -> list[str]:
    """Return a line for each state of each step that the run waits for.

    ``host_waits``: children that wait for a host; None for an engine without hosts.
    ``followed_step``: the only step whose logs are shown, or None for all steps.
    ``flags``: flags that the suggested commands need to find the run.
    """
    counts = _count_by_step(jobs)
    unfinished = {step for step in counts if _has_any(counts[step], (*_ACTIVE, *_DEPENDENT))}
    steps = _select_steps(plan, counts, unfinished, followed_step)
    lines = []
    for step in steps[:_MAX_STEPS]:
        is_active = _has_any(counts[step], _ACTIVE)
        states = _ACTIVE if is_active and step != followed_step else (*_ACTIVE, *_DEPENDENT)
        for state in states:
            if not counts[step][state]:
                continue
            reason = (
                _runnable_reason(step, host_waits, now_ms, flags)
                if state is JobState.RUNNABLE
                else _dependency_reason(plan, step, state, unfinished)
            )
            lines.append(_subject(step, state, counts[step][state]) + reason)
    if len(steps) > _MAX_STEPS:
        lines.append(f"waiting: {pluralize(len(steps) - _MAX_STEPS, 'more step')}")
    return lines


def _count_by_step(jobs: Sequence[JobDetail]) -> dict[str, dict[JobState, int]]:
    """Return step -> state -> number of children. The array of a step may be several jobs."""
    counts: dict[str, dict[JobState, int]] = {}
    for job in jobs:
        by_state = counts.setdefault(job.step, dict.fromkeys(JobState, 0))
        for state in JobState:
            by_state[state] += job.count(state)
    return counts


def _has_any(counts: _Counts, states: Sequence[JobState]) -> bool:
    return any(counts[state] for state in states)


def _select_steps(
    plan: Plan,
    counts: Mapping[str, _Counts],
    unfinished: Collection[str],
    followed_step: str | None,
) -> list[str]:
    """Return the steps that get a line, in the order of the plan.

    A step that only waits for another step gets one if it is followed, or if no step is active.
    """
    relevant = set(unfinished)
    if followed_step:
        relevant = (_with_needs(plan, followed_step) & relevant) or relevant
    steps = [job.step for job in plan.jobs if job.step in relevant]
    if not any(_has_any(counts[step], _ACTIVE) for step in steps):
        return steps
    return [step for step in steps if step == followed_step or _has_any(counts[step], _ACTIVE)]


def _with_needs(plan: Plan, step: str) -> set[str]:
    """Return the step and all steps that must end before it starts."""
    needs = {job.step: [need.step for need in job.needs] for job in plan.jobs}
    steps: set[str] = set()
    pending = [step]
    while pending:
        name = pending.pop()
        if name not in steps:
            steps.add(name)
            pending += needs.get(name, [])
    return steps


def _subject(step: str, state: JobState, count: int) -> str:
    children = pluralize(count, "child", "children")
    return f"waiting: {children} of {step} {'is' if count == 1 else 'are'} {state.value}"


def _runnable_reason(step: str, host_waits: Sequence[Wait] | None, now_ms: int, flags: str) -> str:
    """Return how long children are RUNNABLE and how to find out why; empty if unknown."""
    if host_waits is None:
        return " until other children end"
    waits = [wait for wait in host_waits if wait.step == step]
    if not waits:
        return ""
    span_s = max(0, now_ms - min(wait.since_ms for wait in waits)) // 1000
    command = f"batchyard {waits[0].diagnosis}{flags}"
    return f" for {format_duration(span_s)}; `{command}` says why"


def _dependency_reason(plan: Plan, step: str, state: JobState, unfinished: Collection[str]) -> str:
    """Return which unfinished steps the children wait for; empty if there are none."""
    if state not in _DEPENDENT:
        return ""
    needs = [need.step for need in plan.job(step).needs if need.step in unfinished]
    if not needs:
        return ""
    return f" until {', '.join(needs)} {'has' if len(needs) == 1 else 'have'} ended"
