"""Starts processes, collects their output, and tells when they end. Knows nothing of jobs.

One epoll over pidfds and pipes. A process is started with posix_spawn, which does not copy this process; its pipe is
watched only once it has lived for a while, so that a short child costs no more than it must. Whoever uses this holds
``lock``; ``wait`` lets go of it while it sleeps. Processes that threads start and wait for (``slots``) are adopted:
their output and their orphans are seen to here.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from batchyard.embedded import proc, spawning
from batchyard.embedded.logbook import LogBook
from batchyard.errors import from_os_error

_READ_SIZE = 1 << 20
#: nothing has happened for so long: time to look at pipes
_IDLE_S = 0.004
#: more than this is not kept in memory, and gets a file
_SHORT_OUTPUT = 1 << 18
_CLOSE_PATIENCE_S = 10.0
#: what a pipe holds as it is made
_PIPE_SIZE = 1 << 16
#: what a pipe that is watched may hold; a chatty child then wakes us less often
_WATCHED_PIPE_SIZE = 1 << 20
#: the variable that carries the mark
_MARK_NAME = b"BATCHYARD_TOKEN="


class Exit(NamedTuple):
    """A process has ended, and has been reaped."""

    process: Process
    #: 128 + n where signal n ended it
    exit_code: int
    user_s: float
    system_s: float
    max_rss_kib: int


class Output:
    """One attempt's output: a pipe, and the file it goes to once somebody looks."""

    __slots__ = (
        "file",
        "is_long",
        "is_watched",
        "length",
        "mark",
        "name",
        "read_end",
        "tail",
        "write_end",
    )

    def __init__(self, name: tuple[str, int, int], mark: bytes) -> None:
        #: step, child, attempt: names the file
        self.name = name
        #: what stands in the environment of everything that the attempt starts
        self.mark = mark
        self.read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_end, False)
        self.file: int | None = None
        #: whether the pipe is in the epoll
        self.is_watched = False
        #: whether it has run for a tick, and so has a file as soon as it writes
        self.is_long = False
        self.length = 0
        #: what was read while there was no file
        self.tail = b""


class Process:
    __slots__ = ("output", "owner", "pid", "pidfd")

    def __init__(self, pid: int, output: Output, owner: object, pidfd: int | None = None) -> None:
        self.pid = pid
        #: None where a thread waits for it
        self.pidfd = pidfd
        self.output = output
        #: whatever the caller wants to find it by
        self.owner = owner


