"""One command as a process: started, waited for, asked to end, and nothing of its group left behind."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from batchyard.worker.faults import MACHINE, Fault
from batchyard.worker.memory import oom_kills
from batchyard.worker.rules import TERMINATED
from batchyard.worker.stopping import Bell, kill_time

_SHELL = "/bin/sh"
_KILLED = 128 + signal.SIGKILL
#: how long the signal that ended the command may take to reach the worker as well
_ECHO_S = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int
    seconds: float
    #: asked to end: whatever its exit code is, it does not say that the work is done
    was_cut: bool = False
    was_out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Starter:
    """How the commands of a child are started."""

    folder: str
    environ: Mapping[str, str]
    bell: Bell
    #: whether something is uploaded after a command that was asked to end
    saves: bool
    count_oom_kills: Callable[[], int] = oom_kills

    def run(self, command: str, number: int) -> Ended:
        began, kills = self.bell.clock(), self.count_oom_kills()
        process = self._start(command, number)
        threading.Thread(target=_tell_end, args=(process, self.bell), daemon=True).start()
        was_cut = self._wait(process)
        # The zombie still holds the number of the group, so nobody else's can be meant.
        _signal(process, signal.SIGKILL)
        code = process.wait()
        code = code if code >= 0 else 128 - code
        _reap_orphans()
        if code == TERMINATED and not was_cut:
            was_cut = self._hears_echo()
        ran_out = code == _KILLED and not was_cut and self.count_oom_kills() > kills
        return Ended(code, self.bell.clock() - began, was_cut, ran_out)

    def _start(self, command: str, number: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [_SHELL, "-c", command],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                # Two streams of a container reach the log in any order.
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise Fault(
                f"could not start command {number}: {exc}; check the image and the command", MACHINE
            ) from exc

    def _wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Until it has ended; whether it was asked to."""
        bell, rang_at = self.bell, 0.0
        kill_at: float | None = None
        is_killed = False
        while True:
            timeout = None if kill_at is None or is_killed else max(0.0, kill_at - bell.clock())
            try:
                event = bell.events.get(timeout=timeout)
            except queue.Empty:
                _signal(process, signal.SIGKILL)
                is_killed = True
                continue
            if event is process:
                return kill_at is not None
            if event is None and bell.stop is not None:
                if kill_at is None:
                    rang_at = bell.clock()
                    _signal(process, signal.SIGTERM)
                kill_at = kill_time(bell.stop, rang_at, self.saves)

    def _hears_echo(self) -> bool:
        """Whether what ended the command, a SIGTERM to everything here, is for the worker too."""
        with suppress(queue.Empty):
            self.bell.events.get(timeout=_ECHO_S)
        return self.bell.has_rung()


def _tell_end(process: subprocess.Popen[bytes], bell: Bell) -> None:
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    bell.events.put(process)


def _signal(process: subprocess.Popen[bytes], signum: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)


def _reap_orphans() -> None:
    """As the first process of a container the worker inherits what others leave, and nobody else waits for them."""
    if os.getpid() != 1:
        return
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
