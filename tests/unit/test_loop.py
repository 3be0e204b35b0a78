"""Promises of the embedded loop, with a runner that starts nothing and a clock that stands still.

While the clock stands still there is one tick, at the beginning: nothing is committed because time
has passed, and no grace period ends.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock

import pytest

from batchyard.batch.changes import Start
from batchyard.batch.jobs import (
    Dependency,
    DependencyType,
    Job,
    JobState,
    Outcome,
    Resources,
)
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.loop import Loop
from batchyard.embedded.runner import Ended, Event, Started, Task, Withdrawn
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.errors import OperationalError
from batchyard.folder import RunFolder
from batchyard.shard import Turn

_MAX_WAITS = 50


class Nobody:
    def on_tick(self, changed: list[JobRow]) -> None: ...

    def on_failure(self, task: Task, row: AttemptRow) -> None: ...


class Tasks:
    """Makes the tasks of one job."""

    def __init__(self, row: JobRow) -> None:
        self.done: set[int] = set()
        self._row = row

    def task(self, start: Start, slot: int) -> Task:
        return Task(
            job_number=self._row.number,
            job_id=start.job_id,
            step=self._row.step,
            child=start.child,
            index_in_step=start.child,
            attempt=start.attempt,
            turn=Turn(range(1)),
            command=lambda number: "",
            environ={},
            engine_variables=(),
            resources=Resources(1, 1),
        )


class ScriptedRunner:
    """Calls ``on_start`` for each attempt, and ``on_wait`` with the number of each wait."""

    name = "scripted"

    def __init__(self) -> None:
        self.lock = Lock()
        self.on_start: Callable[[Task], None] = lambda task: None
        self.on_wait: Callable[[int], None] = lambda number: None
        self.turn: Callable[[], None] = lambda: None
        self.signals: list[int] = []
        #: Those of the attempt that started last.
        self.followers: tuple[Task, ...] = ()
        self._events: list[Event] = []
        self._waits = 0

    def end(self, task: Task, exit_code: int = 0) -> None:
        self._events.append(Ended(task, Outcome(exit_code), 0, 0, 0.0, 0.0, 0, None, None))

    def start(self, task: Task, *followers: Task) -> None:
        self.followers = followers
        self._events.append(Started(task, 0))
        self.on_start(task)

    def signal(self, tasks: Iterable[Task], signum: int) -> None:
        for task in tasks:
            self.signals.append(signum)
            if task in self.followers:
                self._events.append(Withdrawn(task))
            elif signum == signal.SIGKILL:
                self.end(task, 128 + signum)

    def wait(self, timeout_s: float) -> None:
        self._waits += 1
        assert self._waits < _MAX_WAITS, f"the run does not end; signals: {self.signals}"
        self.on_wait(self._waits)

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def listen(self, turn: Callable[[], None]) -> None:
        self.turn = turn

    def wake(self) -> None: ...

    def tick(self) -> None: ...

    def end_leftovers(self, token: str) -> int:
        return 0

    def close(self) -> None: ...


def make_loop(
    folder: RunFolder, runner: ScriptedRunner, *jobs: Job, starts_series: bool = False
) -> Loop:
    store = Store.open(folder.database, create=True)
    scheduler = Scheduler(
        [Queue("queue", ("here",))], [ComputeEnvironment("here", Resources(100, 100))]
    )
    loop = Loop(
        scheduler,
        runner,
        store,
        LogBook(folder),
        Nobody(),
        starts_series=starts_series,
        clock=lambda: 1000.0,
        monotonic=lambda: 1000.0,
    )
    rows = [
        JobRow(number, job.id, job.name, job.array_size or 1, "PENDING", "", (0,) * 7, 0, 0)
        for number, job in enumerate(jobs)
    ]
    store.commit(new_jobs=rows)
    for job, row in zip(jobs, rows, strict=True):
        scheduler.submit(job)
        loop.add(job, Tasks(row), row)
    return loop


@pytest.mark.parametrize("kind", [DependencyType.WHOLE, DependencyType.N_TO_N])
def test_a_success_is_on_disk_before_what_depends_on_it_starts(
    kind: DependencyType, tmp_path: Path
) -> None:
    first = Job("first-id", "first", "queue", Resources(1, 1), array_size=3)
    second = Job(
        "second-id",
        "second",
        "queue",
        Resources(1, 1),
        array_size=3,
        depends_on=(Dependency("first-id", kind),),
    )
    runner = ScriptedRunner()
    folder = RunFolder(tmp_path)
    recorded_at_start: list[set[int]] = []

    def start(task: Task) -> None:
        if task.step == "second":
            # Another connection sees only what is committed.
            other = Store.open(folder.database)
            succeeded = other.attempts(0, state=JobState.SUCCEEDED)
            children = {attempt.child for attempt in succeeded}
            other.close()
            needed = {task.child} if kind is DependencyType.N_TO_N else {0, 1, 2}
            assert needed <= children, f"child {task.child} has started, on disk are {children}"
            recorded_at_start.append(children)
        runner.end(task)

    runner.on_start = start
    make_loop(folder, runner, first, second).run()
    assert len(recorded_at_start) == 3


def test_the_first_interrupt_asks_and_the_second_kills_at_once(tmp_path: Path) -> None:
    # The children ignore SIGTERM, and the grace period never ends.
    job = Job("id", "work", "queue", Resources(1, 1), array_size=2)
    runner = ScriptedRunner()
    loop = make_loop(RunFolder(tmp_path), runner, job)
    signals_before_second: list[int] = []

    def wait(number: int) -> None:
        if number == 5:
            loop.interrupt()
        if number == 20:
            signals_before_second.extend(runner.signals)
            loop.interrupt()

    runner.on_wait = wait
    loop.run()
    assert signals_before_second == [signal.SIGTERM] * 2
    assert runner.signals[-2:] == [signal.SIGKILL] * 2
    assert loop.was_stopped
    assert loop.row("id").state == JobState.FAILED


def test_no_turn_is_taken_after_one_that_failed(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    started: list[Task] = []

    def start(task: Task) -> None:
        started.append(task)
        if len(started) == 2:
            raise OperationalError("the disk is full")

    def wait(number: int) -> None:
        # Two children end, in other threads than that of the loop.
        for _ in range(2):
            runner.end(started[-1])
            runner.turn()

    runner.on_start, runner.on_wait = start, wait
    # One child at a time.
    job = Job("id", "work", "queue", Resources(100, 100), array_size=4)
    with pytest.raises(OperationalError, match="the disk is full"):
        make_loop(RunFolder(tmp_path), runner, job).run()
    assert len(started) == 2


def test_followers_that_have_not_started_wait(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    # One child at a time. The first is short, and the second has a follower.
    job = Job("id", "work", "queue", Resources(100, 100), array_size=100)
    loop = make_loop(RunFolder(tmp_path), runner, job, starts_series=True)
    recorded: list[dict[JobState, int]] = []

    def start(task: Task) -> None:
        if not runner.followers:
            runner.end(task)

    def wait(number: int) -> None:
        loop.commit()
        recorded.append(dict(zip(JobState, loop.row("id").counts, strict=True)))

    runner.on_start, runner.on_wait = start, wait
    loop.run(is_over=lambda: bool(recorded))
    assert [follower.child for follower in runner.followers] == [2]
    counts = {state: count for state, count in recorded[0].items() if count}
    assert counts == {JobState.RUNNABLE: 98, JobState.RUNNING: 1, JobState.SUCCEEDED: 1}


def test_a_follower_whose_host_is_lost_waits_again(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    job = Job("id", "work", "queue", Resources(100, 100), array_size=100)
    loop = make_loop(RunFolder(tmp_path), runner, job, starts_series=True)
    lost: list[int] = []

    def start(task: Task) -> None:
        if not runner.followers or lost:
            runner.end(task)

    def wait(number: int) -> None:
        running = loop.running_tasks()
        assert [task.child for task in running] == [1] and loop.find_running_task("id", 2) is None
        for child in (1, 2):
            lost.append(child)
            assert loop.lose("id", child, "Host EC2 (instance i-1) terminated.")

    runner.on_start, runner.on_wait = start, wait
    loop.run(is_over=lambda: loop.row("id").attempts >= 4 or len(lost) > 2)
    loop.commit()
    rows = Store.open(RunFolder(tmp_path).database).attempts(0)
    reasons = {row.child: row.status_reason for row in rows if row.state == JobState.FAILED}
    assert reasons == {1: "Host EC2 (instance i-1) terminated."}
