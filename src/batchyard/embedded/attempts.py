"""The attempts a runner has under way, and what there is to tell of them: the same for processes and containers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from batchyard.batch.jobs import OUT_OF_MEMORY, Outcome
from batchyard.embedded.runner import Ended, Started, Task
from batchyard.embedded.spawner import Output, Spawner

#: made once: a run has thousands of these
_EXITED = tuple(Outcome(code) for code in range(256))


class Attempt:
    """One attempt under way: the command that runs, and what those before it came to."""

    __slots__ = (
        "is_stopping",
        "max_rss_kib",
        "number",
        "output",
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
        #: None until it runs
        self.started_ms: int | None = None
        #: the command that runs
        self.number = -1
        self.is_stopping = False
        self.was_out_of_memory = False
        #: stopped with commands left to run
        self.was_cut_short = False
        self.user_s = 0.0
        self.system_s = 0.0
        self.max_rss_kib = 0

    def next_command(self) -> int | None:
        """The number of the command to run now, or None when there is nothing left to do."""
        number = self.task.turn.next()
        if number is not None and self.is_stopping:
            self.was_cut_short = True
            return None
        if number is not None:
            self.number = number
        return number

    def command_ended(self, exit_code: int) -> None:
        self.task.turn.record_exit(exit_code)
        if exit_code == 0:
            self.task.unrecorded.append(self.number)

    @property
    def outcome(self) -> Outcome:
        """What its commands have come to."""
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
    def __init__(self, spawner: Spawner, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._spawner = spawner
        self._now_ms = now_ms
        self._by_task: dict[Task, A] = {}
        self._events: list[Started | Ended] = []

    def output_for(self, task: Task) -> Output:
        return self._spawner.open_output((task.step, task.index_in_step, task.attempt), task.mark)

    def add(self, attempt: A) -> None:
        self._by_task[attempt.task] = attempt

    def of(self, tasks: Iterable[Task]) -> list[A]:
        """Those of the tasks that are not over."""
        return [self._by_task[task] for task in tasks if task in self._by_task]

    def all(self) -> list[A]:
        """Those that are under way."""
        return list(self._by_task.values())

    def began(self, attempt: A) -> None:
        attempt.started_ms = self._now_ms()
        self._events.append(Started(attempt.task, attempt.started_ms))

    def ended(self, attempt: A, outcome: Outcome) -> None:
        del self._by_task[attempt.task]
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

    @property
    def has_news(self) -> bool:
        return bool(self._events)

    def take_news(self) -> list[Started | Ended]:
        events, self._events = self._events, []
        return events
