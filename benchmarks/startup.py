"""Measure the start-up of batchyard: one task, its status, `--version`, and a large `validate`."""

from __future__ import annotations

from collections.abc import Sequence

from contenders import Yard, ours
from scores import Skipped, Timing, Workload

ONE_TASK = "run of one task"
STATUS = "status"
VERSION = "--version"
VALIDATE = "validate"


def measure(yard: Yard, repeats: int, lines: int) -> tuple[list[Timing], list[Skipped]]:
    """Time each command in turn, ``repeats`` times. A first turn, not counted, fills caches."""
    single_task = yard.file("one.txt", lambda: f"{Workload.TRUE}\n")
    large = yard.file(f"lines-{lines}.yaml", lambda: pipeline_text(lines))
    commands: dict[str, Sequence[str]] = {
        ONE_TASK: ["run", str(single_task), "--home", str(yard.home)],
        STATUS: ["status", "last", "--home", str(yard.home)],
        VERSION: ["--version"],
        VALIDATE: ["validate", str(large)],
    }
    skips = []
    if ours(yard, "validate", "--help").exit_code:
        del commands[VALIDATE]
        skips.append(Skipped(VALIDATE, "this batchyard has no such command"))
    timings = []
    for turn in range(repeats + 1):
        for name, arguments in commands.items():
            timing = ours(yard, *arguments).timing(name, "", turn)
            if turn:
                timings.append(timing)
    return timings, skips


def pipeline_text(lines: int) -> str:
    """Return a valid pipeline with this many lines: a chain of steps with the usual keys."""
    head = [
        "name: large",
        "defaults: {cpus: 1, memory: 512MiB, timeout: 1h}",
        "params: {size: 64}",
        "steps:",
    ]
    body: list[str] = []
    previous = None
    while len(head) + len(body) < lines - 10:
        name = f"step-{len(body)}"
        body += [
            f"  - name: {name}",
            f"    command: python work.py --size ${{params.size}} --step {name}",
            "    array: 16",
            f"    needs: [{previous}]" if previous else "    # the first",
            "    memory: 2GiB",
            "    retries: 2",
            '    retry_on: [spot, 75, "64-78"]',
            '    inputs: ["raw/**"]',
            f'    outputs: ["{name}/**"]',
            '    env: {OMP_NUM_THREADS: "1"}',
        ]
        previous = name
    padding = ["# the end"] * (lines - len(head) - len(body))
    return "\n".join([*head, *body, *padding]) + "\n"
