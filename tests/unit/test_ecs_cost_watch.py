"""The thread that looks at the cost of a run on a cluster while the run executes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from batchyard.engines.base import Overview, RunState
from batchyard.engines.ecs.cost_watch import CostWatch
from batchyard.errors import BusyServiceError, OperationalError

OVERVIEW = Overview(RunState.RUNNING, (), None, None)


def test_looks_go_on_after_errors_which_are_said_once() -> None:
    problems: list[Exception] = [
        BusyServiceError("AWS is busy"),
        OperationalError("access denied"),
        OperationalError("access denied"),
        OSError(28, "No space left on device"),
    ]
    locked = [OperationalError("the file is locked")]
    notes: list[str] = []
    has_looked = threading.Event()

    def look() -> Overview:
        if problems:
            raise problems.pop(0)
        return OVERVIEW

    def supervise(overview: Overview) -> float:
        assert overview is OVERVIEW
        has_looked.set()
        return 3600.0

    @contextmanager
    def open_store() -> Iterator[None]:
        if locked:
            raise locked.pop()
        yield

    with CostWatch(look, supervise, open_store, notes.append, retry_s=0.01).watch():
        assert has_looked.wait(30)
    beginning = "warning: what the run costs is not known now, nor is a cap kept: "
    assert notes == [
        f"{beginning}the file is locked",
        f"{beginning}access denied",
        f"{beginning}OSError: [Errno 28] No space left on device",
    ]
    # The thread ends with the run, however long the pause would be.
    assert not [thread for thread in threading.enumerate() if thread.name == "cost"]
