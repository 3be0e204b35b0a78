"""The runner that starts children as processes of this machine."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING

from batchyard.batch.jobs import Outcome, StatusReason
from batchyard.batch.limits import MAX_CONTAINER_REASON_CHARS
from batchyard.embedded import proc, shell, short_programs
from batchyard.embedded.attempts import Attempt, Attempts, wall_clock_ms
from batchyard.embedded.memory_use import MemoryUse
from batchyard.embedded.posix_spawn import Environ
from batchyard.embedded.runner import Event, Task
from batchyard.embedded.short_runs import REPORT_AFTER_MS
from batchyard.embedded.slots import Launch, Slots
from batchyard.embedded.spawner import Exit, Output, Process, Spawner
from batchyard.errors import from_os_error

if TYPE_CHECKING:
    from batchyard.embedded.sampled_attempts import RunningAttempt

_KILLED = 128 + signal.SIGKILL
_CANNOT_EXECUTE = 126
#: The memory in use is read twice a second.
_TICKS_PER_MEMORY_LOOK = 5
_MACHINE_IS_FULL = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class _ProcessAttempt(Attempt):
    __slots__ = ("anonymous_kib", "launch", "looks", "signal")

    def __init__(self, task: Task, output: Output) -> None:
        super().__init__(task, output)
        #: The launch of the command that runs or starts next.
        self.launch: Launch | None = None
        #: How often the memory of running attempts was looked at since this one began.
        self.looks = 0
        #: Largest memory without files that was seen; None for an attempt that nobody looked at.
        self.anonymous_kib: int | None = None
        #: The signal to send as soon as there is a process.
        self.signal: int | None = None

    @property
    def process(self) -> Process | None:
        """The process that runs; None while there is none."""
        return None if self.launch is None else self.launch.process


class ProcessRunner:
    """See ``runner.Runner``."""

    name = "process"

    def __init__(
        self,
        spawner: Spawner,
        now_ms: Callable[[], int] = wall_clock_ms,
        *,
        enforces_memory: bool = False,
        memory_use: MemoryUse | None = None,
        report_after_ms: int = REPORT_AFTER_MS,
    ) -> None:
        """``enforces_memory``: kill an attempt that uses more memory than it requested.

        ``memory_use``: gets the peaks of attempts that succeed. ``report_after_ms``: see ``Slots``.
        """
        self._spawner = spawner
        self._enforces_memory = enforces_memory
        self._memory_use = memory_use
        self._ticks = 0
        self.lock = spawner.lock
        self._slots = Slots(spawner, self, now_ms, report_after_ms=report_after_ms)
        self._attempts: Attempts[_ProcessAttempt] = Attempts(spawner, now_ms)
        self._oom_kills = _oom_kill_count()

    def start(self, task: Task, *followers: Task) -> None:
        attempt = self._add_attempt(task)
        self._attempts.record_start(attempt)
        launches = [self._prepare_next(attempt)]
        for follower in followers:
            launches.append(self._prepare_next(self._add_attempt(follower)))
        self._launch(launches)

    def _add_attempt(self, task: Task) -> _ProcessAttempt:
        # The commands of an attempt share a pipe. A single one opens its own when it starts.
        output = self._attempts.output_for(task, has_pipe=task.has_several_commands)
        attempt = _ProcessAttempt(task, output)
        self._attempts.add(attempt)
        return attempt

    def _launch(self, launches: Iterable[Launch | None]) -> None:
        present = [launch for launch in launches if launch is not None]
        if present:
            self._slots.launch(*present)

    def listen(self, turn: Callable[[], None]) -> None:
        self._slots.listen(turn)

    def wake(self) -> None:
        self._spawner.wake()

    def wait(self, timeout_s: float) -> None:
        timeout_s = 0 if self._attempts.has_events else timeout_s
        # Threads wait for the attempts themselves.
        short_programs.handle_ends(self._spawner.wait(timeout_s))
        self._slots.report_late()
        if self._slots.failure is not None:
            raise self._slots.failure

    def take_events(self) -> list[Event]:
        return self._attempts.take_events()

    def signal(self, tasks: Iterable[Task], signum: int) -> None:
        attempts = self._attempts.find(tasks)
        processes = []
        for attempt in attempts:
            attempt.is_stopping = True
            if attempt.launch is not None:
                attempt.launch.cancel()
            if attempt.process is None:
                attempt.signal = signum
            else:
                processes.append(attempt.process)
        self._spawner.signal(processes, signum)

    def probe(
        self, task: Task, command: tuple[str, ...], on_end: Callable[[int], None]
    ) -> Callable[[], None]:
        """Run a command with the environment of a running attempt; see ``runner.Prober``."""
        program, argv = _programs(command, task.environ)[0]
        try:
            process = short_programs.start(
                self._spawner,
                program,
                argv,
                task.environ,
                lambda exit_code, output: on_end(exit_code),
                keeps_output=False,
            )
        except OSError:
            _forget_programs()
            raise
        return partial(self._spawner.signal, [process], signal.SIGKILL)

    def tick(self) -> None:
        self._spawner.tick()
        self._ticks += 1
        if self._ticks % _TICKS_PER_MEMORY_LOOK:
            return
        lasting = self._list_lasting()
        if lasting and self._enforces_memory:
            self._kill_over_limit(lasting)
        if lasting and self._memory_use is not None:
            self._look_at_memory(lasting)

    def list_running(self) -> list[RunningAttempt]:
        """See ``sampled_attempts.SampledRunner``."""
        from batchyard.embedded.sampled_attempts import RunningAttempt

        attempts = [(attempt, attempt.process) for attempt in self._attempts.list_all()]
        return [
            RunningAttempt(attempt, process.pid)
            for attempt, process in attempts
            if process is not None
        ]

    def end_leftovers(self, token: str) -> int:
        return proc.end_by_token(token)

    def close(self) -> None:
        self._slots.close()
        self._spawner.close()

    def _prepare_next(self, attempt: _ProcessAttempt, ended_ms: int | None = None) -> Launch | None:
        """Return the process of the attempt's next command; None after the last one.

        ``ended_ms``: when the command before it ended; None is now.
        """
        number = self._attempts.begin_command(attempt)
        if number is None:
            self._end(attempt, ended_ms)
            return None
        task = attempt.task
        programs = _programs(task.command(number), task.environ)
        launch = Launch(programs, task.environ, attempt.output, attempt)
        attempt.launch = launch
        return launch

    def _end(self, attempt: _ProcessAttempt, ended_ms: int | None) -> None:
        """Record the end of an attempt after its last command."""
        outcome = attempt.outcome
        if self._memory_use is not None and outcome.exit_code == 0:
            self._memory_use.add(attempt.task, attempt.max_rss_kib, attempt.anonymous_kib)
        self._attempts.record_end(attempt, outcome, ended_ms)

    # -- called by the slots: see LaunchEvents -------------------------------------------------

    def on_late_start(self, launch: Launch) -> None:
        attempt = _owner_of(launch)
        with self.lock:
            # None if `signal` has seen the process and sent it. A second one would end many
            # programs at once.
            if attempt.signal is not None and launch.process is not None:
                self._spawner.signal([launch.process], attempt.signal)
                attempt.signal = None

    def on_start(self, launch: Launch) -> None:
        attempt = _owner_of(launch)
        if attempt.started_ms is None:
            self._attempts.record_start(attempt, launch.started_ms)

    def on_withdrawal(self, launch: Launch) -> None:
        attempt = _owner_of(launch)
        attempt.launch = None
        self._attempts.withdraw(attempt)

    def on_end(self, launch: Launch, exit: Exit | None, ended_ms: int) -> None:
        attempt = _owner_of(launch)
        if exit is None:
            assert launch.error is not None
            self._handle_start_error(attempt, launch.error)
            return
        if attempt.started_ms is None:
            attempt.started_ms = launch.started_ms
        # A start that was reported before it had begun has the time of the report.
        ended_ms = max(ended_ms, attempt.started_ms or 0)
        attempt.launch = None
        self._attempts.end_command(
            attempt, exit.exit_code, exit.user_s, exit.system_s, exit.max_rss_kib
        )
        if exit.exit_code == _KILLED and not attempt.is_stopping:
            attempt.was_out_of_memory |= self._memory_ran_out()
        if attempt.task.has_several_commands:
            self._launch([self._prepare_next(attempt, ended_ms)])
        else:
            self._end(attempt, ended_ms)

    def _handle_start_error(self, attempt: _ProcessAttempt, exc: OSError | ValueError) -> None:
        attempt.launch = None
        if isinstance(exc, OSError) and exc.errno in _MACHINE_IS_FULL:
            # Every child would fail, so the run ends here and can be resumed.
            raise from_os_error(exc, "start a process") from exc
        _forget_programs()
        if attempt.task.has_several_commands:
            # A command that cannot be started fails like in a shell; the next one runs.
            self._spawner.append_note(attempt.output, f"batchyard: cannot start: {exc}\n".encode())
            self._attempts.end_command(attempt, _CANNOT_EXECUTE)
            self._launch([self._prepare_next(attempt)])
            return
        attempt.started_ms = None
        reason = f"CannotStartContainerError: {exc}"[:MAX_CONTAINER_REASON_CHARS]
        self._attempts.record_end(attempt, Outcome(None, StatusReason.NOT_STARTED, reason))

    def _list_lasting(self) -> list[tuple[_ProcessAttempt, Process]]:
        """Return attempts that have run for half a second or longer. Short ones are not slowed."""
        lasting = []
        for attempt in self._attempts.list_all():
            attempt.looks += 1
            if attempt.looks > 1 and attempt.process is not None:
                lasting.append((attempt, attempt.process))
        return lasting

    def _kill_over_limit(self, lasting: Sequence[tuple[_ProcessAttempt, Process]]) -> None:
        used = proc.memory_mib([process.pid for _, process in lasting])
        for attempt, process in lasting:
            if used.get(process.pid, 0) > attempt.task.resources.memory_mib:
                attempt.was_out_of_memory = True
                self._spawner.signal([process], signal.SIGKILL)

    def _look_at_memory(self, lasting: Sequence[tuple[_ProcessAttempt, Process]]) -> None:
        used_kib = proc.anonymous_kib([process.pid for _, process in lasting])
        for attempt, process in lasting:
            attempt.anonymous_kib = max(attempt.anonymous_kib or 0, used_kib[process.pid])

    def _memory_ran_out(self) -> bool:
        """Return whether the kernel has killed a process for memory since the last call."""
        last_count, self._oom_kills = self._oom_kills, _oom_kill_count()
        return self._oom_kills > last_count


def _owner_of(launch: Launch) -> _ProcessAttempt:
    assert isinstance(launch.owner, _ProcessAttempt)
    return launch.owner


def _programs(
    command: str | tuple[str, ...], environ: Mapping[bytes, bytes]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (program, arguments) to execute, and a second pair to try if the first fails."""
    path = environ.path if isinstance(environ, Environ) else environ.get(b"PATH")
    return _find_programs(command, _decode_path(path))


@lru_cache(maxsize=64)
def _find_programs(
    command: str | tuple[str, ...], path: str | None
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return what ``_programs`` does. The children of an array often have the same command."""
    if not isinstance(command, str):
        return ((shell.which(command[0], path) or command[0], command),)
    direct, through_shell = shell.program_of(command, path), shell.through_shell(command)
    # A program that is gone, forbidden or without a "#!" line: the shell prints why.
    return (direct,) if direct == through_shell else (direct, through_shell)


def _forget_programs() -> None:
    """Look for programs again: one that was missing may have been installed since."""
    _find_programs.cache_clear()
    shell.which.cache_clear()


@cache
def _decode_path(variable: bytes | None) -> str | None:
    return os.fsdecode(variable) if variable else None


def _oom_kill_count() -> int:
    with open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
