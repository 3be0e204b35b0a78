"""Inputs that nothing gives: no file of the local workspace, and no step before. Reads folders, writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from batchyard.engines.aws.staging import matching
from batchyard.errors import InputError
from batchyard.plan import Plan
from batchyard.worker.globs import Glob, globs

_WILD = re.compile(r"[*?\[]")


def require(plan: Plan, workspace: Path) -> list[str]:
    """Raises InputError where a step would find nothing at one of its inputs, since it may well succeed, wrongly, or
    where a file cannot be sent. Returns what the user should know."""
    named = [(job.step, pattern) for job in plan.jobs for pattern in job.inputs]
    found = matching(workspace, (pattern for _, pattern in named))
    wanted = [(step, pattern) for step, pattern in named if not _is_given(plan, step, pattern)]
    lacking = without_files(found.files, {pattern for _, pattern in wanted})
    problems = [
        f"step {step!r}: no file here matches the input {pattern}, and no step before it gives it"
        for step, pattern in wanted
        if pattern in lacking
    ]
    if problems:
        raise InputError(
            "\n  ".join((f"in the workspace {workspace}:", *problems)),
            hint="check the pattern, the workspace, `needs`, and the `outputs` of the steps before; "
            "what may be missing has no place in `inputs`",
        )
    return [
        f"{name}: a FIFO, a socket or a device, which is no input: passed over"
        for name in found.passed_over
    ]


def without_files(names: Iterable[str], patterns: Iterable[str]) -> set[str]:
    """The patterns that match none of the names."""
    left = dict(zip(patterns := list(patterns), globs(patterns), strict=True))
    for name in names:
        for pattern in [pattern for pattern, glob in left.items() if glob.matches(name)]:
            del left[pattern]
        if not left:
            break
    return set(left)


def may_meet(one: Glob, other: Glob) -> bool:
    """Whether a path could match both. Where that is hard to tell: yes."""
    ones, others = one.text.split("/"), other.text.split("/")
    for mine, its in zip(ones, others, strict=False):
        if "**" in (mine, its):
            return True
        if not _names_may_meet(mine, its):
            return False
    if len(ones) == len(others):
        return True
    shorter, longer = (one, others) if len(ones) < len(others) else (other, ones)
    # A path without wildcards is also the folder of that name, with all that is in it.
    return shorter.is_plain or "**" in longer


def _names_may_meet(one: str, other: str) -> bool:
    if not _WILD.search(one):
        one, other = other, one
    if not _WILD.search(other):
        return Glob(one).matches(other) if _WILD.search(one) else one == other
    firsts = (_WILD.split(one)[0], _WILD.split(other)[0])
    return firsts[0].startswith(firsts[1]) or firsts[1].startswith(firsts[0])


def _is_given(plan: Plan, step: str, pattern: str) -> bool:
    (wanted,) = globs([pattern])
    return any(
        may_meet(wanted, given)
        for before in _before(plan, step)
        for given in globs(plan.job(before).outputs)
    )


def _before(plan: Plan, step: str) -> set[str]:
    """The steps that it needs, and those that they need."""
    found: set[str] = set()
    left = [step]
    while left:
        new = {need.step for need in plan.job(left.pop()).needs} - found
        found |= new
        left += new
    return found
