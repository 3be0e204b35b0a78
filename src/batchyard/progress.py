"""How much of a run's work is done, how fast it goes on, and when it ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard.quick_dataclasses import dataclass
from batchyard.status import StepStatus


@dataclass(frozen=True, slots=True)
class Work:
    """How much of the work of a step or a run is done, in commands or in children."""

    done: int
    total: int
    failed: int
    #: Whether the numbers are of commands; else the engine knows only children.
    is_in_commands: bool


@dataclass(frozen=True, slots=True)
class StepPace:
    """How fast the work of a step goes on."""

    per_s: float
    #: Remaining time at this rate; None if the step is over.
    left_s: float | None


def count_work(step: StepStatus, *, in_children: bool = False) -> Work:
    """Return what is done of a step. All displays of progress use this function."""
    commands = step.commands
    if commands is None or in_children:
        return Work(step.succeeded + step.failed, step.size, step.failed, False)
    # Commands behind one that failed, and those of children that never start, are not run.
    done = commands.total if step.state.is_terminal else commands.succeeded + commands.failed
    return Work(done, commands.total, commands.failed or step.failed, True)


def total_work(steps: Sequence[StepStatus]) -> Work:
    """Return what is done of all steps: in children, if those of one step are all that is known."""
    in_children = any(step.commands is None for step in steps)
    works = [count_work(step, in_children=in_children) for step in steps]
    return Work(
        sum(work.done for work in works),
        sum(work.total for work in works),
        sum(work.failed for work in works),
        not in_children,
    )


def measure_pace(step: StepStatus, work: Work, now_ms: int) -> StepPace | None:
    """Return the rate of a step since its start; None if there is no rate."""
    if step.started_ms is None or not work.done or work.total == 1:
        return None
    elapsed_s = max(0.001, ((step.ended_ms or now_ms) - step.started_ms) / 1000)
    rate = work.done / elapsed_s
    return StepPace(rate, None if step.ended_ms is not None else (work.total - work.done) / rate)
