"""Calls of the docker command as processes of the spawner, so that no thread waits for a call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from batchyard.embedded import short_programs
from batchyard.embedded.short_programs import OnAnswer
from batchyard.embedded.spawner import Process, Spawner


class DockerCalls:
    """Starts docker commands, and batches those that signal or remove containers."""

    def __init__(self, spawner: Spawner, client: str, environ: Mapping[str, str]) -> None:
        self._spawner = spawner
        self._client = client
        self.environ = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
        self._to_remove: list[str] = []
        self._is_removing = False
        #: Container -> the signal that has not reached it yet.
        self._due_signals: dict[str, int] = {}
        #: Containers for which a `docker kill` runs.
        self._being_signalled: set[str] = set()

    def call(
        self,
        argv: Sequence[str],
        on_answer: OnAnswer,
        environ: dict[bytes, bytes] | None = None,
        *,
        keeps_output: bool = True,
    ) -> Process:
        """Start a docker command. Raises OSError or ValueError if it cannot be started."""
        return short_programs.start(
            self._spawner,
            self._client,
            ("docker", *argv),
            environ or self.environ,
            on_answer,
            keeps_output=keeps_output,
        )

    def signal(self, containers: Sequence[str], signum: int) -> None:
        """Send a signal to containers. A container that is still starting gets it later."""
        self._due_signals.update(dict.fromkeys(containers, signum))
        self.send_signals()

    def send_signals(self) -> None:
        """Start a `docker kill` for all containers that a signal has not reached yet."""
        by_signal: dict[int, list[str]] = {}
        for name, signum in self._due_signals.items():
            if name not in self._being_signalled:
                by_signal.setdefault(signum, []).append(name)
        for signum, names in by_signal.items():
            self._being_signalled.update(names)
            self._send(signum, names)

    def forget(self, container: str) -> None:
        """Drop the signal of a container that is over."""
        self._due_signals.pop(container, None)

    def remove(self, container: str) -> None:
        """Remove a container that has ended.

        One `docker rm` at a time removes all that have ended meanwhile. Failures are ignored.
        """
        self._to_remove.append(container)
        self._remove_next()

    def _send(self, signum: int, names: Sequence[str]) -> None:
        def on_answer(exit_code: int, output: str) -> None:
            self._being_signalled.difference_update(names)
            # `docker kill` prints the names that it reached. A container gets SIGTERM only once,
            # since many programs exit at once on a second one.
            for name in set(output.split()).intersection(names):
                if self._due_signals.get(name) == signum:
                    del self._due_signals[name]

        self.call(("kill", "--signal", str(signum), *names), on_answer)

    def _remove_next(self) -> None:
        if self._to_remove and not self._is_removing:
            names, self._to_remove = self._to_remove, []
            self._is_removing = True
            self.call(("rm", "--force", "--volumes", *names), self._on_removed)

    def _on_removed(self, exit_code: int, output: str) -> None:
        self._is_removing = False
        self._remove_next()
