"""Which children of a local run run now: from the marks in the environments of its processes.

The process that executes the run is not asked, so that looking costs it nothing.
"""

from __future__ import annotations

import re

from batchyard.embedded import proc

#: `<token>.<job>.<child>.<attempt>.`, as embedded/children.py writes it.
_MARK = rb"(?:^|\0)BATCHYARD_TOKEN=[^\0]*?\.(\d+)\.(\d+)\.\d+\.(?:\0|$)"


def find_children(executing_pid: int | None) -> list[tuple[int, int]]:
    """Return (number of the job, number of the child in it) of the children of a process."""
    if executing_pid is None:
        return []
    marks = (re.search(_MARK, proc.environ_of(pid)) for pid in proc.children_of(executing_pid))
    return sorted({(int(mark[1]), int(mark[2])) for mark in marks if mark})
