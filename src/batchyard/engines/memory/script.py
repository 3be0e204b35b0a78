"""What the commands of a run in memory do: a table or a function that a test writes. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from batchyard.batch.jobs import StatusReason
from batchyard.errors import InputError
from batchyard.pipeline import Pipeline

#: Duration of a command for which no other is scripted, if its timeout allows it.
USUAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """What one command does. Raises InputError for what no command can do."""

    #: None where the command never started, or its host was lost; ``status_reason`` says why.
    exit_code: int | None = 0
    output: bytes = b""
    #: Duration on the engine's clock. Infinite: until it is released, stopped or timed out.
    seconds: float = USUAL_S
    status_reason: str = StatusReason.EXITED
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.output, bytes):
            raise InputError(f"Result: output is {self.output!r}", hint='write bytes: b"text"')
        if not self.seconds >= 0:  # also for NaN
            raise InputError(f"Result: seconds is {self.seconds!r}", hint="write 0 or more")


#: A command that runs until ``MemoryEngine.release``, a stop or its timeout.
HOLD = Result(seconds=math.inf)


@dataclass(frozen=True, slots=True)
class Call:
    """One command that is about to run."""

    step: str
    #: Number of the child in its step.
    index: int
    attempt: int
    command: str
    #: Environment variables that the engine sets for the child.
    environ: Mapping[str, str]


#: Returns what a command does; or a table: `step` or `step:index` -> result or exit code, or a
#: list of these, one for each attempt.
Script = Callable[[Call], "Result | int"] | Mapping[str, "Result | int | Sequence[Result | int]"]


def look_up(script: Script, call: Call, usual_s: float) -> Result:
    """Return what the command does. ``usual_s``: its duration if only its exit code is scripted."""
    if callable(script):
        entry: Result | int | Sequence[Result | int] = script(call)
    else:
        entry = script.get(f"{call.step}:{call.index}", script.get(call.step, 0))
    if isinstance(entry, Sequence):
        entry = entry[min(call.attempt, len(entry)) - 1]
    if not isinstance(entry, Result | int):
        raise InputError(
            f"the script returns {entry!r} for {call.step}:{call.index}",
            hint="return a Result or an exit code",
        )
    return entry if isinstance(entry, Result) else Result(exit_code=entry, seconds=usual_s)


def check_script(script: Script, pipeline: Pipeline) -> None:
    """Raise InputError for entries of a table that no command could follow."""
    if callable(script):
        return
    if not isinstance(script, Mapping):
        raise InputError(f"the script is {script!r}", hint="write a table or a function")
    sizes = {step.name: step.size for step in pipeline.steps}
    for key, entry in script.items():
        _check_key(str(key), sizes, pipeline.name)
        _check_entry(str(key), entry)


def _check_key(key: str, sizes: Mapping[str, int], pipeline_name: str) -> None:
    """Raise InputError for a key that names no step, or no child of it."""
    step, colon, index = key.partition(":")
    if step not in sizes:
        raise InputError(
            f"the script has an entry {key!r}, and pipeline {pipeline_name} has no such step",
            hint=f"its steps are: {', '.join(sizes)}",
        )
    if colon and not (index.isdecimal() and int(index) < sizes[step]):
        raise InputError(
            f"the script has an entry {key!r}, and step {step!r} has no such child",
            hint=f"its children are 0 to {sizes[step] - 1}",
        )


def _check_entry(key: str, entry: object) -> None:
    entries = entry if isinstance(entry, list | tuple) else (entry,)
    if not entries or not all(isinstance(item, Result | int) for item in entries):
        raise InputError(
            f"the entry {key!r} of the script is {entry!r}",
            hint="write an exit code, a Result, or a list with one of these for each attempt",
        )
