"""Which files of the local workspace the steps of a run take, and which inputs nothing gives."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchyard import child_patterns
from batchyard.engines.aws.workspace_files import check_files, list_names
from batchyard.errors import InputError
from batchyard.plan import Plan, PlannedJob
from batchyard.units import pluralize
from batchyard.worker.globs import Glob, NameIndex, globs

_WILDCARD = re.compile(r"[*?\[]")
#: patterns of one step that a message names
_MAX_NAMED = 5


@dataclass(slots=True)
class StepInputs:
    """The files of a workspace that the inputs of a step match."""

    #: files that the step takes from this machine
    names: set[str] = field(default_factory=set)
    #: files that the step takes only from the earlier step that writes them
    replaced: set[str] = field(default_factory=set)
    #: patterns that match no file, as children have them -> the first of these children
    unmatched: dict[str, int] = field(default_factory=dict)


def check_inputs(plan: Plan, workspace: Path) -> list[str]:
    """Return notes for the user about inputs that are not sent.

    Raises InputError where an input matches nothing, because the step might succeed wrongly, and
    where a file cannot be sent.
    """
    names = list(list_names(workspace)) if any(job.inputs for job in plan.jobs) else []
    selected = select_inputs(plan, names)
    checked = check_files(workspace, {name for step in selected.values() for name in step.names})
    # A pattern that matches only FIFOs and the like matches nothing that could be sent.
    selected = select_inputs(plan, set(names).difference(checked.special_files))
    problems = [problem for job in plan.jobs for problem in _find_problems(job, selected[job.step])]
    if problems:
        raise InputError(
            "\n  ".join((f"in the workspace {workspace}:", *problems)),
            hint="check the pattern, the workspace, `needs`, and the `outputs` of the steps "
            "before; files that may be missing do not belong in `inputs`",
        )
    special_notes = [
        f"{name}: a FIFO, a socket or a device, which is not sent as input"
        for name in checked.special_files
    ]
    return [*special_notes, *_make_replaced_notes(plan, selected)]


def select_inputs(
    plan: Plan,
    names: Iterable[str],
    retried_inputs: Mapping[str, Collection[str]] | None = None,
) -> dict[str, StepInputs]:
    """Return step -> the files that it takes from this machine, of the names in the workspace.

    A file that an earlier step of the run writes is never taken from here: this one is of another
    run. If the earlier step takes the file from here as well, it is an input of the run that the
    step may change, and the later step has it, too. ``retried_inputs``: for a retry, step -> the
    files that it took in the retried run, whose plan had more steps.
    """
    index = NameIndex(names)
    selected: dict[str, StepInputs] = {}
    #: step -> files that the step writes, without its inputs
    written_by: dict[str, set[str]] = {}
    for job in plan.jobs:
        step = selected[job.step] = StepInputs()
        for pattern, child in _fill_patterns(plan, job):
            (glob,) = globs([pattern])
            matches = set(index.find(glob))
            step.names |= matches
            if not matches:
                step.unmatched.setdefault(pattern, child)
        if retried_inputs is None:
            earlier_steps = _find_earlier_steps(plan, job)
            written = {name for earlier in earlier_steps for name in written_by[earlier]}
            step.replaced = step.names & written
        else:
            written = _find_matches(index, job.earlier_outputs)
            step.replaced = (step.names & written).difference(retried_inputs.get(job.step, ()))
        step.names -= step.replaced
        written_by[job.step] = _find_matches(index, job.outputs) - step.names
    return selected


def _find_earlier_steps(plan: Plan, job: PlannedJob) -> set[str]:
    """Return the steps of the plan that must end before this one."""
    earlier: set[str] = set()
    unvisited = [job.step]
    while unvisited:
        needed = {need.step for need in plan.job(unvisited.pop()).needs} - earlier
        earlier |= needed
        unvisited += needed
    return earlier


def _find_matches(index: NameIndex, patterns: Iterable[str]) -> set[str]:
    widened = globs(child_patterns.widen(pattern) for pattern in patterns)
    return {name for glob in widened for name in index.find(glob)}


def _fill_patterns(plan: Plan, job: PlannedJob) -> Iterator[tuple[str, int]]:
    """Yield the patterns of the step's inputs, as its children have them, and a child of each."""
    shared = [pattern for pattern in job.inputs if not child_patterns.placeholders(pattern)]
    yield from ((pattern, 0) for pattern in shared)
    differing = [pattern for pattern in job.inputs if child_patterns.placeholders(pattern)]
    commands = plan.lists.get(job.step, ())
    for child in range(job.size) if differing else ():
        # The patterns of a dynamic step do not name commands (refusals).
        has_texts = bool(commands) and not job.is_dynamic
        texts = [commands[number] for number in job.commands_of(child)] if has_texts else []
        index = job.index_in_step(child)
        try:
            filled = child_patterns.fill(differing, index, texts)
        except ValueError as exc:
            raise InputError(f"step {job.step!r}, child {index}: {exc}") from exc
        yield from ((pattern, index) for pattern in filled)


