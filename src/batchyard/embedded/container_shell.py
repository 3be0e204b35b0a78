"""A shell in a container that runs commands one by one, and reports the exit code of each.

`docker exec` would cost 70 ms a command and skip the image's entrypoint; this costs 1 ms. The
shell reads its script from stdin, which is our pipe through `docker start --interactive`. Exit
codes come back on its stdout; what the commands write goes to its stderr, which is the log. Docker
keeps no order between the two, so the shell ends the output of each command with a separator. If
this process dies, the script ends, and so does the shell after the command that runs.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from batchyard.embedded.docker import GROUP_SIGNALS
from batchyard.embedded.runner import COMMAND_VARIABLE

#: The command in the container.
SHELL_ARGV = ("sh", "-s")
#: The command on this machine. $0: docker, $1: container, $2 and $3: file numbers of the pipes.
ATTACH = 'exec "$0" start --attach --interactive "$1" <"/proc/self/fd/$2" >"/proc/self/fd/$3"'

_READ_SIZE = 1 << 16


class PipeWatcher:
    """A thread that ends the spawner's wait when a shell has written to its pipe."""

    def __init__(self, wake_fd: int) -> None:
        self._wake_fd = wake_fd
        self._epoll = select.epoll()
        self._end_read, self._end_write = os.pipe2(os.O_CLOEXEC)
        self._epoll.register(self._end_read, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="pipe-watcher", daemon=True)
        self._thread.start()

    def watch(self, fd: int) -> None:
        # Edge-triggered: one event for each arrival, since the reader reads all there is.
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)

    def forget(self, fd: int) -> None:
        self._epoll.unregister(fd)

    def close(self) -> None:
        os.close(self._end_write)
        self._thread.join()
        os.close(self._end_read)
        self._epoll.close()

    def _run(self) -> None:
        while self._end_read not in [fd for fd, _ in self._epoll.poll()]:
            with suppress(BlockingIOError):  # a full pipe will end the wait anyway
                os.write(self._wake_fd, b"\0")


class ContainerShell:
    """Our side of the two pipes to a shell in a container."""

    def __init__(self, mark: bytes, watcher: PipeWatcher) -> None:
        """``mark`` is unique to the attempt, and precedes each exit code."""
        self._watcher = watcher
        self._shell_stdin, self._to_shell = os.pipe2(os.O_CLOEXEC)
        self._from_shell, self._shell_stdout = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._to_shell, False)
        os.set_blocking(self._from_shell, False)
        self._answer = re.compile(re.escape(mark) + rb" (\d+)\n")
        self._max_answer_bytes = len(mark) + len(" 255\n")
        self._unsent = _prologue(mark.decode())
        self._unread = b""
        self._is_open = True
        #: Other text on the shell's stdout, for the log: what an image's entrypoint prints.
        self.greeting = b""
        watcher.watch(self._from_shell)
        self.flush()

    @contextmanager
    def inheritable_ends(self) -> Iterator[tuple[str, str]]:
        """Provide $2 and $3 of ATTACH while it is started; closes both files afterwards."""
        ends = self._shell_stdin, self._shell_stdout
        try:
            for fd in ends:
                os.set_inheritable(fd, True)
            yield str(ends[0]), str(ends[1])
        finally:
            for fd in ends:
                os.close(fd)

    def run(self, command: str, number: int) -> None:
        """Let the shell run a command. ``take_exit_codes`` returns its exit code later.

        ``number``: value of COMMAND_VARIABLE, which the container's environment has already.
        """
        line = f"{COMMAND_VARIABLE.decode()}={number}; run {shlex.quote(command)}\n"
        self._unsent += line.encode("utf-8", "surrogateescape")
        self.flush()

    def flush(self) -> None:
        """Send as much as the pipe takes. Call it again, since a command may be longer."""
        while self._unsent and self._is_open:
            try:
                sent = os.write(self._to_shell, self._unsent)
            except BlockingIOError:
                return
            except BrokenPipeError:
                sent = len(self._unsent)  # the shell is gone; the spawner reports its end
            self._unsent = self._unsent[sent:]

    def take_exit_codes(self) -> list[int]:
        """Return the exit codes that have arrived. The first is 0 and says that the shell runs."""
        with suppress(BlockingIOError):
            while data := os.read(self._from_shell, _READ_SIZE):
                self._unread += data
        codes = []
        while match := self._answer.search(self._unread):
            self.greeting += self._unread[: match.start()]
            self._unread = self._unread[match.end() :]
            codes.append(int(match.group(1)))
        # The last bytes may be the beginning of an answer.
        greeting_bytes = max(0, len(self._unread) - self._max_answer_bytes)
        self.greeting += self._unread[:greeting_bytes]
        self._unread = self._unread[greeting_bytes:]
        return codes

    def end(self) -> None:
        """Close the shell's stdin, so that it ends after the command that runs."""
        if self._is_open:
            self._is_open = False
            os.close(self._to_shell)

    def close(self) -> None:
        self.end()
        self.greeting += self._unread
        self._unread = b""
        self._watcher.forget(self._from_shell)
        os.close(self._from_shell)


def make_separator(mark: bytes) -> bytes:
    """Return the text that the shell writes to the log after the output of each command."""
    # More than the mark, which a command can print: it is in the environment.
    return b"\0" + mark + b" ended\0"


def _prologue(mark: str) -> bytes:
    """Return the beginning of the shell's script, which defines `run`."""
    # SIGTERM goes to the whole process group. The shell must outlive it, to report the exit code
    # of the command. Hence a trap, and not "", which the commands would inherit.
    return (
        f"unset {GROUP_SIGNALS}; trap : TERM; exec 3>&1 1>&2\n"
        f'run() {{ sh -c "$1" </dev/null 3>&-; set -- $?; '
        f'printf "\\000{mark} ended\\000"; echo "{mark} $1" >&3; }}\n'
        f'echo "{mark} 0" >&3\n'
    ).encode()
