"""Threads that run processes: each takes one from its start to its end, and then the next.

Starting a process takes half a millisecond of waiting, and what must be decided and recorded about a child nearly as
long. With one thread they follow one another; here the thread whose process has ended does the deciding and
recording itself, under the lock, and goes on with the process that follows, while the other threads wait for theirs.
Nobody is woken between a child's end and the next one's start.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from batchyard.embedded import spawning
from batchyard.embedded.spawner import Exit, Output, Process, Spawner
from batchyard.errors import OperationalError

#: a process that runs for so long is worth a look at its pipe, lest a full one hold it up
_SHORT_MS = 4
_CLOSE_PATIENCE_S = 10.0


class Launch:
    """A process to be run."""

    __slots__ = ("attempts", "environ", "error", "output", "owner", "process")

    def __init__(
        self,
        attempts: tuple[tuple[str, tuple[str, ...]], ...],
        environ: dict[bytes, bytes],
        output: Output,
        owner: object,
    ) -> None:
        #: (program, arguments), the second only where the first cannot be started
        self.attempts = attempts
        self.environ = environ
        self.output = output
        #: whatever the caller wants to find it by
        self.owner = owner
        #: None until it runs
        self.process: Process | None = None
        #: why it could not be started
        self.error: OSError | ValueError | None = None


class Slots:
    def __init__(
        self,
        spawner: Spawner,
        started: Callable[[Launch], None],
        ended: Callable[[Launch, Exit | None], None],
    ) -> None:
        """``started`` is called by a thread of ours without the lock, ``ended`` with it; an Exit is missing where it
        could not be started."""
        self._spawner = spawner
        self._lock = spawner.lock
        self._started = started
        self._ended = ended
        #: what is to be done when something has ended, with the lock held
        self._turn: Callable[[], None] = lambda: None
        self._queue: deque[Launch] = deque()
        self._queued = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        #: threads that have something to do
        self._busy = 0
        #: while a thread takes its turn: whether it can still take on what is launched, and what it has taken on
        self._can_take = False
        self._taken: Launch | None = None
        self._is_closing = False
        #: what went wrong in a thread, for the one that waits to raise
        self.failure: BaseException | None = None

    def listen(self, turn: Callable[[], None]) -> None:
        self._turn = turn

    def launch(self, launch: Launch) -> None:
        """With the lock held."""
        if self._can_take:
            self._can_take, self._taken = False, launch
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
                hint="run fewer at once with --cpus, or raise the limit of processes (`ulimit -u`)",
            ) from exc
        self._threads.append(thread)

    def close(self) -> None:
        """Kills what runs and waits for the threads. Without the lock."""
        with self._lock:
            self._is_closing = True
            self._queue.clear()
            self._spawner.signal(self._spawner.in_slots(), signal.SIGKILL)
        for _ in self._threads:
            self._queued.release()
        for thread in self._threads:
            thread.join(_CLOSE_PATIENCE_S)

    # -- in a thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._work_once(select.poll()):
                pass
        except BaseException as exc:
            self.failure = exc
            self._spawner.wake()

    def _work_once(self, poll: select.poll) -> bool:
        """Processes one after the other until none follows; False when there will be no more."""
        self._queued.acquire()
        with self._lock:
            launch = self._queue.popleft() if self._queue else None
        if launch is None:
            return False
        while launch is not None:
            self._run(launch, poll)
            with self._lock:
                launch = self._over(launch)
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
        self._started(launch)
        # Whoever closes kills what is adopted, after having said that it closes: one of us sees the other.
        if self._is_closing:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._await_end(process, poll)

    def _spawn(self, launch: Launch) -> int | None:
        for program, argv in launch.attempts:
            try:
                pid = spawning.spawn(
                    program, argv, launch.environ, self._spawner.null, launch.output.write_end
                )
                launch.error = None
                return pid
            except (OSError, ValueError) as exc:
                launch.error = exc
        return None

    def _await_end(self, process: Process, poll: select.poll) -> None:
        """Returns when it is a zombie, which keeps its number until the lock is held."""
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:  # out of files: its pipe is looked at with the next tick
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

    def _over(self, launch: Launch) -> Launch | None:
        """The turn of the thread whose process has ended. Returns what it is to run next."""
        exit = None if launch.process is None else self._spawner.reap(launch.process)
        self._can_take, self._taken = True, None
        try:
            if not self._is_closing:
                self._ended(launch, exit)
                self._turn()
        finally:
            self._can_take = False
            following, self._taken = self._taken, None
        if following is None:
            self._busy -= 1
        return following
