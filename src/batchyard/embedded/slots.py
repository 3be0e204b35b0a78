"""Threads that run processes: each starts a process, waits for its end, and starts the next one.

Starting a process is half a millisecond of waiting, and the scheduler and the recording take nearly
as long. Here the thread whose process has ended takes the loop's turn itself, under the lock, and
then starts the next process, while the other threads wait for theirs. So no thread has to be woken
between the end of a child and the start of the next.

A process may have followers: they start in the same thread, one after the other and without a turn,
as long as each process succeeds after a short time (``short_runs``). One turn for several short
processes costs half as much for each of them, since the code of the loop then stays in the caches
of the CPU.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from batchyard.embedded.posix_spawn import Program
from batchyard.embedded.short_runs import REPORT_AFTER_MS, OutputBuffer, Series
from batchyard.embedded.spawner import Exit, Output, Process, Spawner, exit_code_of
from batchyard.errors import OperationalError

_CLOSE_PATIENCE_S = 10.0


class Launch:
    """A process to start."""

    __slots__ = (
        "_candidates",
        "_environ",
        "error",
        "exit",
        "is_cancelled",
        "output",
        "owner",
        "process",
        "series",
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
        #: None until the process is reported.
        self.started_ms: int | None = None
        #: The end of a process that has run for some time.
        self.exit: Exit | None = None
        #: None before the launch, and after the process is reported.
        self.series: _Series | None = None

    def prepare(self) -> Program | None:
        """Return the next program to try; None if it cannot be started, or none is left."""
        if not self._candidates:
            return None
        (path, argv), self._candidates = self._candidates[0], self._candidates[1:]
        try:
            return Program(path, argv, self._environ)
        except ValueError as exc:
            # Without its traceback, which would keep the frames with all objects of this launch.
            self.error = exc.with_traceback(None)
            return self.prepare()

    def cancel(self) -> None:
        """Start neither this process nor what follows it, if that has not happened yet."""
        self.is_cancelled = True
        if self.series is not None:
            self.series.calls.withdraw()


def _time_ms(event_us: int, now_ms: int, now_us: int) -> int:
    """Return when an event was, by the clock in ms; never too late.

    ``event_us`` and ``now_us``: by the monotonic clock. ``now_ms`` must have been read before
    ``now_us``.
    """
    return now_ms + (event_us - now_us) // 1000


class _Series:
    """A process and the followers that start after it, in the thread of one slot."""

    __slots__ = ("_reported", "calls", "launches")

    def __init__(self, launches: Sequence[Launch], stdin: int, report_after_ms: int) -> None:
        #: Without followers that were withdrawn.
        self.launches = list(launches)
        # Prepared here and not in the thread, which has colder caches.
        programs = [(launch.prepare(), launch.output.write_end) for launch in launches]
        self.calls = Series(programs, stdin, report_after_ms=report_after_ms)
        # The first one is placed, so it cannot be withdrawn.
        self.calls.take(0)
        #: Number of processes whose end is reported.
        self._reported = 0
        for launch in launches:
            launch.series = self

    # -- with the lock -------------------------------------------------------------------------

    def take_withdrawn(self) -> list[Launch]:
        """Let no follower start any more, and return those that have not."""
        taken = self.calls.withdraw()
        withdrawn, self.launches = self.launches[taken:], self.launches[:taken]
        for launch in withdrawn:
            launch.series = None
        return withdrawn

    def take_ends(self, read_ms: Callable[[], int]) -> Iterator[tuple[Launch, Exit | None, int]]:
        """Yield the processes that have ended and are not reported, with the time in ms.

        ``read_ms``: the clock of these times.
        """
        # In this order: a start is never recorded too late, whatever comes between the clocks.
        ended, now_ms, now_us = self.calls.count_ended(), read_ms(), time.monotonic_ns() // 1000
        while self._reported < ended:
            launch, run = self.launches[self._reported], self.calls.runs[self._reported]
            self._reported += 1
            launch.series = None
            if run.error:
                yield launch, None, now_ms
                continue
            if launch.exit is not None:
                yield launch, launch.exit, now_ms
                continue
            launch.started_ms = _time_ms(run.started_us, now_ms, now_us)
            output = self.calls.output_of(run)
            if output:
                launch.output.tail, launch.output.length = output, len(output)
            exit = Exit(
                Process(run.pid, launch.output, launch.owner),
                exit_code_of(run.status),
                run.user_us / 1e6,
                run.system_us / 1e6,
                run.max_rss_kib,
            )
            yield launch, exit, now_ms - (now_us - run.ended_us) // 1000

    def find_running(self, read_ms: Callable[[], int]) -> Launch | None:
        """Return the process that is being started, or runs for a short time.

        It has the time at which its start began, if that has begun.
        """
        ended = self.calls.count_ended()
        if ended >= self.calls.count_taken():
            return None
        launch, started_us = self.launches[ended], self.calls.runs[ended].started_us
        if started_us:
            launch.started_ms = _time_ms(started_us, read_ms(), time.monotonic_ns() // 1000)
        return launch

    def is_late(self) -> bool:
        """Return whether ends, or followers, wait for a program that takes long to load."""
        before_us = time.monotonic_ns() // 1000 - REPORT_AFTER_MS * 1000
        ended, taken = self.calls.count_ended(), self.calls.count_taken()
        if self._reported < ended:
            return self.calls.runs[self._reported].ended_us < before_us
        if not ended < taken < len(self.launches):
            return False
        run = self.calls.runs[ended]
        return not run.pid and 0 < run.started_us < before_us

    # -- in the thread of the slot -------------------------------------------------------------

    def run(self, buffer: OutputBuffer, read_ms: Callable[[], int]) -> Launch | None:
        """Run processes. Returns the one that did not end within a short time, if any.

        ``read_ms``: the clock of recorded times.
        """
        calls = self.calls
        calls.run(buffer)
        while True:
            number = calls.count_ended()
            if number >= calls.count_taken():
                return None
            launch, run = self.launches[number], calls.runs[number]
            if not run.error:
                break
            if not self._try_next_candidate(number):
                calls.end(number)
                return None
            calls.run(buffer)
        if not launch.output.has_pipe:
            launch.output.read_end, launch.output.write_end = run.read_end, run.write_end
        launch.started_ms = _time_ms(run.started_us, read_ms(), time.monotonic_ns() // 1000)
        launch.process = Process(run.pid, launch.output, launch.owner)
        return launch

    def _try_next_candidate(self, number: int) -> bool:
        """Return whether there is another program for a process that could not be started."""
        launch, tried = self.launches[number], self.calls.program(number)
        if tried is not None:
            error = self.calls.runs[number].error
            launch.error = OSError(error, os.strerror(error), tried.path)
        program = launch.prepare()
        if program is not None:
            self.calls.replace(number, program)
        return program is not None

    def goes_on(self) -> bool:
        """Return whether the next follower is to start."""
        ended = self.calls.count_ended()
        if ended == len(self.calls.runs) or self.calls.is_withdrawn:
            return False
        run = self.calls.runs[ended - 1]
        return not run.error and not run.status


class LaunchEvents(Protocol):
    """What happens to launches, for the one who made them."""

    def on_late_start(self, launch: Launch) -> None:
        """The process was cancelled while it was being started, and runs. Without the lock."""

    def on_start(self, launch: Launch) -> None:
        """The process runs for some time, or is the next to start. Called with the lock held."""

    def on_end(self, launch: Launch, exit: Exit | None, ended_ms: int) -> None:
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
        *,
        report_after_ms: int = REPORT_AFTER_MS,
    ) -> None:
        """``report_after_ms``: after this time, ends in a series that goes on are reported."""
        self._report_after_ms = report_after_ms
        self._spawner = spawner
        self._lock = spawner.lock
        self._events = events
        self._now_ms = now_ms
        #: Called with the lock held when a process has ended.
        self._turn: Callable[[], None] = lambda: None
        self._queue: deque[_Series] = deque()
        self._queued = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        #: What the threads run.
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
        series = _Series((launch, *followers), self._spawner.null, self._report_after_ms)
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
            for series in list(self._running):
                series.calls.withdraw()
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
        for series in list(self._running):
            if series.is_late():
                self._report(series)
                # Asked once: the process may end at any moment.
                running = series.find_running(self._now_ms)
                if running is not None:
                    self._events.on_start(running)

    # -- in a thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            buffer = OutputBuffer()
            while self._work_once(buffer):
                pass
        except BaseException as exc:
            self.failure = exc
            self._spawner.wake()

    def _work_once(self, buffer: OutputBuffer) -> bool:
        """Run processes one after the other until none follows. Returns False at the end."""
        self._queued.acquire()
        with self._lock:
            series = self._queue.popleft() if self._queue else None
            if series is None:
                return False
            self._running.add(series)
        while series is not None:
            self._run_series(series, buffer)
            with self._lock:
                self._running.discard(series)
                series = self._take_turn(series)
                if series is not None:
                    self._running.add(series)
        return True

    def _run_series(self, series: _Series, buffer: OutputBuffer) -> None:
        spawner = self._spawner
        while True:
            spawner.being_started.add(series)
            try:
                launch = series.run(buffer, self._now_ms)
                if launch is not None and launch.process is not None:
                    spawner.adopt(launch.process)
            finally:
                spawner.being_started.discard(series)
            if launch is not None:
                self._finish_long_process(launch, series)
                return
            with self._lock:
                if self._is_closing or not self._begin_next(series):
                    return

    def _begin_next(self, series: _Series) -> bool:
        """Report the ends in a series that goes on. Returns False if it does not go on."""
        if not series.goes_on() or not series.calls.take(series.calls.count_ended()):
            return False
        self._report_ends(series)
        series.calls.forget_output()
        running = series.find_running(self._now_ms)
        assert running is not None, "it is taken, and this thread starts it"
        self._events.on_start(running)
        self._turn()
        return True

    def _finish_long_process(self, launch: Launch, series: _Series) -> None:
        """Wait for the end of a process that is not a short one."""
        process = launch.process
        assert process is not None
        if launch.is_cancelled or self._is_closing:
            self._end_early(launch, process)
        with self._lock:
            self._handle_long_process(launch, series)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # The process is a zombie now. Its pid stays reserved until it is reaped.
        launch.exit = self._spawner.reap(process)
        series.calls.end(series.calls.count_ended())

    def _end_early(self, launch: Launch, process: Process) -> None:
        """End a process that was cancelled or killed while it was being started."""
        if launch.is_cancelled:
            self._events.on_late_start(launch)
        # `close` sets the flag and then kills the adopted processes. A process that was adopted
        # after that is killed here.
        if self._is_closing:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _handle_long_process(self, launch: Launch, series: _Series) -> None:
        """Watch the output of a process that is not short, and withdraw its followers."""
        self._spawner.watch(launch.output)
        if self._is_closing:
            return
        has_news = self._report(series)
        self._events.on_start(launch)
        if has_news:
            self._turn()

    def _report(self, series: _Series) -> bool:
        """Report the processes that have ended, and the followers that will not start.

        Returns whether there were any.
        """
        withdrawn = series.take_withdrawn()
        for launch in reversed(withdrawn):
            self._events.on_withdrawal(launch)
        return self._report_ends(series) or bool(withdrawn)

    def _report_ends(self, series: _Series) -> bool:
        has_end = False
        for launch, exit, ended_ms in series.take_ends(self._now_ms):
            self._events.on_end(launch, exit, ended_ms)
            has_end = True
        return has_end

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
