"""Run a command as a process: start it, wait for it, stop it, and kill what it leaves behind."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from batchyard.worker.errors import EXIT_MACHINE, WorkerError
from batchyard.worker.memory import count_oom_kills
from batchyard.worker.rules import EXIT_TERMINATED
from batchyard.worker.stop_requests import StopRequests, kill_time_s

_SHELL = "/bin/sh"
_EXIT_KILLED = 128 + signal.SIGKILL
#: how much later than the command the worker can get the same signal
_SIGNAL_DELAY_S = 1.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    exit_code: int
    duration_s: float
    #: whether the command was stopped; its work is then not done, whatever the exit code
    was_interrupted: bool = False
    was_out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs the commands of a child."""

    folder: str
    environ: Mapping[str, str]
    stop_requests: StopRequests
    #: whether a checkpoint is uploaded after a command that was stopped
    has_checkpoint: bool
    count_oom_kills: Callable[[], int] = count_oom_kills

    def run(self, command: str, number: int) -> CommandResult:
        started_s, oom_kills = self.stop_requests.clock(), self.count_oom_kills()
        process = self._start(command, number)
        threading.Thread(
            target=_report_end, args=(process, self.stop_requests), daemon=True
        ).start()
        was_interrupted = self._wait(process)
        # The process is a zombie and keeps the id of its group, so no other group gets the signal.
        _signal_group(process, signal.SIGKILL)
        code = process.wait()
        code = code if code >= 0 else 128 - code
        _reap_orphans()
        if code == EXIT_TERMINATED and not was_interrupted:
            was_interrupted = self._is_stop_coming()
        was_out_of_memory = (
            code == _EXIT_KILLED and not was_interrupted and self.count_oom_kills() > oom_kills
        )
        duration_s = self.stop_requests.clock() - started_s
        return CommandResult(code, duration_s, was_interrupted, was_out_of_memory)

    def _start(self, command: str, number: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [_SHELL, "-c", command],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                # With two streams the log would not keep the order of lines.
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise WorkerError(
                f"could not start command {number}: {exc}; check the image and the command",
                EXIT_MACHINE,
            ) from exc

    def _wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the process has ended, stop it on request; return whether it was stopped."""
        stop_requests, terminated_s = self.stop_requests, 0.0
        kill_s: float | None = None
        is_killed = False
        while True:
            timeout = None
            if kill_s is not None and not is_killed:
                timeout = max(0.0, kill_s - stop_requests.clock())
            try:
                event = stop_requests.events.get(timeout=timeout)
            except queue.Empty:
                _signal_group(process, signal.SIGKILL)
                is_killed = True
                continue
            if event is process:
                return kill_s is not None
            if event is None and stop_requests.first is not None:
                if kill_s is None:
                    terminated_s = stop_requests.clock()
                    _signal_group(process, signal.SIGTERM)
                kill_s = kill_time_s(stop_requests.first, terminated_s, self.has_checkpoint)

    def _is_stop_coming(self) -> bool:
        """Return whether the SIGTERM that ended the command reaches the worker too."""
        with suppress(queue.Empty):
            self.stop_requests.events.get(timeout=_SIGNAL_DELAY_S)
        return self.stop_requests.is_stopping()


def _report_end(process: subprocess.Popen[bytes], stop_requests: StopRequests) -> None:
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    stop_requests.events.put(process)


def _signal_group(process: subprocess.Popen[bytes], signum: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)


def _reap_orphans() -> None:
    """Wait for orphaned processes, which become children of the first process of a container."""
    if os.getpid() != 1:
        return
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
