"""Who executes a run: at most one process at a time, and everybody can see which."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from batchyard.errors import RunLockedError, from_os_error

_LOOK_S = 0.2
#: where only such as look have it
_LOOKERS_S = 30.0


class Holder(NamedTuple):
    pid: int
    host: str
    since: float

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}"


class RunLock:
    """Held from construction to ``release``; the system lets go of it when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise from_os_error(exc, "open", path) from exc
        try:
            self._take()
        except BlockingIOError:
            holder = _written_in(self._fd)
            os.close(self._fd)
            who = f"by {holder}" if holder else "by another process"
            raise RunLockedError(
                f"run {path.parent.name} is being executed {who}",
                hint=f"watch it with `batchyard status {path.parent.name} --watch`, end it with `batchyard stop "
                f"{path.parent.name}`",
            ) from None
        note = {"pid": os.getpid(), "host": os.uname().nodename, "since": time.time()}
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(note).encode(), 0)
        except OSError as exc:
            raise from_os_error(exc, "write", path) from exc

    def _take(self) -> None:
        began = time.monotonic()
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Somebody who only looks who holds it has it for a moment too, on a busy machine for a longer one.
                patience_s = _LOOK_S if _is_held(self._fd) else _LOOKERS_S
                if time.monotonic() - began > patience_s:
                    raise
                time.sleep(0.005)

    def release(self) -> None:
        os.close(self._fd)


def holder_of(path: Path) -> Holder | None:
    """Who holds the lock now; None if nobody does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return (_written_in(fd) or Holder(0, "?", 0.0)) if _is_held(fd) else None
    finally:
        os.close(fd)


def _is_held(fd: int) -> bool:
    """Whether somebody executes the run: one who looks shares the lock with others who do."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _written_in(fd: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(fd, 4096, 0)))
    except (ValueError, TypeError):
        return None
