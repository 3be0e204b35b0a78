"""Calls of the docker command as processes of the spawner: each takes tens of milliseconds, and nobody waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from batchyard.embedded.spawner import Exit, Output, Process, Spawner

#: what a call came to: its exit code, and all that it said
Answered = Callable[[int, str], None]


class _Answer(Output):
    """What one call says. In memory: it belongs in no child's log."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = ("", 0, 0)
        self.mark = b""
        self.read_end = self.write_end = os.memfd_create("docker-answer", os.MFD_CLOEXEC)
        self.file = None
        # The spawner then leaves it alone.
        self.is_watched = True
        self.length = 0
        self.tail = b""

    def take(self) -> str:
        size = os.fstat(self.read_end).st_size
        text = os.pread(self.read_end, size, 0).decode(errors="replace")
        os.close(self.read_end)
        return text


class Calls:
    def __init__(self, spawner: Spawner, client: str, environ: Mapping[str, str]) -> None:
        self._spawner = spawner
        self._client = client
        self.environ = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
        self._to_remove: list[str] = []
        self._is_removing = False
        #: container -> the signal that has yet to reach it
        self._due: dict[str, int] = {}
        #: containers to which a signal is on its way
        self._being_signalled: set[str] = set()

    def call(
        self, argv: Sequence[str], then: Answered, environ: dict[bytes, bytes] | None = None
    ) -> Process:
        """Raises OSError or ValueError where it cannot even be begun."""
        answer = _Answer()

        def ended(exit: Exit) -> None:
            then(exit.exit_code, answer.take())

        try:
            return self._spawner.spawn(
                self._client, ("docker", *argv), environ or self.environ, answer, ended
            )
        except (OSError, ValueError):
            answer.take()
            raise

    def signal(self, containers: Sequence[str], signum: int) -> None:
        """One call for all of them. One that cannot be reached yet, as it is only being started, is tried again."""
        self._due.update(dict.fromkeys(containers, signum))
        self.send_signals()

    def send_signals(self) -> None:
        by_signal: dict[int, list[str]] = {}
        for name, signum in self._due.items():
            if name not in self._being_signalled:
                by_signal.setdefault(signum, []).append(name)
        for signum, names in by_signal.items():
            self._being_signalled.update(names)
            self._send(signum, names)

    def forget(self, container: str) -> None:
        """It is over: no signal needs to reach it any more."""
        self._due.pop(container, None)

    def remove(self, container: str) -> None:
        """One call at a time, for all that have ended meanwhile. One that fails is not tried again."""
        self._to_remove.append(container)
        self._remove_next()

    def _send(self, signum: int, names: Sequence[str]) -> None:
        def answered(exit_code: int, said: str) -> None:
            self._being_signalled.difference_update(names)
            # It repeats the names of those that it reached. None gets a second SIGTERM: many take that for impatience.
            for name in set(said.split()).intersection(names):
                if self._due.get(name) == signum:
                    del self._due[name]

        self.call(("kill", "--signal", str(signum), *names), answered)

    def _remove_next(self) -> None:
        if self._to_remove and not self._is_removing:
            names, self._to_remove = self._to_remove, []
            self._is_removing = True
            self.call(("rm", "--force", "--volumes", *names), self._removed)

    def _removed(self, exit_code: int, said: str) -> None:
        self._is_removing = False
        self._remove_next()
