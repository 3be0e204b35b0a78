"""What a retry repeats of an earlier run: all that has not succeeded, or one part of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from batchyard import plan as planning
from batchyard import shard
from batchyard.engines.base import Unfinished
from batchyard.errors import InputError
from batchyard.plan import Plan, PlannedJob, RunPart
from batchyard.quick_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Repetition:
    """The plan of a retry; without jobs if there is nothing to repeat."""

    plan: Plan
    #: Step -> commands of its children that are not run again.
    commands_done: Mapping[str, Sequence[int]]
    #: A sentence for the user; empty if there is nothing to say.
    note: str = ""


def select_jobs(
    plan: Plan, unfinished: Unfinished, part: RunPart | None = None, *, claims: bool = False
) -> Repetition:
    """Return what a retry of a run with this plan repeats.

    A child or command that has succeeded is repeated if it is the part. ``claims``: children claim
    the commands of dynamic steps, so that no child has commands of its own. Raises InputError if
    the run has no such part.
    """
    note = ""
    if part is not None:
        plan.require_child(part.step, part.index)
        if part.command is not None:
            plan, unfinished = _select_command(plan, part.step, part.command, claims=claims)
        elif part.index is not None:
            unfinished, note = _select_child(plan.job(part.step), part.index, unfinished, claims)
        else:
            children = {part.step: unfinished.children.get(part.step, ())}
            unfinished = replace(unfinished, children=children)
    return Repetition(
        planning.select_unfinished(plan, unfinished.children), unfinished.commands_done, note
    )


def nothing_to_retry(run_id: str, part: RunPart | None) -> InputError:
    """Return the refusal of a retry in which no child would run."""
    part_name = "it" if part is None else str(part)
    return InputError(f"run {run_id} has nothing to retry: everything in {part_name} succeeded")


def _select_child(
    job: PlannedJob, index: int, unfinished: Unfinished, claims: bool
) -> tuple[Unfinished, str]:
    if job.is_dynamic and claims:
        raise InputError(
            f"commands of step {job.step!r} are handed out at run time: no child has its own",
            hint="repeat one command with --command N, or the step without an index",
        )
    selected = {job.step: [index]}
    if index in unfinished.children.get(job.step, ()):
        return replace(unfinished, children=selected), ""
    own_commands = set(job.commands_of_index(index))
    done = [n for n in unfinished.commands_done.get(job.step, ()) if n not in own_commands]
    note = f"{job.step}:{index} has succeeded before: it runs again, with all its commands"
    return Unfinished(selected, {job.step: done}), note


def _select_command(plan: Plan, step: str, number: int, *, claims: bool) -> tuple[Plan, Unfinished]:
    """Return the plan and the child for a run of one command."""
    job = plan.job(step)
    if not 0 <= number < job.command_count:
        raise InputError(
            f"step {step!r} has no command {number}",
            hint=f"its commands are 0 to {job.command_count - 1}",
        )
    if job.is_dynamic and claims:
        other_commands = [n for n in range(job.command_count) if n != number]
        return plan, Unfinished({step: [0]}, {step: other_commands})
    index = _child_of_command(job, number)
    if not job.has_several_commands:
        return plan, Unfinished({step: [index]}, {})
    # A worker on AWS takes the share of its child, so the others are skipped there.
    share = shard.commands_of(job.command_count, index, job.step_size, job.share_out)
    single = replace(job, only_command=number)
    jobs = tuple(single if other is job else other for other in plan.jobs)
    other_commands = [n for n in share if n != number]
    return replace(plan, jobs=jobs), Unfinished({step: [index]}, {step: other_commands})


def _child_of_command(job: PlannedJob, number: int) -> int:
    """Return the child that has the command. Raises InputError if no child of the run has it."""
    index = number
    if job.has_list and not job.is_dynamic:
        index = shard.child_of(job.command_count, number, job.step_size, job.share_out)
    if number not in job.commands_of_index(index) or index not in job.numbers:
        raise InputError(
            f"command {job.step}:{number} was not part of this run",
            hint="repeat it in the run that this one is a retry of",
        )
    return index
