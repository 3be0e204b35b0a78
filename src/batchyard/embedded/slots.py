"""Threads that run processes: each starts a process, waits for its end, and starts the next one.

Starting a process is half a millisecond of waiting, and the scheduler and the recording take nearly
as long. Here the thread whose process has ended takes the loop's turn itself, under the lock, and
then starts the next process, while the other threads wait for theirs. So no thread has to be woken
between the end of a child and the start of the next.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from batchyard.embedded import posix_spawn
from batchyard.embedded.spawner import Exit, Output, Process, Spawner
from batchyard.errors import OperationalError

#: After this time the pipe of a process is watched, since a full pipe would block the process.
_SHORT_MS = 4
_CLOSE_PATIENCE_S = 10.0


class Launch:
    """A process to start."""

    __slots__ = ("candidates", "environ", "error", "output", "owner", "process")

    def __init__(
        self,
        candidates: tuple[tuple[str, tuple[str, ...]], ...],
        environ: Mapping[bytes, bytes],
        output: Output,
        owner: object,
    ) -> None:
        #: Pairs of program and arguments. The second is tried if the first cannot be started.
        self.candidates = candidates
        self.environ = environ
        self.output = output
        #: Any object of the caller.
        self.owner = owner
        #: None until the process runs.
        self.process: Process | None = None
        #: Why the process could not be started.
        self.error: OSError | ValueError | None = None


class Slots:
    """Threads for as many processes as run at once."""

    def __init__(
        self,
        spawner: Spawner,
        on_start: Callable[[Launch], None],
        on_end: Callable[[Launch, Exit | None], None],
    ) -> None:
        """``on_start`` is called in a slot's thread without the lock, ``on_end`` with it.

        ``on_end`` gets no Exit if the process could not be started.
        """
        self._spawner = spawner
        self._lock = spawner.lock
        self._on_start = on_start
        self._on_end = on_end
        #: Called with the lock held when a process has ended.
        self._turn: Callable[[], None] = lambda: None
        self._queue: deque[Launch] = deque()
        self._queued = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        #: Number of threads that have a process.
        self._busy = 0
        #: Whether the thread that takes its turn is free to run the next process itself.
        self._can_take_next = False
        #: The process that this thread runs next.
        self._next: Launch | None = None
        self._is_closing = False
        #: An exception of a thread, which the runner's ``wait`` raises.
        self.failure: BaseException | None = None

    def listen(self, turn: Callable[[], None]) -> None:
        self._turn = turn

    def launch(self, launch: Launch) -> None:
        """Start a process in a free thread. The caller holds the lock."""
        if self._can_take_next:
            self._can_take_next, self._next = False, launch
            return
        self._busy += 1
        self._queue.append(launch)
        if self._busy > len(self._threads):
            self._add_thread()
        self._queued.release()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name="slot", daemon=True)
        try:
            thread.start()
        except RuntimeError as exc:
            raise OperationalError(
                f"could not run {self._busy} children at once: {exc}",
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

    # -- in a thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._work_once(select.poll()):
                pass
        except BaseException as exc:
            self.failure = exc
            self._spawner.wake()

    def _work_once(self, poll: select.poll) -> bool:
        """Run processes one after the other until none follows. Returns False at the end."""
        self._queued.acquire()
        with self._lock:
            launch = self._queue.popleft() if self._queue else None
        if launch is None:
            return False
        while launch is not None:
            self._run(launch, poll)
            with self._lock:
                launch = self._take_turn(launch)
        return True

    def _run(self, launch: Launch, poll: select.poll) -> None:
        being_started = self._spawner.being_started
        being_started.add(launch)
        try:
            pid = self._spawn(launch)
            if pid is None:
                return
            process = launch.process = Process(pid, launch.output, launch.owner)
            self._spawner.adopt(process)
        finally:
            being_started.discard(launch)
        self._on_start(launch)
        # `close` sets the flag and then kills the adopted processes. A process that was adopted
        # after that is killed here.
        if self._is_closing:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._await_end(process, poll)

    def _spawn(self, launch: Launch) -> int | None:
        for program, argv in launch.candidates:
            try:
                pid = posix_spawn.spawn(
                    program, argv, launch.environ, self._spawner.null, launch.output.write_end
                )
                launch.error = None
                return pid
            except (OSError, ValueError) as exc:
                launch.error = exc
        return None

    def _await_end(self, process: Process, poll: select.poll) -> None:
        """Wait until the process is a zombie. Its pid stays reserved until it is reaped."""
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:  # too many open files: the next tick watches the pipe
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            return
        try:
            poll.register(pidfd, select.POLLIN)
            if poll.poll(_SHORT_MS):
                return
            with self._lock:
                self._spawner.watch(process.output)
            poll.poll()
        finally:
            poll.unregister(pidfd)
            os.close(pidfd)

    def _take_turn(self, launch: Launch) -> Launch | None:
        """Take the loop's turn after the end of a process, and return the process to run next."""
        exit = None if launch.process is None else self._spawner.reap(launch.process)
        self._can_take_next, self._next = True, None
        try:
            if not self._is_closing:
                self._on_end(launch, exit)
                self._turn()
        finally:
            self._can_take_next = False
            next_launch, self._next = self._next, None
        if next_launch is None:
            self._busy -= 1
        return next_launch
