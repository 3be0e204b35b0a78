"""Check that each input of a step is a file of the workspace or an output of an earlier step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from batchyard.engines.aws.staging import match_files
from batchyard.errors import InputError
from batchyard.plan import Plan
from batchyard.worker.globs import Glob, globs

_WILDCARD = re.compile(r"[*?\[]")


def check_inputs(plan: Plan, workspace: Path) -> list[str]:
    """Return notes for the user about inputs that are not sent.

    Raises InputError where an input matches nothing, because the step might succeed wrongly, and
    where a file cannot be sent.
    """
    patterns = [(job.step, pattern) for job in plan.jobs for pattern in job.inputs]
    matched = match_files(workspace, (pattern for _, pattern in patterns))
    needed = [(step, pattern) for step, pattern in patterns if not _is_output(plan, step, pattern)]
    unmatched = find_unmatched(matched.files, {pattern for _, pattern in needed})
    problems = [
        f"step {step!r}: no file here matches the input {pattern}, and no step before it gives it"
        for step, pattern in needed
        if pattern in unmatched
    ]
    if problems:
        raise InputError(
            "\n  ".join((f"in the workspace {workspace}:", *problems)),
            hint="check the pattern, the workspace, `needs`, and the `outputs` of the steps "
            "before; files that may be missing do not belong in `inputs`",
        )
    return [
        f"{name}: a FIFO, a socket or a device, which is not sent as input"
        for name in matched.special_files
    ]


def find_unmatched(names: Iterable[str], patterns: Iterable[str]) -> set[str]:
    """Return the patterns that match none of the names."""
    texts = list(patterns)
    unmatched = dict(zip(texts, globs(texts), strict=True))
    for name in names:
        for text in [text for text, glob in unmatched.items() if glob.matches(name)]:
            del unmatched[text]
        if not unmatched:
            break
    return set(unmatched)


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


def _is_output(plan: Plan, step: str, pattern: str) -> bool:
    """Return whether an earlier step may write files that match the pattern."""
    (glob,) = globs([pattern])
    return any(
        can_overlap(glob, output)
        for earlier in _earlier_steps(plan, step)
        for output in globs(plan.job(earlier).outputs)
    )


def _earlier_steps(plan: Plan, step: str) -> set[str]:
    """Return the steps that must end before this one."""
    earlier: set[str] = set()
    unvisited = [step]
    while unvisited:
        needed = {need.step for need in plan.job(unvisited.pop()).needs} - earlier
        earlier |= needed
        unvisited += needed
    return earlier
