"""Random pipelines of a soak, and what each of them must come to. Pure, but for ``write_case``."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchyard.shard import commands_of

TASK = Path(__file__).with_name("task.sh")
#: Exit codes of commands that fail on purpose. No part of batchyard exits with one of them.
EXIT_CODES = (5, 7, 11)
#: Exit code of a command that fails on purpose and succeeds later.
EXIT_LATER = 9
INPUT = "in/data.txt"


@dataclass(frozen=True, slots=True)
class SoakCommand:
    """What one command of a step does."""

    #: STEP-INDEX-NUMBER
    key: str
    seconds: float
    #: Not 0: it always fails.
    exit_code: int = 0
    #: How often it fails before it succeeds.
    failures: int = 0


@dataclass(frozen=True, slots=True)
class SoakStep:
    name: str
    #: None for a step without `array`.
    array: int | None
    #: Child -> its commands, in order.
    children: tuple[tuple[SoakCommand, ...], ...]
    is_list: bool = False
    #: Step -> whether with `each`.
    needs: tuple[tuple[SoakStep, bool], ...] = ()
    retries: int = 0
    keep_going: bool = False
    has_output: bool = False
    #: Parts of each command's work after which a checkpoint differs; 0 without `checkpoint`.
    ticks: int = 0

    @property
    def commands(self) -> tuple[SoakCommand, ...]:
        return tuple(command for child in self.children for command in child)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is left of a pipeline when all its runs are over, whatever disturbed them."""

    succeeded: frozenset[str]
    #: Commands that always fail, and run.
    failed: frozenset[str]
    #: Commands that must never start.
    never_started: frozenset[str]
    #: Output file -> its content.
    outputs: dict[str, bytes]

    @property
    def state(self) -> str:
        return "FAILED" if self.failed or self.never_started else "SUCCEEDED"


def make_pipeline(dice: random.Random) -> tuple[SoakStep, ...]:
    steps: list[SoakStep] = []
    for number in range(dice.choice((1, 1, 1, 2, 2, 3))):
        steps.append(_make_step(dice, f"s{number}", steps))
    return tuple(steps)


def _make_step(dice: random.Random, name: str, earlier: list[SoakStep]) -> SoakStep:
    needed = [step for step in earlier if dice.random() < 0.7]
    array: int | None = dice.choice((None, None, None, 2, 2, 3))
    if needed and dice.random() < 0.5:
        array = needed[-1].array
    needs = tuple(
        (step, step.array == array and array is not None and dice.random() < 0.6) for step in needed
    )
    is_list = dice.random() < 0.3
    retries = dice.choice((0, 1, 1, 2, 3))
    keep_going = is_list and dice.random() < 0.4
    has_output = dice.random() < 0.45
    size = array or 1
    total = dice.randint(size, 2 * size + 1) if is_list else size
    children = []
    for index in range(size):
        numbers = commands_of(total, index, size) if is_list else range(1)
        children.append(_make_commands(dice, f"{name}-{index}", numbers, retries))
    return SoakStep(
        name=name,
        array=array,
        children=tuple(children),
        is_list=is_list,
        needs=needs,
        retries=retries,
        keep_going=keep_going,
        has_output=has_output,
        ticks=dice.choice((0, 0, 3, 6)) if has_output else 0,
    )


def _make_commands(
    dice: random.Random, child: str, numbers: range, retries: int
) -> tuple[SoakCommand, ...]:
    """Return the commands of a child. Their failures in all fit into its retries, so that the
    child succeeds unless a command always fails."""
    commands = []
    failures_left = retries
    for number in numbers:
        exit_code = dice.choice(EXIT_CODES) if dice.random() < 0.04 else 0
        failures = 1 if not exit_code and failures_left and dice.random() < 0.2 else 0
        failures_left -= failures
        seconds = round(dice.uniform(0.05, 1.5), 2)
        commands.append(SoakCommand(f"{child}-{number}", seconds, exit_code, failures))
    return tuple(commands)


# -- what must come of it -------------------------------------------------------------------------


