"""The attempts that a runner executes, and their events: the same for processes and containers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from batchyard.batch.jobs import OUT_OF_MEMORY, Outcome
from batchyard.embedded.runner import (
    COMMAND_VARIABLE,
    CommandEnd,
    Ended,
    Event,
    Started,
    Task,
    Withdrawn,
)
from batchyard.embedded.spawner import Output, Spawner

if TYPE_CHECKING:
    # Only runs that last for some time load what takes samples.
    from batchyard.sampling.samples import Samples

#: Exit codes above this are 128 and the number of the signal that ended the process.
_SIGNAL_EXIT_CODE = 128
#: Outcomes by exit code. They are made once, since a run has thousands of them.
_EXITED = tuple(Outcome(code) for code in range(256))


class Attempt:
    """An attempt that runs: its current command, and the results of the earlier ones."""

    __slots__ = (
        "command_began_ms",
        "command_offset",
        "command_samples",
        "is_stopping",
        "max_rss_kib",
        "number",
        "output",
        "samples",
        "started_ms",
        "system_s",
        "task",
        "user_s",
        "was_cut_short",
        "was_out_of_memory",
    )

    def __init__(self, task: Task, output: Output) -> None:
        self.task = task
        self.output = output
        #: None until the attempt runs.
        self.started_ms: int | None = None
        #: Number of the command that runs.
        self.number = -1
        #: When that command began, and the length of the attempt's output then.
        self.command_began_ms = 0
        self.command_offset = 0
        self.is_stopping = False
        self.was_out_of_memory = False
        #: Whether the attempt was stopped before its last command.
        self.was_cut_short = False
        self.user_s = 0.0
        self.system_s = 0.0
        self.max_rss_kib = 0
        #: What was seen of the attempt, and of its command that runs; None before the first look.
        self.samples: Samples | None = None
        self.command_samples: Samples | None = None

    def next_command(self) -> int | None:
        """Return the number of the next command, or None if no command is left."""
        number = self.task.turn.next()
        if number is not None and self.is_stopping:
            self.was_cut_short = True
            return None
        if number is not None:
            self.number = number
        return number

    @property
    def outcome(self) -> Outcome:
        """The outcome of the attempt, from the exit codes of its commands."""
        code = self.task.turn.exit_code
        if self.was_cut_short and code == 0:
            return _EXITED[128 + signal.SIGTERM]
        if self.was_out_of_memory:
            return Outcome(code, reason=OUT_OF_MEMORY)
        return _EXITED[code]


A = TypeVar("A", bound=Attempt)


def wall_clock_ms() -> int:
    return int(time.time() * 1000)


class Attempts(Generic[A]):
    """All attempts that run, and the events that the loop has not taken yet."""

    def __init__(self, spawner: Spawner, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._spawner = spawner
        self._now_ms = now_ms
        self._by_task: dict[Task, A] = {}
        self._events: list[Event] = []

    def output_for(self, task: Task, *, has_pipe: bool = True) -> Output:
        """Return the output of a new attempt; see ``Spawner.open_output``."""
        name = (task.step, task.index_in_step, task.attempt)
        return self._spawner.open_output(name, task.mark, has_pipe=has_pipe)

    def add(self, attempt: A) -> None:
        self._by_task[attempt.task] = attempt

    def find(self, tasks: Iterable[Task]) -> list[A]:
        """Return the attempts of the tasks, without tasks that are over."""
        return [self._by_task[task] for task in tasks if task in self._by_task]

    def list_all(self) -> list[A]:
        """Return all attempts that run."""
        return list(self._by_task.values())

    def record_start(self, attempt: A, at_ms: int | None = None) -> None:
        """Record that the attempt runs. ``at_ms``: when it began; None is now."""
        attempt.started_ms = self._now_ms() if at_ms is None else at_ms
        self._events.append(Started(attempt.task, attempt.started_ms))

    def withdraw(self, attempt: A) -> None:
        """Record that the attempt was not started."""
        del self._by_task[attempt.task]
        self._spawner.discard(attempt.output)
        self._events.append(Withdrawn(attempt.task))

    def begin_command(self, attempt: A) -> int | None:
        """Return the number of the attempt's next command; None if no command is left."""
        number = attempt.next_command()
        if number is not None and attempt.task.has_several_commands:
            attempt.task.environ[COMMAND_VARIABLE] = b"%d" % number
            attempt.command_began_ms = self._now_ms()
            attempt.command_offset = self._spawner.collect(attempt.output)
        return number

    def end_command(
        self,
        attempt: A,
        exit_code: int,
        user_s: float = 0.0,
        system_s: float = 0.0,
        max_rss_kib: int = 0,
    ) -> None:
        """Record the end of the command that ``begin_command`` returned last."""
        task = attempt.task
        task.turn.record_exit(exit_code)
        attempt.user_s += user_s
        attempt.system_s += system_s
        attempt.max_rss_kib = max(attempt.max_rss_kib, max_rss_kib)
        if not task.has_several_commands:
            return
        task.failed_count += exit_code != 0
        samples, attempt.command_samples = attempt.command_samples, None
        task.unrecorded.append(
            CommandEnd(
                attempt.number,
                exit_code,
                attempt.command_began_ms,
                self._now_ms(),
                user_s,
                system_s,
                max_rss_kib,
                attempt.command_offset,
                self._output_end(attempt) - attempt.command_offset,
                samples.summarize() if samples is not None else None,
            )
        )

    def _output_end(self, attempt: A) -> int:
        """Return the length of the output at the end of the command that has just ended."""
        length, boundaries = self._spawner.collect(attempt.output), attempt.output.boundaries
        return boundaries.pop(0) if boundaries else length

    def has_output_end(self, attempt: A) -> bool:
        """Return whether the output of the command that has just ended is complete."""
        self._spawner.collect(attempt.output)
        return bool(attempt.output.boundaries)

    def record_end(self, attempt: A, outcome: Outcome, at_ms: int | None = None) -> None:
        """Record the end of the attempt. ``at_ms``: when it ended; None is now."""
        del self._by_task[attempt.task]
        offset, length = self._spawner.finish(attempt.output)
        if (outcome.exit_code or 0) > _SIGNAL_EXIT_CODE:
            self._spawner.end_leftovers(attempt.output.mark)
        self._events.append(
            Ended(
                attempt.task,
                outcome,
                attempt.started_ms,
                self._now_ms() if at_ms is None else at_ms,
                attempt.user_s,
                attempt.system_s,
                attempt.max_rss_kib,
                offset,
                length,
                attempt.samples.summarize() if attempt.samples is not None else None,
            )
        )

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events
