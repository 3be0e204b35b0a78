"""The user's pipeline as values: what a file says once it has been read and found right.

Pure: knows no engine, no AWS, no clock. ``reading.py`` turns a file into these, ``plan.py`` these into jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path

from batchyard.errors import Mistake

MAX_NAME_LENGTH = 40
MAX_STEP_NAME_LENGTH = 32
MAX_ARRAY_SIZE = 1_000_000
MAX_RETRIES = 9  # AWS Batch allows 10 attempts
AWS_MIN_TIMEOUT_S = 60

#: words of retry_on and fail_on that are not exit codes
RETRY_WORDS = ("spot", "oom", "image", "any")


@dataclass(frozen=True, slots=True)
class Need:
    """One edge: the step waits for ``step``, or child i only for its child i."""

    step: str
    each: bool = False


@dataclass(frozen=True, slots=True)
class ExitRule:
    """What ended an attempt: a word of RETRY_WORDS, or exit codes first to last, both included."""

    word: str = ""
    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        if self.word:
            return self.word
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of ``steps``, with the file's defaults already applied."""

    name: str
    #: the same command in every child; None where the step has a list
    command: str | None = None
    #: the list that the children share out; None where the step has one command
    commands: tuple[str, ...] | None = None
    #: number of children; None where the file does not say: one child, and no array
    array: int | None = None
    needs: tuple[Need, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    #: globs saved when a reclaim is announced
    checkpoint: tuple[str, ...] = ()
    cpus: int = 1
    memory_mib: int = 512
    gpus: int = 0
    timeout_s: int | None = None
    #: attempts = retries + 1
    retries: int = 0
    retry_on: tuple[ExitRule, ...] = (ExitRule(word="any"),)
    fail_on: tuple[ExitRule, ...] = ()
    max_running: int | None = None
    keep_going: bool = False
    image: str | None = None
    #: the file's env with the step's own laid over it
    env: Mapping[str, str] = field(default_factory=dict)
    #: variable -> ARN; AWS only
    secrets: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    share: str | None = None
    priority: int | None = None
    shm_mib: int | None = None

    @property
    def size(self) -> int:
        return self.array or 1


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    steps: tuple[Step, ...]
    #: the file it was read from; None where it was made in Python
    path: Path | None = None
    #: as the file says it, relative to the file; None: the file's folder
    workspace: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    fail_fast: bool = False
    warnings: tuple[Mistake, ...] = ()

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    @property
    def folder(self) -> Path:
        return self.path.resolve().parent if self.path else Path.cwd()


def in_order(steps: Iterable[Step]) -> list[Step]:
    """The steps so that each comes after what it needs; ties stay in the file's order. Expects no cycle."""
    given = list(steps)
    names = {step.name for step in given}
    unmet = [{need.step for need in step.needs if need.step in names} for step in given]
    dependents: dict[str, list[int]] = {}
    for index, needed in enumerate(unmet):
        for name in needed:
            dependents.setdefault(name, []).append(index)
    # By position in the file, so that of the steps that are ready the first one written comes first.
    ready = [index for index, needed in enumerate(unmet) if not needed]
    ordered: list[Step] = []
    while ready:
        step = given[heappop(ready)]
        ordered.append(step)
        for index in dependents.get(step.name, ()):
            unmet[index].discard(step.name)
            if not unmet[index]:
                heappush(ready, index)
    if len(ordered) < len(given):
        stuck = [step.name for step, needed in zip(given, unmet, strict=True) if needed]
        raise ValueError("cycle among steps: " + ", ".join(stuck))
    return ordered
