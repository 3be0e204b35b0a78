"""Lines in the log of a dynamic step's child that tell which command's output follows. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Begins every line that the worker itself writes to the log.
_WORKER = "batchyard-worker: "
_HEADING = re.compile(_WORKER + r"command ([0-9]+)$")


def make_heading(command: int) -> str:
    return f"{_WORKER}command {command}"


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
