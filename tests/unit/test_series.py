"""Series: short children of one job that start one after the other, without a turn between them."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from batchyard.batch.changes import JobSettled, Settled, Start, Stop
from batchyard.batch.jobs import Job, JobState, Outcome, Resources, RetryStrategy
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.runner import Ended, Event, Started, Task, Withdrawn
from batchyard.embedded.slots import Launch, Slots
from batchyard.embedded.spawner import Exit, Spawner
from batchyard.folder import RunFolder
from batchyard.shard import Turn

SIZE = 200
NOW_MS = 1_000_000


def make_scheduler(vcpus: int = 1, size: int = SIZE, *, fail_fast: bool = False) -> Scheduler:
    scheduler = Scheduler(
        [Queue("queue", ("here",))],
        [ComputeEnvironment("here", Resources(vcpus, 100))],
        {"slots": vcpus},
        fail_fast=fail_fast,
    )
    scheduler.submit(
        Job("a", "a", "queue", Resources(1, 1), array_size=size, consumables=(("slots", 1),))
    )
    scheduler.allow_series("a", 4)
    return scheduler


def children_of(starts: list[Start]) -> list[tuple[int, bool]]:
    return [(start.child, start.is_follower) for start in starts]


def test_followers_share_the_room_of_the_first_child() -> None:
    scheduler = make_scheduler()
    assert children_of(scheduler.place()) == [(0, False), (1, True), (2, True), (3, True)]
    assert (scheduler.free("here").vcpus, scheduler.free_consumable("slots")) == (0, 0)
    for child in range(4):
        assert scheduler.place() == []
        scheduler.attempt_started("a", child, 0)
        scheduler.attempt_ended("a", child, Outcome(0))
    assert (scheduler.free("here").vcpus, scheduler.free_consumable("slots")) == (1, 1)
    assert children_of(scheduler.place())[0] == (4, False)


def test_each_room_has_its_own_series() -> None:
    starts = make_scheduler(vcpus=2).place()
    assert children_of(starts) == [(child, child % 4 > 0) for child in range(8)]


def test_the_end_of_a_list_has_no_series() -> None:
    """Children would wait in one slot while another one is free."""
    assert children_of(make_scheduler(size=10).place()) == [(0, False)]


def test_withdrawn_followers_are_next_and_have_no_attempt() -> None:
    scheduler = make_scheduler()
    scheduler.place()
    for child in (3, 2, 1):
        assert scheduler.withdraw("a", child) == []
    scheduler.attempt_ended("a", 0, Outcome(0))
    starts = scheduler.place()
    assert [(start.child, start.attempt) for start in starts] == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert scheduler.free("here").vcpus == 0


def test_a_stopped_follower_fails_without_an_attempt() -> None:
    scheduler = make_scheduler()
    scheduler.place()
    scheduler.terminate("a", "stopped")
    changes = [change for child in (3, 2, 1) for change in scheduler.withdraw("a", child)]
    assert changes == [Settled("a", n, 0, JobState.FAILED, "stopped") for n in (3, 2, 1)]
    last = scheduler.attempt_ended("a", 0, Outcome(143))
    assert isinstance(last[-1], JobSettled) and scheduler.is_over
    assert (scheduler.free("here").vcpus, scheduler.free_consumable("slots")) == (1, 1)


def test_a_cancelled_follower_does_not_start() -> None:
    """To clients it is RUNNABLE, and what is RUNNABLE can be cancelled."""
    scheduler = make_scheduler()
    scheduler.place()
    scheduler.attempt_started("a", 0, 0)
    assert scheduler.cancel("a", "cancelled", 2) == [Stop("a", 2)]
    assert scheduler.withdraw("a", 3) == []
    assert scheduler.withdraw("a", 2) == [Settled("a", 2, 0, JobState.FAILED, "cancelled")]
    scheduler.cancel("a", "all cancelled")
    assert scheduler.withdraw("a", 1) == [Settled("a", 1, 0, JobState.FAILED, "all cancelled")]
    # The child that runs goes on.
    assert scheduler.attempt_ended("a", 0, Outcome(0))[0].state is JobState.SUCCEEDED
    assert scheduler.is_over


def test_a_follower_of_a_held_job_does_not_start_again() -> None:
    scheduler = make_scheduler()
    scheduler.place()
    scheduler.hold("a", "held")
    changes = [change for child in (3, 2, 1) for change in scheduler.withdraw("a", child)]
    assert changes == [Settled("a", n, 0, JobState.FAILED, "held") for n in (3, 2, 1)]
    scheduler.attempt_ended("a", 0, Outcome(0))
    assert scheduler.place() == [] and scheduler.is_over


def test_a_retry_goes_before_withdrawn_followers() -> None:
    scheduler = Scheduler(
        [Queue("queue", ("here",))], [ComputeEnvironment("here", Resources(1, 100))]
    )
    scheduler.submit(
        Job("a", "a", "queue", Resources(1, 1), array_size=SIZE, retry=RetryStrategy(2))
    )
    scheduler.allow_series("a", 2)
    scheduler.place()
    scheduler.withdraw("a", 1)
    scheduler.attempt_ended("a", 0, Outcome(1))
    assert [(start.child, start.attempt) for start in scheduler.place()] == [(0, 2)]


def test_a_follower_that_has_not_started_waits_in_the_eyes_of_others() -> None:
    scheduler = make_scheduler()
    scheduler.place()
    scheduler.attempt_started("a", 0, 0)
    assert scheduler.placed_children() == [("a", 0)]
    states = [scheduler.child_state("a", child) for child in range(2)]
    assert states == [JobState.RUNNING, JobState.RUNNABLE]
    counts = dict(zip(JobState, scheduler.summary("a").counts, strict=True))
    assert (counts[JobState.RUNNABLE], counts[JobState.STARTING]) == (SIZE - 1, 0)
    scheduler.attempt_ended("a", 0, Outcome(0))
    scheduler.attempt_started("a", 1, 0)
    assert scheduler.child_state("a", 1) is JobState.RUNNING
    assert scheduler.placed_children() == [("a", 1)]


def test_children_that_use_up_a_resource_have_no_followers() -> None:
    scheduler = make_scheduler()
    scheduler.change_consumable("slots", 2, is_replenishable=False)
    assert children_of(scheduler.place()) == [(0, False)]
    assert scheduler.free_consumable("slots") == 2


# -- with processes --


def make_task(number: int, command: str) -> Task:
    mark = b"series%d.%d." % (os.getpid(), number)
    return Task(
        job_number=0,
        job_id="id",
        step="work",
        child=number,
        index_in_step=number,
        attempt=1,
        turn=Turn(range(1)),
        command=lambda _: command,
        environ={b"PATH": os.environb[b"PATH"], b"BATCHYARD_TOKEN": mark},
        engine_variables=(),
        resources=Resources(1, 64),
        mark=mark,
    )


def run_series(folder: Path, *commands: str, stop: int | None = None) -> list[tuple[str, int]]:
    """Return the events as (name, child), after all commands have ended or were withdrawn."""
    events = list_events(folder, *commands, stop=stop)
    return [(type(event).__name__, event.task.child) for event in events]


def list_events(folder: Path, *commands: str, stop: int | None = None) -> list[Event]:
    """Return the events, after all commands have ended or were withdrawn.

    ``stop``: a signal for all attempts, as soon as the first process has written the file `ready`.
    """
    runner = ProcessRunner(Spawner(LogBook(RunFolder(folder))))
    tasks = [make_task(number, command) for number, command in enumerate(commands)]
    events: list[Event] = []
    deadline = time.monotonic() + 60
    try:
        with runner.lock:
            runner.start(*tasks)
            while sum(not isinstance(event, Started) for event in events) < len(tasks):
                assert time.monotonic() < deadline, events
                runner.wait(0.01)
                events += runner.take_events()
                if stop is not None and (folder / "ready").exists():
                    runner.signal(tasks, stop)
                    stop = None
    finally:
        runner.close()
    for event in events:
        if isinstance(event, Ended):
            assert event.started_ms is not None and event.started_ms <= event.ended_ms
    return events


def test_a_process_has_begun_before_it_does_anything(tmp_path: Path) -> None:
    """Also a follower that is found to be no short process only later."""
    own_time = tmp_path / "own-time"
    for _ in range(200):
        events = list_events(tmp_path, "true", f"date +%s%3N > {own_time}; sleep 0.05")
        ended = {event.task.child: event for event in events if isinstance(event, Ended)}
        if 1 in ended:  # on a busy machine, the first command may not be a short one
            break
    started_ms = ended[1].started_ms
    assert started_ms is not None and started_ms <= int(own_time.read_text())


def test_followers_run_in_order_and_each_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "order"
    events = run_series(tmp_path, *(f"echo {n} >> {log}" for n in range(5)))
    ended = [child for name, child in events if name == "Ended"]
    # On a busy machine a command takes longer than a short one, and its followers are withdrawn.
    withdrawn = [child for name, child in events if name == Withdrawn.__name__]
    assert ended == list(range(len(ended))) and sorted(ended + withdrawn) == list(range(5))
    # Those that had ended when they were reported have no other event.
    assert {child for name, child in events if name == "Started"} <= set(ended)
    assert log.read_text().split() == [str(child) for child in ended]


def test_a_follower_is_running_while_ends_before_it_are_recorded(tmp_path: Path) -> None:
    """A turn amid a series finds one child of it that runs, also if each of them is short."""
    runner = ProcessRunner(Spawner(LogBook(RunFolder(tmp_path))), report_after_ms=-1)
    running: list[set[int]] = []
    started: set[int] = set()
    ended: set[int] = set()

    def turn() -> None:
        for event in runner.take_events():
            (started if isinstance(event, Started) else ended).add(event.task.child)
        running.append(started - ended)

    runner.listen(turn)
    tasks = [make_task(number, "true") for number in range(3)]
    deadline = time.monotonic() + 10
    try:
        with runner.lock:
            runner.start(*tasks)
            turn()
            while len(ended) < len(tasks) and time.monotonic() < deadline:
                # Not `wait`: to its clock, each end would be a late one.
                runner.lock.release()
                time.sleep(0.01)
                runner.lock.acquire()
    finally:
        runner.close()
    assert all(len(children) == 1 for children in running[:-1]) and not running[-1]


def run_with_slow_program(folder: Path, programs: tuple[str, ...], event_count: int) -> list[Event]:
    """Return the first events of a series whose program `slow` is not loaded until the end.

    As on a file system that does not answer: a lease makes exec wait until it is given back.
    """
    program = folder / "slow"
    shutil.copy("/bin/true", program)
    old_handler = signal.signal(signal.SIGIO, signal.SIG_IGN)
    file = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    # The clock stands still: an earlier time was computed.
    runner = ProcessRunner(Spawner(LogBook(RunFolder(folder))), now_ms=lambda: NOW_MS)
    commands = [str(program) if name == "slow" else name for name in programs]
    tasks = [make_task(number, command) for number, command in enumerate(commands)]
    events: list[Event] = []
    deadline = time.monotonic() + 10
    try:
        with runner.lock:
            runner.start(*tasks)
            while len(events) < event_count and time.monotonic() < deadline:
                runner.wait(0.01)
                events += runner.take_events()
    finally:
        # Closing is not enough: the process before its exec has the file open, too.
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(file)
        runner.close()
        signal.signal(signal.SIGIO, old_handler)
    return events


def name_events(events: list[Event]) -> list[tuple[str, int]]:
    return [(type(event).__name__, event.task.child) for event in events]


def test_a_program_that_loads_slowly_holds_up_neither_ends_nor_followers(tmp_path: Path) -> None:
    for _ in range(20):
        events = run_with_slow_program(tmp_path, ("true", "slow", "true"), event_count=4)
        # On a busy machine the first command may take longer than a short one.
        if ("Withdrawn", 1) not in name_events(events):
            break
    names = name_events(events)
    assert names == [("Started", 0), ("Withdrawn", 2), ("Ended", 0), ("Started", 1)]
    # It is reported late, with the time when its start began.
    started = events[-1]
    assert isinstance(started, Started) and started.at_ms < NOW_MS


def test_followers_do_not_wait_for_a_first_program_that_loads_slowly(tmp_path: Path) -> None:
    events = run_with_slow_program(tmp_path, ("slow", "true", "true"), event_count=3)
    assert name_events(events) == [("Started", 0), ("Withdrawn", 2), ("Withdrawn", 1)]


class LaunchEndings:
    """Receives what happens to launches, and keeps those that have ended."""

    def __init__(self) -> None:
        self.launches: list[tuple[Launch, Exit | None, int]] = []

    def on_late_start(self, launch: Launch) -> None: ...

    def on_start(self, launch: Launch) -> None: ...

    def on_end(self, launch: Launch, exit: Exit | None, ended_ms: int) -> None:
        self.launches.append((launch, exit, ended_ms))

    def on_withdrawal(self, launch: Launch) -> None: ...


def test_a_program_that_cannot_be_started_has_ended(tmp_path: Path) -> None:
    spawner = Spawner(LogBook(RunFolder(tmp_path)))
    endings = LaunchEndings()
    slots = Slots(spawner, endings, lambda: 1000)
    output = spawner.open_output(("work", 0, 1), b"mark")
    program = (str(tmp_path / "missing"), ("missing",))
    deadline = time.monotonic() + 10
    try:
        with spawner.lock:
            slots.launch(Launch((program,), {}, output, None))
        while not endings.launches and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        spawner.discard(output)
        slots.close()
        spawner.close()
    ((launch, exit, ended_ms),) = endings.launches
    assert (exit, ended_ms) == (None, 1000)
    assert isinstance(launch.error, FileNotFoundError) and launch.error.filename == program[0]


def test_nothing_follows_a_failure(tmp_path: Path) -> None:
    touch = f"touch {tmp_path}/started"
    events = run_series(tmp_path, "exit 3", touch, touch)
    assert events == [("Started", 0), ("Withdrawn", 2), ("Withdrawn", 1), ("Ended", 0)]
    assert not (tmp_path / "started").exists()


def test_nothing_waits_for_a_long_process(tmp_path: Path) -> None:
    """The first command ends only after its followers were withdrawn."""
    events = run_series(tmp_path, "sleep 0.3", "true", "true")
    assert events == [("Started", 0), ("Withdrawn", 2), ("Withdrawn", 1), ("Ended", 0)]


@pytest.mark.parametrize("signum", [15, 9])
def test_a_stop_ends_the_process_and_withdraws_its_followers(tmp_path: Path, signum: int) -> None:
    ready = f"touch {tmp_path}/ready; exec sleep 600"
    events = run_series(tmp_path, ready, "true", stop=signum)
    assert events == [("Started", 0), ("Withdrawn", 1), ("Ended", 0)]


def test_nothing_waits_for_a_process_that_cannot_be_watched(tmp_path: Path) -> None:
    """With file numbers only for its pipe, nothing shows how long a process runs."""
    runner = ProcessRunner(Spawner(LogBook(RunFolder(tmp_path))))
    tasks = [make_task(number, command) for number, command in enumerate(("sleep 600", "true"))]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    events: list[Event] = []
    deadline = time.monotonic() + 5
    try:
        with runner.lock:
            pipe = (os.dup(0), os.dup(0))
            for number in pipe:
                os.close(number)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(pipe) + 1, limits[1]))
            runner.start(*tasks)
            while Withdrawn(tasks[1]) not in events and time.monotonic() < deadline:
                runner.wait(0.01)
                events += runner.take_events()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        runner.close()
    assert [type(event) for event in events] == [Started, Withdrawn]
