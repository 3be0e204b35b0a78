"""Lines in the log of a dynamic step's child that tell which command's output follows. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_HEADING = re.compile(r"batchyard-worker: command ([0-9]+)$")


def make_heading(command: int) -> str:
    return f"batchyard-worker: command {command}"


def select_output(lines: Iterable[str], command: int) -> list[str]:
    """Return the output of the last execution of a command, from the lines of a child's log."""
    output: list[str] = []
    is_wanted = False
    for line in lines:
        heading = _HEADING.search(line)
        if heading is None:
            if is_wanted:
                output.append(line)
            continue
        # The output before a heading need not end with a newline.
        if is_wanted and heading.start():
            output.append(line[: heading.start()])
        is_wanted = int(heading[1]) == command
        if is_wanted:
            output = []
    return output
