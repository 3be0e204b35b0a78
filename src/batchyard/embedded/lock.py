"""The lock of a run: at most one process executes a run, and others can read which."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from pathlib import Path

from batchyard.errors import RunLockedError, from_os_error
from batchyard.quick_dataclasses import NamedTuple

#: How long to wait for a lock that another process seems to hold for executing.
_HELD_TIMEOUT_S = 0.2
#: How long to wait for a lock whose holder has ended: a child that it had not quite started has the
#: lock until its program is loaded.
_ENDED_TIMEOUT_S = 2.0
#: How long to wait while others only read who holds the lock.
_READERS_TIMEOUT_S = 30.0


class Holder(NamedTuple):
    """The process that executes a run."""

    pid: int
    host: str
    since: float

    @property
    def has_ended(self) -> bool:
        """Whether the process was on this machine, and is not there any more."""
        if self.host != os.uname().nodename:
            return False
        try:
            os.kill(self.pid, 0)
        except OSError as exc:
            return exc.errno == errno.ESRCH
        return False

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}"


class RunLock:
    """A lock that is held from construction to ``release``, or to the death of the process."""

    def __init__(self, path: Path) -> None:
        """Acquire the lock. Raises RunLockedError if another process holds it."""
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise from_os_error(exc, "open", path) from exc
        try:
            self._acquire()
        except BlockingIOError:
            holder = _read_holder(self._fd)
            os.close(self._fd)
            run_id = path.parent.name
            raise RunLockedError(
                f"run {run_id} is being executed by {holder or 'another process'}",
                hint=f"watch it with `batchyard status {run_id} --watch`, "
                f"end it with `batchyard stop {run_id}`",
            ) from None
        note = {"pid": os.getpid(), "host": os.uname().nodename, "since": time.time()}
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(note).encode(), 0)
        except OSError as exc:
            raise from_os_error(exc, "write", path) from exc

    def _acquire(self) -> None:
        began_s = time.monotonic()
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # A process that only reads the holder shares the lock for a moment, which is
                # longer on a busy machine.
                if time.monotonic() - began_s > _timeout_s(self._fd):
                    raise
                time.sleep(0.005)

    def release(self) -> None:
        os.close(self._fd)


def find_holder(path: Path) -> Holder | None:
    """Return the process that holds the lock; None if no process does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    deadline_s = time.monotonic() + _ENDED_TIMEOUT_S
    try:
        while _is_held(fd):
            holder = _read_holder(fd) or Holder(0, "?", 0.0)
            if not holder.has_ended or time.monotonic() > deadline_s:
                return holder
            time.sleep(0.005)
        return None
    finally:
        os.close(fd)


def _timeout_s(fd: int) -> float:
    """Return how long to wait for a lock that could not be taken."""
    if not _is_held(fd):
        return _READERS_TIMEOUT_S
    holder = _read_holder(fd)
    return _ENDED_TIMEOUT_S if holder and holder.has_ended else _HELD_TIMEOUT_S


def _is_held(fd: int) -> bool:
    """Return whether a process executes the run. Processes that only read share the lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _read_holder(fd: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(fd, 4096, 0)))
    except (ValueError, TypeError):
        return None
