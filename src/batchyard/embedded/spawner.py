"""Starts processes, collects their output, and reports their ends. Independent of jobs.

One epoll watches pidfds and pipes. The pipe of a process is watched only after a while, so that a
short process costs little. Callers hold ``lock``; ``wait`` releases it while it sleeps. Processes
that the threads of ``slots`` start and wait for are adopted: their output is collected and their
orphans are ended here.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from batchyard.embedded import posix_spawn, proc
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.posix_spawn import NO_FILE
from batchyard.errors import from_os_error
from batchyard.quick_dataclasses import NamedTuple

_READ_SIZE = 1 << 20
#: After so long without an event, pipes are watched.
_IDLE_S = 0.004
#: Output longer than this gets a file.
_MAX_SHORT_OUTPUT_BYTES = 1 << 18
_CLOSE_PATIENCE_S = 10.0
#: Default capacity of a pipe.
_PIPE_SIZE = 1 << 16
#: Capacity of a watched pipe: a child with much output then causes fewer events.
_WATCHED_PIPE_SIZE = 1 << 20
#: The variable with the mark of an attempt.
_MARK_NAME = b"BATCHYARD_TOKEN="


class Exit(NamedTuple):
    """The end of a process, which has been reaped."""

    process: Process
    #: 128 + n if signal n ended the process.
    exit_code: int
    user_s: float
    system_s: float
    max_rss_kib: int


class Output:
    """The output of an attempt: a pipe, and a file once the attempt runs for a while.

    The output of a single short process is here at its end, without a pipe.
    """

    __slots__ = (
        "boundaries",
        "file",
        "held_back",
        "is_long",
        "is_watched",
        "length",
        "mark",
        "name",
        "read_end",
        "separator",
        "tail",
        "write_end",
    )

    def __init__(self, name: tuple[str, int, int], mark: bytes) -> None:
        #: Step, child and attempt, for the name of the file.
        self.name = name
        #: The text in the environment of all processes of the attempt.
        self.mark = mark
        #: The pipe. NO_FILE for one process that opens its own, until it has run for some time.
        self.read_end = self.write_end = NO_FILE
        self.file: int | None = None
        #: Whether the epoll watches the pipe.
        self.is_watched = False
        #: Whether the attempt has run for a tick. Its output then goes to a file.
        self.is_long = False
        self.length = 0
        #: Output that was read while there was no file.
        self.tail = b""
        #: Text that ends the output of each command, and is not stored; None: there is none.
        self.separator: bytes | None = None
        #: Length of the output at each separator that was read and not taken yet.
        self.boundaries: list[int] = []
        #: The end of what was read, if a separator may begin there.
        self.held_back = b""

    @property
    def has_pipe(self) -> bool:
        return self.read_end != NO_FILE

    def open_pipe(self) -> None:
        self.read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_end, False)

    def remove_separators(self, data: bytes) -> bytes:
        """Return new output without separators, and note where each of them was."""
        if self.separator is None:
            return data
        *parts, rest = (self.held_back + data).split(self.separator)
        length = self.length
        for part in parts:
            length += len(part)
            self.boundaries.append(length)
        begun = _count_begun(rest, self.separator)
        self.held_back = rest[len(rest) - begun :]
        return b"".join(parts) + rest[: len(rest) - begun]


def _count_begun(data: bytes, separator: bytes) -> int:
    """Return how many bytes of a separator the data ends with; 0 if none has begun."""
    longest = min(len(data), len(separator) - 1)
    return next((n for n in range(longest, 0, -1) if data.endswith(separator[:n])), 0)


class Process:
    """A process that runs."""

    __slots__ = ("is_reaped", "output", "owner", "pid", "pidfd")

    def __init__(self, pid: int, output: Output, owner: object, pidfd: int | None = None) -> None:
        self.pid = pid
        self.is_reaped = False
        #: None if a thread of the slots waits for the process.
        self.pidfd = pidfd
        self.output = output
        #: Any object of the caller.
        self.owner = owner


def exit_code_of(status: int) -> int:
    """Return the exit code of a status of wait(2): 128 + n if signal n ended the process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class Spawner:
    """All processes of a runner."""

    def __init__(self, logs: LogBook) -> None:
        self.lock = threading.Lock()
        #: Held while processes are reaped or get signals: after that, another process may have
        #: the pid. Taken with ``lock`` held or without it, never the other way round.
        self._reap_lock = threading.Lock()
        self._logs = logs
        self._epoll = select.epoll()
        self.null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        #: All processes by pid.
        self._processes: dict[int, Process] = {}
        #: Processes whose end the epoll reports, by pidfd.
        self._by_pidfd: dict[int, Process] = {}
        self._watched: dict[int, Output] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        #: Children that this process had before it became an engine, and their sessions.
        self._inherited_children = set(proc.children_of_this_process())
        self._inherited_sessions = {proc.session_of(pid) for pid in self._inherited_children} | {
            os.getsid(0)
        }
        #: Marks of the attempts that run.
        self._marks: set[bytes] = set()
        #: Launches that threads of the slots are starting at this moment.
        self.being_started: set[object] = set()
        #: Pid of a possible orphan -> the launches of that moment, one of which may be the process.
        self._suspects: dict[int, set[object]] = {}
        posix_spawn.restore_child_signal()
        proc.adopt_orphans()

    @property
    def wake_fd(self) -> int:
        """A file for signal.set_wakeup_fd: a byte written to it ends a ``wait``."""
        return self._wake_write

    def wake(self) -> None:
        """End a ``wait``. May be called from any thread."""
        with suppress(BlockingIOError):  # a full pipe ends the wait anyway
            os.write(self._wake_write, b"\0")

    # -- processes -----------------------------------------------------------------------------

    def spawn(
        self,
        program: str,
        argv: tuple[str, ...],
        environ: Mapping[bytes, bytes],
        output: Output,
        owner: object,
    ) -> Process:
        """Start a program as the leader of a new session, with ``output`` as stdout and stderr.

        Raises OSError or ValueError if the program cannot be started.
        """
        pid = posix_spawn.spawn(program, argv, environ, self.null, output.write_end)
        process = Process(pid, output, owner, self._watch_end(pid))
        assert process.pidfd is not None
        self._by_pidfd[process.pidfd] = process
        self._processes[pid] = process
        return process

    def adopt(self, process: Process) -> None:
        """Add a process that a thread has started and waits for. Needs no lock: it is atomic."""
        self._processes[process.pid] = process

    def list_adopted(self) -> list[Process]:
        """Return the processes that were adopted."""
        return [process for process in list(self._processes.values()) if process.pidfd is None]

    def _watch_end(self, pid: int) -> int:
        """Return a pidfd of the process, which the epoll watches."""
        try:
            pidfd = os.pidfd_open(pid)
            self._epoll.register(pidfd, select.EPOLLIN)
        except OSError as exc:
            # The end of the process would not be noticed. Not an OSError, which would mean that
            # the process was never started.
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise from_os_error(exc, "watch a process") from exc
        return pidfd

    def wait(self, timeout_s: float) -> list[Exit]:
        """Wait for events, collect output, and return the processes that have ended."""
        exits = []
        for fd, _ in self._poll(timeout_s):
            process = self._by_pidfd.get(fd)
            if process is not None:
                exits.append(self.reap(process))
            elif fd in self._watched:
                self._drain(self._watched[fd], at_most=_READ_SIZE)
            elif fd == self._wake_read:
                with suppress(BlockingIOError):
                    os.read(fd, 4096)
        return exits

    def _poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return events. After a short time without any, watch the pipes of all processes."""
        if not self._by_pidfd or timeout_s <= _IDLE_S:
            return self._sleep(timeout_s)
        events = self._sleep(_IDLE_S)
        if events:
            return events
        for process in self._by_pidfd.values():
            self.watch(process.output)
        return self._sleep(timeout_s - _IDLE_S)

    def _sleep(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return events. Releases the lock while it waits."""
        if timeout_s <= 0:
            return self._epoll.poll(0)
        self.lock.release()
        try:
            return self._epoll.poll(timeout_s)
        finally:
            self.lock.acquire()

    def signal(self, processes: Iterable[Process], signum: int) -> None:
        """Send a signal to all descendants of the processes, and SIGKILL also to their groups.

        Processes that were reaped are ignored.
        """
        with self._reap_lock:
            leaders = [process.pid for process in processes if not process.is_reaped]
            for pid in proc.list_with_descendants(leaders):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signum)
            # A group member whose parent is gone is no descendant. Other signals are not sent to
            # the group: many programs exit at once on a second SIGTERM.
            if signum == signal.SIGKILL:
                for pid in leaders:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signum)

    def tick(self) -> None:
        """Give files to the output of all processes, and end orphans."""
        for process in list(self._processes.values()):
            self.watch(process.output)
            self._move_to_file(process.output)
        self._end_orphans(self._certain_orphans())

    def close(self) -> None:
        processes = list(self._processes.values())
        if processes:
            self.signal(processes, signal.SIGKILL)
        for process in processes:
            self.reap(process)
        self._marks.clear()
        # The children of an orphan become our children when it ends.
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
        """Kill what is left of the process group, and return the end of the process.

        Needs no lock for a process that was adopted.
        """
        with self._reap_lock:
            # The zombie still has its pid, so that no other process group can have it.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            _, status, usage = os.wait4(process.pid, 0)
            process.is_reaped = True
            self._processes.pop(process.pid, None)
        if process.pidfd is not None:
            del self._by_pidfd[process.pidfd]
            # Closing is not enough: a child between fork and exec still has the file open, so that
            # its entry would remain and report the next process with the same file number.
            self._epoll.unregister(process.pidfd)
            os.close(process.pidfd)
        exit_code = exit_code_of(status)
        return Exit(process, exit_code, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)

    def _orphans_in(self, children: list[int]) -> list[int]:
        """Return the children that an attempt left behind: not started here, and not inherited.

        `server & exec batchyard run ...` makes the server an inherited child.
        """
        return [
            pid
            for pid in children
            if pid not in self._processes and pid not in self._inherited_children
        ]

    def _certain_orphans(self) -> list[int]:
        """Return orphans, without processes that a thread may have started and not adopted yet."""
        # A process that is reaped meanwhile, in another thread, is no orphan.
        processes = set(self._processes)
        # Those of before and after: a process that was listed may have ended since.
        being_started = set(self.being_started)
        children = proc.children_of_this_process()
        being_started |= self.being_started
        orphans = [pid for pid in self._orphans_in(children) if pid not in processes]
        self._suspects = {
            pid: self._suspects.get(pid, being_started) & being_started for pid in orphans
        }
        return [pid for pid, launches in self._suspects.items() if not launches]

    def end_leftovers(self, mark: bytes) -> None:
        """End what an attempt that has finished has left in other sessions, before the next tick.

        For one that was killed: else its next attempt could run beside its commands.
        """
        orphans = self._orphans_in(proc.children_of_this_process())
        self._end_orphans(pid for pid in orphans if mark and mark in proc.environ_of(pid))

    def _end_orphans(self, orphans: Iterable[int]) -> bool:
        """Kill orphans of ended attempts, as the end of a container would. Returns whether any was.

        Background processes of an attempt that runs stay, since the attempt may use them.
        """
        orphans = [pid for pid in orphans if pid not in self._processes]
        leftovers = [pid for pid in orphans if not self._belongs_to_attempt(pid)]
        for pid in proc.list_with_descendants(leftovers) if leftovers else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return bool(leftovers)

    def _belongs_to_attempt(self, orphan: int) -> bool:
        """Return whether the orphan is of a running attempt, or of an inherited session."""
        if proc.session_of(orphan) in self._inherited_sessions:
            return True
        if not self._marks:
            return False
        environ = proc.environ_of(orphan)
        if any(mark in environ for mark in self._marks):
            return True
        # A process that has cleared its environment may still be in the session of its attempt.
        return _MARK_NAME not in environ and proc.session_of(orphan) in self._processes

    # -- output --------------------------------------------------------------------------------

    def open_output(
        self, name: tuple[str, int, int], mark: bytes, *, has_pipe: bool = True
    ) -> Output:
        """Return a new output. ``has_pipe``: False for a process that opens its own pipe."""
        output = Output(name, mark)
        if has_pipe:
            output.open_pipe()
        self._marks.add(mark)
        return output

    def finish(self, output: Output) -> tuple[int | None, int]:
        """Store the last output of an attempt that has ended, and close its files.

        Returns the offset in short.log, or None if the output has a file, and the length.
        """
        self._marks.discard(output.mark)
        if output.has_pipe:
            self._read_to_end(output)
        if output.file is not None:
            os.close(output.file)
            return None, output.length
        return self._logs.add_short(output.tail), output.length

    def _read_to_end(self, output: Output) -> None:
        """Store the last output of the pipe, and close it."""
        # Closed first, so that a read of the empty pipe returns its end.
        os.close(output.write_end)
        # Limited, since a process that escaped could write for ever.
        self._drain(output, at_most=2 * _WATCHED_PIPE_SIZE)
        if output.held_back:
            self._store(output, output.held_back)
        if self._watched.pop(output.read_end, None):
            self._epoll.unregister(output.read_end)
        os.close(output.read_end)

    def discard(self, output: Output) -> None:
        """Close the pipe of an attempt that was not started."""
        if output.has_pipe:
            os.close(output.write_end)
            os.close(output.read_end)
        self._marks.discard(output.mark)

    def collect(self, output: Output) -> int:
        """Store the output that the pipe has now, and return the length of all output so far."""
        if output.has_pipe:
            self._drain(output, at_most=2 * _WATCHED_PIPE_SIZE)
        return output.length

    def append_note(self, output: Output, data: bytes) -> None:
        """Add a message of batchyard to an output."""
        self.collect(output)
        self._store(output, data)

    def watch(self, output: Output) -> None:
        """Read the pipe from now on whenever it has data."""
        if output.is_watched:
            return
        output.is_watched = True
        # Unprivileged users have a limit for this, beyond which the pipe keeps its capacity.
        with suppress(OSError):
            fcntl.fcntl(output.read_end, fcntl.F_SETPIPE_SZ, _WATCHED_PIPE_SIZE)
        self._epoll.register(output.read_end, select.EPOLLIN)
        self._watched[output.read_end] = output

    def _drain(self, output: Output, at_most: int) -> None:
        # A read allocates as much as it asks for, so a small one is cheaper for a small pipe.
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
            self._store(output, output.remove_separators(data))

    def _store(self, output: Output, data: bytes) -> None:
        output.length += len(data)
        if (
            output.file is None
            and not output.is_long
            and len(output.tail) + len(data) <= _MAX_SHORT_OUTPUT_BYTES
        ):
            output.tail += data
            return
        if output.file is None:
            output.file = self._logs.open_child_log(*output.name)
            data, output.tail = output.tail + data, b""
        self._logs.write(output.file, data)

    def _move_to_file(self, output: Output) -> None:
        """Store the output in a file from now on, so that it can be followed."""
        output.is_long = True
        if output.tail:
            output.length -= len(output.tail)
            data, output.tail = output.tail, b""
            self._store(output, data)
