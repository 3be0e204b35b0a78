"""Who executes a run: one at a time, and those who only look are in nobody's way."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from batchyard.embedded.lock import RunLock, find_holder
from batchyard.errors import RunLockedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a-run").mkdir()
    return tmp_path / "a-run" / "lock"


def test_the_second_is_told_who_is_the_first(path: Path) -> None:
    assert find_holder(path) is None
    first = RunLock(path)
    holder = find_holder(path)
    assert holder is not None and holder.pid == os.getpid()
    with pytest.raises(
        RunLockedError, match=f"run a-run is being executed by process {os.getpid()} on "
    ):
        RunLock(path)
    first.release()
    assert find_holder(path) is None
    RunLock(path).release()


def test_one_who_looks_is_waited_for_however_long_it_takes(path: Path) -> None:
    RunLock(path).release()
    looker = os.open(path, os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    assert find_holder(path) is None
    thread = threading.Timer(0.7, os.close, [looker])
    thread.start()
    RunLock(path).release()
    thread.join()
