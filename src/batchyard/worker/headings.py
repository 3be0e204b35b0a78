"""Lines in the log of a child that tell which command's output follows, or is not there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Begins every line that the worker itself writes to the log.
_WORKER = "batchyard-worker: "
_HEADING = re.compile(_WORKER + r"command ([0-9]+)$")


def make_heading(command: int) -> str:
    return f"{_WORKER}command {command}"


def describe_succeeded(commands: Iterable[int]) -> str:
    """Return a sentence about commands that an attempt does not run, since they have succeeded.

    Their success record does not prove that their output was stored: output that a host has not
    sent yet is lost with the host. Without the sentence, such a log would seem complete.
    """
    ranges = _to_ranges(sorted(commands))
    numbers = ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)
    if numbers.isdigit():
        return (
            f"command {numbers} succeeded earlier and is not run again; "
            "if its host died, the end of its output may be missing"
        )
    return (
        f"commands {numbers} succeeded earlier and are not run again; "
        "if their host died, the end of their output may be missing"
    )


def _to_ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each sequence without gaps. The numbers are sorted."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def select_output(lines: Iterable[str], command: int) -> list[str]:
    """Return the output of the last execution of a command, from the lines of a child's log.

    Other messages of the worker, such as the one about the end of the child, are left out.
    """
    output: list[str] = []
    is_wanted = False
    for line in lines:
        heading = _HEADING.search(line)
        if heading is None:
            if is_wanted and not line.startswith(_WORKER):
                output.append(line)
            continue
        # The output before a heading need not end with a newline.
        if is_wanted and heading.start():
            output.append(line[: heading.start()])
        is_wanted = int(heading[1]) == command
        if is_wanted:
            output = []
    return output
