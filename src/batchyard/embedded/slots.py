"""Threads that run processes: each starts a process, waits for its end, and starts the next one.

Starting a process is half a millisecond of waiting, and the scheduler and the recording take nearly
as long. Here the thread whose process has ended takes the loop's turn itself, under the lock, and
then starts the next process, while the other threads wait for theirs. So no thread has to be woken
between the end of a child and the start of the next.

A process may have followers: they start in the same thread, one after the other and without a turn,
as long as each process succeeds after a short time. One turn for several short processes costs half
as much for each of them, since the code of the loop then stays in the caches of the CPU.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from batchyard.embedded.posix_spawn import Program
from batchyard.embedded.short_runs import ShortRun, ShortRunner
from batchyard.embedded.spawner import Exit, Output, Process, Spawner, exit_code_of
from batchyard.errors import OperationalError

#: After this time the processes of a series that have ended are reported.
_REPORT_AFTER_MS = 10
_CLOSE_PATIENCE_S = 10.0


class Launch:
    """A process to start."""

    __slots__ = (
        "_candidates",
        "_environ",
        "_program",
        "ended_ms",
        "error",
        "is_cancelled",
        "output",
        "owner",
        "process",
        "started_ms",
    )

    def __init__(
        self,
        candidates: tuple[tuple[str, tuple[str, ...]], ...],
        environ: Mapping[bytes, bytes],
        output: Output,
        owner: object,
    ) -> None:
        #: Pairs of program and arguments. The second is tried if the first cannot be started.
        self._candidates = candidates
        self._environ = environ
        self.output = output
        #: Any object of the caller.
        self.owner = owner
        #: None until the process has run for some time. A short process ends before.
        self.process: Process | None = None
        #: Why the process could not be started.
        self.error: OSError | ValueError | None = None
        #: Whether the process gets a signal when it runs; a follower is not started any more.
        self.is_cancelled = False
        self.started_ms: int | None = None
        self.ended_ms: int | None = None
        # Prepared here and not in the thread, which has colder caches.
        self._program = self._prepare(*candidates[0])

    def _prepare(self, program: str, argv: tuple[str, ...]) -> Program | None:
        try:
            return Program(program, argv, self._environ)
        except ValueError as exc:
            self.error = exc
            return None

    def run(self, runner: ShortRunner) -> ShortRun | None:
        """Start the process, and wait for a short time; None if it cannot be started."""
        for number, candidate in enumerate(self._candidates):
            if number:
                self._program = self._prepare(*candidate)
            if self._program is None:
                continue
            try:
                return runner.run(self._program, self.output.write_end)
            except OSError as exc:
                self.error = exc
        return None

    def finish(self, run: ShortRun, output: bytes) -> Exit:
        """Keep the output of a process that has ended, and return its end."""
        if output:
            self.output.tail, self.output.length = output, len(output)
        return Exit(
            Process(run.pid, self.output, self.owner),
            exit_code_of(run.status),
            run.user_us / 1e6,
            run.system_us / 1e6,
            run.max_rss_kib,
        )

    def keep_running(self, run: ShortRun) -> Process:
        """Take over a process that did not end within a short time, with its pipe."""
        if not self.output.has_pipe:
            self.output.read_end, self.output.write_end = run.read_end, run.write_end
        self.process = Process(run.pid, self.output, self.owner)
        return self.process


class _Series:
    """A process and the followers that start after it, in the thread of one slot."""

    __slots__ = ("_being_loaded", "_loaded_since_ms", "ended", "followers", "launch")

    def __init__(self, launch: Launch, followers: Iterable[Launch]) -> None:
        #: The process that runs.
        self.launch = launch
        self.followers = deque(followers)
        #: Processes that have ended and are not reported yet.
        self.ended: deque[tuple[Launch, Exit | None]] = deque()
        #: The process that had not begun at the last look, and when it was first seen so.
        self._being_loaded: Launch | None = None
        self._loaded_since_ms = 0

    # The thread of the slot holds no lock here, and another thread may be in ``report_late``:
    # single operations on a deque are atomic.

    def take_follower(self, exit: Exit | None) -> bool:
        """Make the next follower the process to run. Returns False if none is to start."""
        if exit is None or exit.exit_code:
            return False
        try:
            follower = self.followers.popleft()
        except IndexError:
            return False
        if follower.is_cancelled:
            self.followers.appendleft(follower)
            return False
        self.launch = follower
        return True

    def has_end_before(self, time_ms: int) -> bool:
        """Return whether a process ended before this time and is not reported."""
        try:
            launch, _ = self.ended[0]
        except IndexError:
            return False
        return launch.ended_ms is not None and launch.ended_ms < time_ms

    def holds_up_followers(self, now_ms: int) -> bool:
        """Return whether followers wait for a program that has been loading for some time."""
        launch = self.launch
        if launch.process is not None or not self.followers:
            return False
        if launch is not self._being_loaded:
            self._being_loaded, self._loaded_since_ms = launch, now_ms
        return now_ms - self._loaded_since_ms > _REPORT_AFTER_MS


class LaunchEvents(Protocol):
    """What happens to launches, for the one who made them."""

    def on_late_start(self, launch: Launch) -> None:
        """The process was cancelled while it was being started, and runs. Without the lock."""

    def on_start(self, launch: Launch) -> None:
        """The process runs for some time, or is the next to start. Called with the lock held."""

    def on_end(self, launch: Launch, exit: Exit | None) -> None:
        """The process has ended; without an Exit, it could not be started. With the lock held."""

    def on_withdrawal(self, launch: Launch) -> None:
        """The follower will not be started. Called with the lock held, for the last one first."""


class Slots:
    """Threads for as many processes as run at once."""

    def __init__(
        self,
        spawner: Spawner,
        events: LaunchEvents,
        now_ms: Callable[[], int],
    ) -> None:
        self._spawner = spawner
        self._lock = spawner.lock
        self._events = events
        self._now_ms = now_ms
        #: Called with the lock held when a process has ended.
        self._turn: Callable[[], None] = lambda: None
        self._queue: deque[_Series] = deque()
        self._queued = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        #: What the threads run. Each thread adds and removes its own.
        self._running: set[_Series] = set()
        #: Number of threads that have a process.
        self.busy = 0
        #: Whether the thread that takes its turn is free to run the next process itself.
        self._can_take_next = False
        #: The processes that this thread runs next.
        self._next: _Series | None = None
        self._is_closing = False
        #: An exception of a thread, which the runner's ``wait`` raises.
        self.failure: BaseException | None = None

    def listen(self, turn: Callable[[], None]) -> None:
        self._turn = turn

    def launch(self, launch: Launch, *followers: Launch) -> None:
        """Start a process in a free thread, and its followers after it. The caller has the lock."""
        series = _Series(launch, followers)
        if self._can_take_next:
            self._can_take_next, self._next = False, series
            return
        self.busy += 1
        self._queue.append(series)
        if self.busy > len(self._threads):
            self._add_thread()
        self._queued.release()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name="slot", daemon=True)
        try:
            thread.start()
        except RuntimeError as exc:
            raise OperationalError(
                f"could not run {self.busy} children at once: {exc}",
                hint="run fewer at once, or raise the limit of processes (`ulimit -u`)",
            ) from exc
        self._threads.append(thread)

    def close(self) -> None:
        """Kill all processes and wait for the threads. The caller does not hold the lock."""
        with self._lock:
            self._is_closing = True
            self._queue.clear()
            self._spawner.signal(self._spawner.list_adopted(), signal.SIGKILL)
        for _ in self._threads:
            self._queued.release()
        for thread in self._threads:
            thread.join(_CLOSE_PATIENCE_S)

    def report_late(self) -> None:
        """Report the ends that a thread does not report because it is starting a process.

        That takes long if the file system of the program does not answer. The followers behind it
        are withdrawn. The caller has the lock.
        """
        now_ms = self._now_ms()
        for series in list(self._running):
            if series.has_end_before(now_ms - _REPORT_AFTER_MS) or series.holds_up_followers(
                now_ms
            ):
                self._report(series)
                if series.launch.ended_ms is None:
                    self._events.on_start(series.launch)

    # -- in a thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            runner = ShortRunner(self._spawner.null)
            while self._work_once(runner):
                pass
        except BaseException as exc:
            self.failure = exc
            self._spawner.wake()

    def _work_once(self, runner: ShortRunner) -> bool:
        """Run processes one after the other until none follows. Returns False at the end."""
        self._queued.acquire()
        with self._lock:
            series = self._queue.popleft() if self._queue else None
        if series is None:
            return False
        while series is not None:
            self._running.add(series)
            self._run_series(series, runner)
            self._running.discard(series)
            with self._lock:
                series = self._take_turn(series)
        return True

    def _run_series(self, series: _Series, runner: ShortRunner) -> None:
        while True:
            exit = self._run(series, runner)
            ended_ms = series.launch.ended_ms or 0
            series.ended.append((series.launch, exit))
            if self._is_closing or not series.take_follower(exit):
                return
            if series.has_end_before(ended_ms - _REPORT_AFTER_MS):
                with self._lock:
                    self._report_ends(series)
                    self._events.on_start(series.launch)
                    self._turn()

    def _run(self, series: _Series, runner: ShortRunner) -> Exit | None:
        """Run a process to its end. Returns None if it could not be started."""
        # Little is done here: after each process, the code of this function has to be loaded into
        # the caches of the CPU again.
        launch, spawner = series.launch, self._spawner
        spawner.being_started.add(launch)
        try:
            run = launch.run(runner)
            if run is None:
                # Without this, `report_late` could report a start after the end.
                launch.ended_ms = self._now_ms()
                return None
            now_ms = self._now_ms()
            launch.started_ms = now_ms - run.lasted_us // 1000
            if run.is_over:
                launch.ended_ms = now_ms
                return launch.finish(run, runner.output)
            process = launch.keep_running(run)
            spawner.adopt(process)
        finally:
            spawner.being_started.discard(launch)
        if launch.is_cancelled or self._is_closing:
            self._end_early(launch, process)
        with self._lock:
            self._handle_long_process(process, series)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # The process is a zombie now. Its pid stays reserved until it is reaped.
        exit = spawner.reap(process)
        launch.ended_ms = self._now_ms()
        return exit

    def _end_early(self, launch: Launch, process: Process) -> None:
        """End a process that was cancelled or killed while it was being started."""
        if launch.is_cancelled:
            self._events.on_late_start(launch)
        # `close` sets the flag and then kills the adopted processes. A process that was adopted
        # after that is killed here.
        if self._is_closing:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _handle_long_process(self, process: Process, series: _Series) -> None:
        """Watch the output of a process that is not short, and withdraw its followers."""
        self._spawner.watch(process.output)
        if self._is_closing:
            return
        has_news = bool(series.ended or series.followers)
        self._report(series)
        self._events.on_start(series.launch)
        if has_news:
            self._turn()

    def _report(self, series: _Series) -> None:
        """Report the processes that have ended, and the followers that will not start."""
        while series.followers:
            self._events.on_withdrawal(series.followers.pop())
        self._report_ends(series)

    def _report_ends(self, series: _Series) -> None:
        while series.ended:
            self._events.on_end(*series.ended.popleft())

    def _take_turn(self, series: _Series) -> _Series | None:
        """Take the loop's turn after the end of a process, and return what to run next."""
        self._can_take_next, self._next = True, None
        try:
            if not self._is_closing:
                self._report(series)
                self._turn()
        finally:
            self._can_take_next = False
            next_series, self._next = self._next, None
        if next_series is None:
            self.busy -= 1
        return next_series