def find_made_inputs(job: PlannedJob) -> list[str]:
    """Return the patterns of the step's inputs that files of earlier steps may match."""
    return [pattern for pattern in job.inputs if _may_match(pattern, job.earlier_outputs)]


def find_own_inputs(job: PlannedJob) -> list[str]:
    """Return the patterns of the step's inputs that its own outputs may match."""
    return [pattern for pattern in job.inputs if _may_match(pattern, job.outputs)]


def _find_problems(job: PlannedJob, step: StepInputs) -> Iterator[str]:
    """Return a sentence for each pattern that neither a file nor an earlier step matches."""
    problems = []
    for pattern, child in step.unmatched.items():
        if _may_match(pattern, job.earlier_outputs):
            continue
        whose = "" if pattern in job.inputs else f" of child {child}"
        problems.append(
            f"step {job.step!r}: no file here matches the input {pattern}{whose}, and no step "
            "before it gives it"
        )
    yield from problems[:_MAX_NAMED]
    if len(problems) > _MAX_NAMED:
        count = pluralize(len(problems) - _MAX_NAMED, "more input")
        yield f"step {job.step!r}: {count} without a file"


def _may_match(pattern: str, outputs: Iterable[str]) -> bool:
    """Return whether files that match one of the outputs can match the pattern."""
    (glob,) = globs([child_patterns.widen(pattern)])
    return any(
        can_overlap(glob, output)
        for output in globs(child_patterns.widen(output) for output in outputs)
    )


def _make_replaced_notes(plan: Plan, selected: Mapping[str, StepInputs]) -> Iterator[str]:
    """Return a note for each step whose inputs are here and are written by an earlier step."""
    for job in plan.jobs:
        replaced = sorted(selected[job.step].replaced)
        if replaced:
            examples = replaced[0] + (", ..." if len(replaced) > 1 else "")
            yield (
                f"{job.step}: {pluralize(len(replaced), 'file')} not sent ({examples}): an "
                "earlier step of this run writes these inputs"
            )


def can_overlap(first: Glob, second: Glob) -> bool:
    """Return whether a path could match both globs; True where that is hard to decide."""
    first_parts, second_parts = first.text.split("/"), second.text.split("/")
    for left, right in zip(first_parts, second_parts, strict=False):
        if "**" in (left, right):
            return True
        if not _names_can_overlap(left, right):
            return False
    if len(first_parts) == len(second_parts):
        return True
    is_first_shorter = len(first_parts) < len(second_parts)
    shorter, longer = (first, second_parts) if is_first_shorter else (second, first_parts)
    # A path without wildcards is also the folder of that name, with all files in it.
    return shorter.is_plain or "**" in longer


def _names_can_overlap(first: str, second: str) -> bool:
    if not _WILDCARD.search(first):
        first, second = second, first
    if not _WILDCARD.search(second):
        return Glob(first).matches(second) if _WILDCARD.search(first) else first == second
    prefixes = (_WILDCARD.split(first)[0], _WILDCARD.split(second)[0])
    return prefixes[0].startswith(prefixes[1]) or prefixes[1].startswith(prefixes[0])
