"""Run a command as a process: start it, wait for it, stop it, and kill what it leaves behind."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from batchyard.quick_dataclasses import dataclass
from batchyard.sampling.samples import SampledUse
from batchyard.worker.command_sampler import CommandSampler
from batchyard.worker.errors import EXIT_MACHINE, WorkerError
from batchyard.worker.memory import count_oom_kills
from batchyard.worker.rules import EXIT_TERMINATED, EXIT_TIMED_OUT
from batchyard.worker.stop_requests import StopRequest, StopRequests, kill_time_s

_SHELL = "/bin/sh"
_EXIT_KILLED = 128 + signal.SIGKILL
#: time between SIGTERM and SIGKILL for a command that reached its time limit
_TIMEOUT_GRACE_S = 30.0
#: how much later than the command the worker can get the same signal
_SIGNAL_DELAY_S = 1.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    exit_code: int
    duration_s: float
    #: whether the command was stopped; its work is then not done, whatever the exit code
    was_interrupted: bool = False
    was_out_of_memory: bool = False
    #: CPU time and peak memory of the command and the processes that it waited for
    user_s: float = 0.0
    system_s: float = 0.0
    max_rss_kib: int = 0
    #: milliseconds since 1970
    started_ms: int = 0
    #: what samples of its processes show; None if it was not sampled
    use: SampledUse | None = None


@dataclass(frozen=True, slots=True)
class Abandonment:
    """An event: the result of this command is of no use, so it is killed."""

    command: int


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs the commands of a child."""

    folder: str
    environ: Mapping[str, str]
    stop_requests: StopRequests
    #: whether a checkpoint is uploaded after a command that was stopped
    has_checkpoint: bool
    count_oom_kills: Callable[[], int] = count_oom_kills
    #: time limit of a command
    timeout_s: float | None = None
    #: takes samples of the command that runs; None: nothing is sampled
    sampler: CommandSampler | None = None

    def run(self, command: str, number: int) -> CommandResult:
        started_s, oom_kills = self.stop_requests.clock(), self.count_oom_kills()
        started_ms = int(time.time() * 1000)
        # An earlier execution of this command may have ended before it was to be killed.
        self.stop_requests.forget_events()
        process = self._start(command, number)
        if self.sampler is not None:
            self.sampler.begin(process.pid)
        threading.Thread(
            target=_report_end, args=(process, self.stop_requests), daemon=True
        ).start()
        wait = _Wait(self, process, number)
        wait.run()
        use = self.sampler.end() if self.sampler is not None else None
        # The signal may also have reached the command, which has ended before this thread read that
        # it came. Its exit code says nothing then: many programs exit 0 on SIGTERM.
        was_interrupted = wait.is_stopped or self.stop_requests.has_signal()
        # The process is a zombie and keeps the id of its group, so no other group gets the signal.
        _signal_group(process, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        code = code if code >= 0 else 128 - code
        if wait.is_timed_out and not was_interrupted:
            code = EXIT_TIMED_OUT
        _reap_orphans()
        if code == EXIT_TERMINATED and not was_interrupted:
            was_interrupted = self._is_stop_coming()
        was_out_of_memory = (
            code == _EXIT_KILLED and not was_interrupted and self.count_oom_kills() > oom_kills
        )
        duration_s = self.stop_requests.clock() - started_s
        return CommandResult(
            code,
            duration_s,
            was_interrupted,
            was_out_of_memory,
            usage.ru_utime,
            usage.ru_stime,
            usage.ru_maxrss,
            started_ms,
            use,
        )

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

    def _is_stop_coming(self) -> bool:
        """Return whether the SIGTERM that ended the command reaches the worker too."""
        with suppress(queue.Empty):
            self.stop_requests.events.get(timeout=_SIGNAL_DELAY_S)
        return self.stop_requests.is_stopping()


class _Wait:
    """Waits for the end of one command, and ends it on request or at its time limit."""

    def __init__(
        self, runner: CommandRunner, process: subprocess.Popen[bytes], number: int
    ) -> None:
        self._process, self._number = process, number
        self._stop_requests = runner.stop_requests
        self._has_checkpoint = runner.has_checkpoint
        #: whether a stop request has ended the command
        self.is_stopped = False
        self.is_timed_out = False
        self._terminated_s = 0.0
        self._kill_s: float | None = None
        self._timeout_s: float | None = None
        if runner.timeout_s is not None:
            self._timeout_s = self._stop_requests.clock() + runner.timeout_s

    def run(self) -> None:
        while True:
            try:
                event = self._stop_requests.events.get(timeout=self._time_to_act_s())
            except queue.Empty:
                self._act()
                continue
            if event is self._process:
                return
            if event == Abandonment(self._number):
                _signal_group(self._process, signal.SIGKILL)
            elif event is None and self._stop_requests.first is not None:
                self._stop(self._stop_requests.first)

    def _time_to_act_s(self) -> float | None:
        times_s = [time_s for time_s in (self._kill_s, self._timeout_s) if time_s is not None]
        if not times_s:
            return None
        return max(0.0, min(times_s) - self._stop_requests.clock())

    def _act(self) -> None:
        now_s = self._stop_requests.clock()
        if self._kill_s is not None and now_s >= self._kill_s:
            _signal_group(self._process, signal.SIGKILL)
            self._kill_s = self._timeout_s = None
        elif self._timeout_s is not None and now_s >= self._timeout_s:
            self.is_timed_out, self._timeout_s = True, None
            _signal_group(self._process, signal.SIGTERM)
            self._kill_s = now_s + _TIMEOUT_GRACE_S

    def _stop(self, request: StopRequest) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            self._terminated_s = self._stop_requests.clock()
            _signal_group(self._process, signal.SIGTERM)
        self._kill_s = kill_time_s(request, self._terminated_s, self._has_checkpoint)


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
