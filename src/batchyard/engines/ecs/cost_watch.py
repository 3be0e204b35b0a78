"""Looks at the cost of a run while it executes.

In a thread of its own, since calls of AWS take time and the scheduler must not wait for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from batchyard.engines.base import Overview, Say, Supervise
from batchyard.errors import BatchyardError, BusyServiceError

#: Between two looks, at most: hosts must be recorded before ECS and EC2 forget them.
_MAX_PAUSE_S = 60.0
#: After a look that failed.
_RETRY_S = 10.0
_JOIN_S = 10.0


class CostWatch:
    def __init__(
        self,
        look: Callable[[], Overview],
        supervise: Supervise,
        separate_store: Callable[[], AbstractContextManager[None]],
        say: Say,
        retry_s: float = _RETRY_S,
    ) -> None:
        """``look``: records the hosts of the run and returns its state.

        ``separate_store``: lets the thread read the run without disturbing its execution.
        """
        self._look = look
        self._supervise = supervise
        self._separate_store = separate_store
        self._say = say
        self._retry_s = retry_s
        self._last_problem = ""
        self._is_over = threading.Event()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Look at the cost again and again until the end of the block."""
        thread = threading.Thread(target=self._run, name="cost", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join(_JOIN_S)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._is_over.wait(pause_s):
            try:
                with self._separate_store():
                    pause_s = min(_MAX_PAUSE_S, self._supervise(self._look()))
            except BusyServiceError:
                # The runner reports that AWS cannot be reached.
                pause_s = self._retry_s
            except BatchyardError as exc:
                self._report(exc.message)
                pause_s = self._retry_s
            except Exception as exc:
                # The next look may succeed. Without this thread nobody keeps the cap.
                self._report(f"{type(exc).__name__}: {exc}")
                pause_s = self._retry_s

    def _report(self, problem: str) -> None:
        """Say once that no cap can be kept as long as there is this problem."""
        if problem != self._last_problem:
            self._last_problem = problem
            self._say(f"warning: what the run costs is not known now, nor is a cap kept: {problem}")
