"""Children as processes of this machine: the runner that needs no set-up."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from batchyard.batch.jobs import OUT_OF_MEMORY, Outcome, StatusReason
from batchyard.engines.local import proc, shell
from batchyard.engines.local.runner import Ended, Started, Task
from batchyard.engines.local.spawner import Exit, Output, Process, Spawner

_KILLED = 128 + signal.SIGKILL
#: made once: a run has thousands of these
_EXITED = tuple(Outcome(code) for code in range(256))


class _Attempt:
    """One attempt under way: the command that runs, and what those before it came to."""

    __slots__ = (
        "is_stopping",
        "max_rss_kib",
        "number",
        "output",
        "process",
        "started_ms",
        "system_s",
        "task",
        "user_s",
        "was_out_of_memory",
    )

    def __init__(self, task: Task, output: Output, started_ms: int) -> None:
        self.task = task
        self.output = output
        self.started_ms = started_ms
        self.process: Process | None = None
        #: the command that runs
        self.number = -1
        self.is_stopping = False
        self.was_out_of_memory = False
        self.user_s = 0.0
        self.system_s = 0.0
        self.max_rss_kib = 0


class ProcessRunner:
    name = "process"

    def __init__(self, spawner: Spawner, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._spawner = spawner
        self._now_ms = now_ms
        self._attempts: dict[Task, _Attempt] = {}
        self._events: list[Started | Ended] = []
        self._oom_kills = _oom_kill_count()

    def start(self, task: Task) -> None:
        output = self._spawner.open_output((task.step, task.index_in_step, task.attempt), task.mark)
        attempt = _Attempt(task, output, self._now_ms())
        self._attempts[task] = attempt
        self._events.append(Started(task, attempt.started_ms))
        self._run_next(attempt)

    def wait(self, timeout_s: float) -> list[Started | Ended]:
        for exit in self._spawner.wait(0 if self._events else timeout_s):
            self._command_ended(exit)
        events, self._events = self._events, []
        return events

    def signal(self, tasks: Iterable[Task], signum: int) -> None:
        attempts = [self._attempts[task] for task in tasks if task in self._attempts]
        for attempt in attempts:
            attempt.is_stopping = True
        self._spawner.signal([a.process for a in attempts if a.process is not None], signum)

    def tick(self) -> None:
        self._spawner.tick()

    def end_leftovers(self, token: str) -> int:
        leftovers = proc.with_token(token)
        proc.kill_all(leftovers)
        return len(leftovers)

    def close(self) -> None:
        self._spawner.close()

    def _run_next(self, attempt: _Attempt) -> None:
        task = attempt.task
        number = None if attempt.is_stopping else task.turn.next()
        if number is None:
            self._end(attempt, self._outcome(attempt))
            return
        attempt.number = number
        command = task.command(number)
        path = task.environ.get(b"PATH")
        program, argv = shell.program_of(command, path.decode() if path else None)
        try:
            try:
                attempt.process = self._spawner.spawn(program, argv, task.environ, attempt.output, attempt)
            except OSError:
                # Gone since it was looked up, no "#!" line, not permitted: the shell knows how to say it.
                program, argv = shell.through_shell(command)
                attempt.process = self._spawner.spawn(program, argv, task.environ, attempt.output, attempt)
        except (OSError, ValueError) as exc:
            reason = f"CannotStartContainerError: {exc}"[:255]
            self._end(attempt, Outcome(None, StatusReason.NOT_STARTED, reason))

    def _command_ended(self, exit: Exit) -> None:
        attempt = exit.process.owner
        assert isinstance(attempt, _Attempt)
        attempt.user_s += exit.user_s
        attempt.system_s += exit.system_s
        attempt.max_rss_kib = max(attempt.max_rss_kib, exit.max_rss_kib)
        attempt.process = None
        attempt.task.turn.ended(exit.exit_code)
        if exit.exit_code == 0:
            attempt.task.unrecorded.append(attempt.number)
        elif exit.exit_code == _KILLED and not attempt.is_stopping:
            attempt.was_out_of_memory |= self._memory_ran_out()
        self._run_next(attempt)

    def _outcome(self, attempt: _Attempt) -> Outcome:
        code = attempt.task.turn.exit_code
        if attempt.was_out_of_memory:
            return Outcome(code, reason=OUT_OF_MEMORY)
        return _EXITED[code]

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        del self._attempts[attempt.task]
        offset, length = self._spawner.finish(attempt.output)
        self._events.append(
            Ended(
                attempt.task,
                outcome,
                attempt.started_ms,
                self._now_ms(),
                attempt.user_s,
                attempt.system_s,
                attempt.max_rss_kib,
                offset,
                length,
            )
        )

    def _memory_ran_out(self) -> bool:
        """Whether the kernel has killed something for memory since we last looked."""
        before, self._oom_kills = self._oom_kills, _oom_kill_count()
        return self._oom_kills > before


def _oom_kill_count() -> int:
    with open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