def expect(steps: tuple[SoakStep, ...], data: bytes) -> Expectation:
    """``data``: content of the input file of this machine."""
    succeeded: set[str] = set()
    failed: set[str] = set()
    never_started: set[str] = set()
    failed_children: set[tuple[str, int]] = set()
    outputs: dict[str, bytes] = {INPUT: data}
    for step in steps:
        for index, commands in enumerate(step.children):
            is_blocked = any(partner in failed_children for partner in _partners(step, index))
            for command in commands:
                if is_blocked:
                    never_started.add(command.key)
                elif command.exit_code:
                    failed.add(command.key)
                    is_blocked = not step.keep_going
                else:
                    succeeded.add(command.key)
                    if step.has_output:
                        outputs[_output(command)] = _make_output(step, index, command, outputs)
            if any(command.key in failed | never_started for command in commands):
                failed_children.add((step.name, index))
    del outputs[INPUT]
    return Expectation(frozenset(succeeded), frozenset(failed), frozenset(never_started), outputs)


def _partners(step: SoakStep, index: int) -> Iterator[tuple[str, int]]:
    """Yield the children that a child waits for."""
    for needed, each in step.needs:
        for partner in range(len(needed.children)):
            if not each or partner == index:
                yield needed.name, partner


def _output(command: SoakCommand) -> str:
    step, index, number = command.key.split("-")
    return f"out/{step}/{index}-{number}.txt"


def _inputs(step: SoakStep, index: int) -> list[str]:
    files = [INPUT]
    for needed, each in step.needs:
        if not needed.has_output:
            continue
        for partner, commands in enumerate(needed.children):
            if not each or partner == index:
                files += [_output(command) for command in commands]
    return files


def _make_output(
    step: SoakStep, index: int, command: SoakCommand, files: dict[str, bytes]
) -> bytes:
    content = f"{command.key}\n".encode()
    content += b"".join(files[name] for name in _inputs(step, index))
    content += b"".join(b"%d\n" % tick for tick in range(1, step.ticks + 1))
    return f"{hashlib.sha256(content).hexdigest()}  -\n".encode()


# -- files ----------------------------------------------------------------------------------------


def write_case(
    folder: Path, name: str, steps: tuple[SoakStep, ...], data: bytes, env: dict[str, str]
) -> None:
    """Write the pipeline file, the input file, and what each command does."""
    for part in ("plan", "locks", "in"):
        (folder / part).mkdir(parents=True)
    (folder / INPUT).write_bytes(data)
    (folder / "events").touch()
    for step in steps:
        for index, commands in enumerate(step.children):
            for command in commands:
                work = f"{command.seconds} {command.exit_code} {command.failures} {step.ticks}"
                lines = [f"{work} {'yes' if step.has_output else 'no'}", *_inputs(step, index)]
                (folder / "plan" / command.key).write_text("\n".join(lines) + "\n")
    document = {
        "name": name,
        "image": "busybox",
        "env": env,
        "defaults": {"memory": "256MiB"},
        "steps": [_to_json(folder, step) for step in steps],
    }
    (folder / "pipeline.json").write_text(json.dumps(document, indent=2))


def _to_json(folder: Path, step: SoakStep) -> dict[str, Any]:
    members: dict[str, Any] = {"name": step.name, "retries": step.retries}
    text = f"sh '{TASK}' '{folder}' {step.name}"
    if step.is_list:
        numbers = [command.key.rpartition("-")[2] for command in step.commands]
        members["commands"] = [f"{text} {number}" for number in numbers]
        members["keep_going"] = step.keep_going
    else:
        members["command"] = f"{text} 0"
    if step.array is not None:
        members["array"] = step.array
    if step.needs:
        members["needs"] = [{"step": needed.name, "each": each} for needed, each in step.needs]
    if step.has_output:
        members["outputs"] = [f"out/{step.name}/*"]
        members["inputs"] = [INPUT] + [
            f"out/{needed.name}/" + ("${index}-*.txt" if each else "*")
            for needed, each in step.needs
            if needed.has_output
        ]
    if step.ticks:
        members["checkpoint"] = ["progress-*.txt"]
    return members
