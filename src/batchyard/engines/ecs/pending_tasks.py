"""Attempts that wait for their RunTask, and when it is tried again after the cluster was full."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchyard.aws.ecs import MAX_STARTED_TASKS
from batchyard.embedded.runner import Task
from batchyard.engines.ecs.launches import AttemptKey
from batchyard.engines.ecs.requests import Launch

#: Pauses before a refused RunTask is tried again, in seconds.
_FIRST_DELAY_S, _MAX_DELAY_S, _GROWTH = 1.0, 30.0, 1.5


def key_of(task: Task) -> AttemptKey:
    return task.job_number, task.child, task.attempt


class _WaitingJob:
    """The attempts of one job that wait, and how long they wait after a refusal."""

    def __init__(self) -> None:
        self.tasks: dict[Task, None] = {}
        self.delay_s = 0.0
        self.try_at_s = 0.0


class PendingTasks:
    def __init__(self, is_dynamic: Callable[[int], bool], monotonic: Callable[[], float]) -> None:
        """``is_dynamic``: whether the children of the job of a number are alike."""
        self._is_dynamic = is_dynamic
        self._monotonic = monotonic
        #: By number of the job. Jobs take turns when there is no room for one of them.
        self._jobs: dict[int, _WaitingJob] = {}
        #: Launches of an earlier process whose answers are not known, by token.
        self._earlier: dict[str, tuple[Launch, list[Task]]] = {}

    def add(self, task: Task, earlier: Launch | None = None) -> None:
        """Add an attempt; ``earlier``: the launch that may have started its task already."""
        if earlier is None:
            self._of(task.job_number).tasks[task] = None
        else:
            self._earlier.setdefault(earlier.token, (earlier, []))[1].append(task)

    def list_all(self) -> list[Task]:
        """Return the attempts that surely have no task."""
        return [task for job in self._jobs.values() for task in job.tasks]

    def remove(self, task: Task) -> bool:
        """Remove an attempt; return whether it was waiting, and surely has no task."""
        tasks = self._of(task.job_number).tasks
        if task not in tasks:
            return False
        del tasks[task]
        return True

    def take(self) -> tuple[Sequence[Task], Launch | None]:
        """Remove and return the attempts of the next RunTask, and the launch that it repeats.

        Several attempts only of children that are alike. None at all if all of them must wait.
        """
        if self._earlier:
            launch, tasks = self._earlier.pop(next(iter(self._earlier)))
            return tasks, launch
        now_s = self._monotonic()
        for number, job in self._jobs.items():
            if job.tasks and job.try_at_s <= now_s:
                first = next(iter(job.tasks))
                most = MAX_STARTED_TASKS if self._is_dynamic(number) else 1
                alike = [task for task in job.tasks if task.attempt == first.attempt][:most]
                for task in alike:
                    del job.tasks[task]
                return alike, None
        return (), None

    def next_delay_s(self) -> float | None:
        """Return the seconds until the next attempt may be taken; None if none waits."""
        times = [job.try_at_s for job in self._jobs.values() if job.tasks]
        return max(0.0, min(times) - self._monotonic()) if times else None

    def put_back(self, tasks: Sequence[Task]) -> bool:
        """Let refused attempts of one job wait, longer each time; return whether they are first."""
        job = self._of(tasks[0].job_number)
        job.tasks = {**dict.fromkeys(tasks), **job.tasks}
        is_first = not job.delay_s
        job.delay_s = min(_MAX_DELAY_S, job.delay_s * _GROWTH) if job.delay_s else _FIRST_DELAY_S
        job.try_at_s = self._monotonic() + job.delay_s
        return is_first

    def reset_delay(self, number: int) -> None:
        """Try the other attempts of a job at once: one of them was accepted."""
        job = self._of(number)
        job.delay_s = job.try_at_s = 0.0

    def try_again(self) -> None:
        """Try refused attempts soon: a task of the run has ended, and has left room."""
        soon_s = self._monotonic() + _FIRST_DELAY_S
        for job in self._jobs.values():
            job.try_at_s = min(job.try_at_s, soon_s)

    def _of(self, number: int) -> _WaitingJob:
        return self._jobs.setdefault(number, _WaitingJob())
