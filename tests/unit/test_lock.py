"""Who executes a run: one at a time, and those who only look are in nobody's way."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
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


#: holds the lock until it is killed, and lets a process that it starts have it a little longer
KILLED_HOLDER = """
import os, signal, subprocess, sys
from pathlib import Path
from batchyard.embedded.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
subprocess.Popen(["sleep", "0.7"], pass_fds=[lock._fd])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("look", [find_holder, RunLock])
def test_a_child_of_a_killed_holder_that_is_not_quite_started_is_waited_for(
    path: Path, look: type[RunLock]
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_HOLDER, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    lock = look(path)
    assert lock is None or isinstance(lock, RunLock)
    if lock is not None:
        lock.release()
