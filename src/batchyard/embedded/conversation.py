"""A shell in a container that is given its commands one by one, and says what each came to.

`docker exec` would cost 70 ms a command and leave out the image's entrypoint; this costs 1 ms. The shell reads its
script from its stdin, which comes from us through `docker start --interactive`; its exit codes come back on its stdout,
and what the commands write goes to its stderr, the log. When we die the script ends, and with it the shell, after the
command that runs.
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

#: the command in the container
SHELL_ARGV = ("sh", "-s")
#: the command on this machine; $0 docker, $1 the container, $2 and $3 our ends' partners
ATTACH = 'exec "$0" start --attach --interactive "$1" <"/proc/self/fd/$2" >"/proc/self/fd/$3"'

_READ_SIZE = 1 << 16


class Bell:
    """Ends the spawner's wait when somebody has said something: a thread, since the spawner watches only its own."""

    def __init__(self, wake_fd: int) -> None:
        self._wake_fd = wake_fd
        self._epoll = select.epoll()
        self._end_read, self._end_write = os.pipe2(os.O_CLOEXEC)
        self._epoll.register(self._end_read, select.EPOLLIN)
        self._thread = threading.Thread(target=self._ring, name="bell", daemon=True)
        self._thread.start()

    def watch(self, fd: int) -> None:
        # Once for each arrival: whoever is woken reads all there is.
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)

    def forget(self, fd: int) -> None:
        self._epoll.unregister(fd)

    def close(self) -> None:
        os.close(self._end_write)
        self._thread.join()
        os.close(self._end_read)
        self._epoll.close()

    def _ring(self) -> None:
        while self._end_read not in [fd for fd, _ in self._epoll.poll()]:
            with suppress(BlockingIOError):  # there are wakings enough in the pipe
                os.write(self._wake_fd, b"\0")


class Conversation:
    def __init__(self, mark: bytes, bell: Bell) -> None:
        self._bell = bell
        self._their_in, self._our_out = os.pipe2(os.O_CLOEXEC)
        self._our_in, self._their_out = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._our_out, False)
        os.set_blocking(self._our_in, False)
        self._answer = re.compile(re.escape(mark) + rb" (\d+)\n")
        self._answer_length = len(mark) + len(" 255\n")
        self._unsent = _prologue(mark.decode())
        self._unread = b""
        self._is_open = True
        #: what was on its stdout and is no answer, for the log: the greeting of an image's entrypoint
        self.greeting = b""
        bell.watch(self._our_in)
        self.flush()

    @contextmanager
    def their_ends(self) -> Iterator[tuple[str, str]]:
        """What ATTACH is to be given, for as long as it takes to start it."""
        ends = self._their_in, self._their_out
        try:
            for fd in ends:
                os.set_inheritable(fd, True)
            yield str(ends[0]), str(ends[1])
        finally:
            for fd in ends:
                os.close(fd)

    def say(self, command: str) -> None:
        """Gives it a command; its exit code will be heard."""
        self._unsent += f"run {shlex.quote(command)}\n".encode("utf-8", "surrogateescape")
        self.flush()

    def flush(self) -> None:
        """A command may be longer than a pipe: call it again until all is sent."""
        while self._unsent and self._is_open:
            try:
                sent = os.write(self._our_out, self._unsent)
            except BlockingIOError:
                return
            except BrokenPipeError:
                sent = len(self._unsent)  # it is gone, and its end will be told
            self._unsent = self._unsent[sent:]

    def heard(self) -> list[int]:
        """The exit codes that came in; the very first is 0 and says that it is ready."""
        with suppress(BlockingIOError):
            while data := os.read(self._our_in, _READ_SIZE):
                self._unread += data
        codes = []
        while found := self._answer.search(self._unread):
            self.greeting += self._unread[: found.start()]
            self._unread = self._unread[found.end() :]
            codes.append(int(found.group(1)))
        # All but what may be the beginning of an answer.
        is_other = max(0, len(self._unread) - self._answer_length)
        self.greeting += self._unread[:is_other]
        self._unread = self._unread[is_other:]
        return codes

    def end(self) -> None:
        """Nothing more will be said: the shell ends."""
        if self._is_open:
            self._is_open = False
            os.close(self._our_out)

    def close(self) -> None:
        self.end()
        self.greeting += self._unread
        self._unread = b""
        self._bell.forget(self._our_in)
        os.close(self._our_in)


def _prologue(mark: str) -> bytes:
    # SIGTERM goes to the whole process group: the shell outlives it, to say what the command made of it. A trap, and
    # not "", which the commands would inherit.
    return (
        f"unset {GROUP_SIGNALS}; trap : TERM; exec 3>&1 1>&2\n"
        f'run() {{ sh -c "$1" </dev/null 3>&-; echo "{mark} $?" >&3; }}\n'
        f'echo "{mark} 0" >&3\n'
    ).encode()