class Spawner:
    def __init__(self, logs: LogBook) -> None:
        self.lock = threading.Lock()
        self._logs = logs
        self._epoll = select.epoll()
        self.null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        #: by pid, and those whose end the epoll tells by pidfd
        self._processes: dict[int, Process] = {}
        self._by_pidfd: dict[int, Process] = {}
        self._watched: dict[int, Output] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        #: what was this process's child before it was an engine, and the sessions that such are in
        self._foreign = set(proc.children_of_this_process())
        self._foreign_sessions = {proc.session_of(pid) for pid in self._foreign} | {os.getsid(0)}
        #: marks of the attempts that are under way
        self._marks: set[bytes] = set()
        #: what threads are starting at this moment, whatever they call it
        self.being_started: set[object] = set()
        #: what looks like an orphan -> what was being started then, and may be it
        self._suspects: dict[int, set[object]] = {}
        proc.adopt_orphans()

    @property
    def wake_fd(self) -> int:
        """A byte written here ends a ``wait``: for signal.set_wakeup_fd."""
        return self._wake_write

    def wake(self) -> None:
        """From any thread: ends a ``wait``."""
        with suppress(BlockingIOError):  # full: it will wake up anyway
            os.write(self._wake_write, b"\0")

    # -- processes ------------------------------------------------------------------------------------------

    def spawn(
        self,
        program: str,
        argv: tuple[str, ...],
        environ: dict[bytes, bytes],
        output: Output,
        owner: object,
    ) -> Process:
        """Starts it as the leader of a session of its own, its stdout and stderr one pipe. Raises OSError."""
        pid = spawning.spawn(program, argv, environ, self.null, output.write_end)
        process = Process(pid, output, owner, self._watched_pidfd(pid))
        assert process.pidfd is not None
        self._by_pidfd[process.pidfd] = process
        self._processes[pid] = process
        return process

    def adopt(self, process: Process) -> None:
        """One that a thread has started and waits for. Without the lock: a single step."""
        self._processes[process.pid] = process

    def in_slots(self) -> list[Process]:
        """Those that were adopted."""
        return [process for process in list(self._processes.values()) if process.pidfd is None]

    def _watched_pidfd(self, pid: int) -> int:
        try:
            pidfd = os.pidfd_open(pid)
            self._epoll.register(pidfd, select.EPOLLIN)
        except OSError as exc:
            # It runs, and nobody would notice its end: not an OSError, which would mean that it never started.
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise from_os_error(exc, "watch a process") from exc
        return pidfd

    def wait(self, timeout_s: float) -> list[Exit]:
        exits = []
        if self._by_pidfd and timeout_s > _IDLE_S:
            events = self._sleep(_IDLE_S)
            if not events:
                # Nobody is in a hurry: now the pipes of what runs longer are worth a look, lest a full one hold it up.
                for process in self._by_pidfd.values():
                    self.watch(process.output)
                events = self._sleep(timeout_s - _IDLE_S)
        else:
            events = self._sleep(timeout_s)
        for fd, _ in events:
            ended = self._by_pidfd.get(fd)
            if ended is not None:
                exits.append(self.reap(ended))
            elif fd in self._watched:
                self._drain(self._watched[fd], at_most=_READ_SIZE)
            elif fd == self._wake_read:
                with suppress(BlockingIOError):
                    os.read(fd, 4096)
        return exits

    def _sleep(self, timeout_s: float) -> list[tuple[int, int]]:
        if timeout_s <= 0:
            return self._epoll.poll(0)
        self.lock.release()
        try:
            return self._epoll.poll(timeout_s)
        finally:
            self.lock.acquire()

    def signal(self, processes: Iterable[Process], signum: int) -> None:
        """To their process groups, and to whatever of their trees has left the group."""
        leaders = [process.pid for process in processes]
        for pid in proc.with_descendants(leaders):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signum)
        # A group member whose parent is gone is nobody's descendant any more, but still in the group. Not a second
        # SIGTERM for the rest: many programs take that for impatience.
        if signum == signal.SIGKILL:
            for pid in leaders:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signum)

    def tick(self) -> None:
        for process in list(self._processes.values()):
            self.watch(process.output)
            self._give_file(process.output)
        self._end_orphans(self._certain_orphans())

    def close(self) -> None:
        processes = list(self._processes.values())
        if processes:
            self.signal(processes, signal.SIGKILL)
        for process in processes:
            self.reap(process)
        self._marks.clear()
        # What ends one generation makes the next one ours.
        deadline = time.monotonic() + _CLOSE_PATIENCE_S
        while (
            self._end_orphans(self._orphans_in(proc.children_of_this_process()))
            and time.monotonic() < deadline
        ):
            time.sleep(0.002)
        for fd in (self.null, self._wake_read, self._wake_write):
            os.close(fd)
        self._epoll.close()

    def reap(self, process: Process) -> Exit:
        # The zombie keeps its number, so the group cannot be anybody else's yet.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        self._processes.pop(process.pid, None)
        if process.pidfd is not None:
            del self._by_pidfd[process.pidfd]
            # Closing is not enough: a child that is between fork and exec still has the file open, so that its entry
            # would live on and speak for whichever process gets the same number next.
            self._epoll.unregister(process.pidfd)
            os.close(process.pidfd)
        code = os.waitstatus_to_exitcode(status)
        exit_code = code if code >= 0 else 128 - code
        return Exit(process, exit_code, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)

    def _orphans_in(self, children: list[int]) -> list[int]:
        """Those that we have not started: what an attempt left behind has become ours. Not what never was ours:
        `server & exec batchyard run ...` makes the server a child of this process."""
        return [pid for pid in children if pid not in self._processes and pid not in self._foreign]

    def _certain_orphans(self) -> list[int]:
        """Without those that a thread may just have started and not adopted yet."""
        children = proc.children_of_this_process()
        being_started = set(self.being_started)
        orphans = self._orphans_in(children)
        self._suspects = {
            pid: self._suspects.get(pid, being_started) & being_started for pid in orphans
        }
        return [pid for pid, maybe in self._suspects.items() if not maybe]

    def _end_orphans(self, orphans: Iterable[int]) -> bool:
        """Ends what ended attempts left behind, as the end of a container would. What an attempt under way has sent to
        the background stays: the attempt may mean to use it. True if some are left."""
        orphans = [pid for pid in orphans if pid not in self._processes]
        unwanted = [pid for pid in orphans if not self._is_wanted(pid)]
        for pid in proc.with_descendants(unwanted) if unwanted else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return bool(unwanted)

    def _is_wanted(self, orphan: int) -> bool:
        if proc.session_of(orphan) in self._foreign_sessions:
            return True
        if not self._marks:
            return False
        environ = proc.environ_of(orphan)
        if any(mark in environ for mark in self._marks):
            return True
        # Without a mark it has cleaned its environment: it may still be in the session of the one that started it.
        return _MARK_NAME not in environ and proc.session_of(orphan) in self._processes

    # -- output ---------------------------------------------------------------------------------------------

    def open_output(self, name: tuple[str, int, int], mark: bytes) -> Output:
        self._marks.add(mark)
        return Output(name, mark)

    def finish(self, output: Output) -> tuple[int | None, int]:
        """The attempt is over: keeps what is left in the pipe. Returns (offset in short.log or None, length)."""
        os.close(
            output.write_end
        )  # so that an empty pipe is at its end, and not just empty for now
        # Bounded: a process that got away could write for ever.
        self._drain(output, at_most=2 * _WATCHED_PIPE_SIZE)
        if self._watched.pop(output.read_end, None):
            self._epoll.unregister(output.read_end)
        self._marks.discard(output.mark)
        os.close(output.read_end)
        if output.file is not None:
            os.close(output.file)
            return None, output.length
        return self._logs.add_short(output.tail), output.length

    def note(self, output: Output, data: bytes) -> None:
        """Adds something of our own to an output."""
        self._drain(output, at_most=_READ_SIZE)
        self._keep(output, data)

    def watch(self, output: Output) -> None:
        """It has been running for a while: from now on its pipe is emptied as it fills."""
        if output.is_watched:
            return
        output.is_watched = True
        # Unprivileged users have a budget for this; without it the pipe stays as it is.
        with suppress(OSError):
            fcntl.fcntl(output.read_end, fcntl.F_SETPIPE_SZ, _WATCHED_PIPE_SIZE)
        self._epoll.register(output.read_end, select.EPOLLIN)
        self._watched[output.read_end] = output

    def _drain(self, output: Output, at_most: int) -> None:
        # A read sets aside as much as it asks for: a small one is cheaper where the pipe cannot hold more.
        size = _READ_SIZE if output.is_watched else _PIPE_SIZE
        while at_most > 0:
            try:
                data = os.read(output.read_end, size)
            except BlockingIOError:
                return
            if not data:
                if self._watched.pop(output.read_end, None):
                    self._epoll.unregister(output.read_end)
                return
            at_most -= len(data)
            self._keep(output, data)

    def _keep(self, output: Output, data: bytes) -> None:
        output.length += len(data)
        if (
            output.file is None
            and not output.is_long
            and len(output.tail) + len(data) <= _SHORT_OUTPUT
        ):
            output.tail += data
            return
        if output.file is None:
            output.file = self._logs.open_own(*output.name)
            data, output.tail = output.tail + data, b""
        self._logs.write(output.file, data)

    def _give_file(self, output: Output) -> None:
        """It has run for a tick: what it has written and will write can be followed from now on."""
        output.is_long = True
        if output.tail:
            output.length -= len(output.tail)
            data, output.tail = output.tail, b""
            self._keep(output, data)
