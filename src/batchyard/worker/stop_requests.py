"""Requests to end an attempt early, and how the remaining time is divided."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: fraction of the remaining time that a command has to end by itself before it is killed, with
#: files to upload afterwards and without
_FRACTION_BEFORE_UPLOAD = 0.6
_FRACTION_WITHOUT_UPLOAD = 0.9
#: time reserved for the worker's own exit
_EXIT_S = 1.0


@dataclass(frozen=True, slots=True)
class StopRequest:
    reason: str
    #: when the machine or container is gone, by the clock of StopRequests
    deadline_s: float


class StopRequests:
    """The stop requests of an attempt.

    A signal handler or another thread adds them; the main thread reads them wherever it waits.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        #: what the main thread waits for: None for a stop request, or another object
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # list.append is atomic: a signal handler can run between any two steps.
        self._requests: list[StopRequest] = []

    def add(self, reason: str, remaining_s: float) -> None:
        self._requests.append(StopRequest(reason, self.clock() + remaining_s))
        self.events.put(None)

    @property
    def first(self) -> StopRequest | None:
        """The request with the earliest deadline, if there is any."""
        return min(self._requests, key=lambda request: request.deadline_s, default=None)

    def is_stopping(self) -> bool:
        return bool(self._requests)

    def is_too_late(self) -> bool:
        """Return whether transfers must be given up so that the worker can exit in time."""
        request = self.first
        return request is not None and self.clock() > request.deadline_s - _EXIT_S


def kill_time_s(request: StopRequest, terminated_s: float, has_upload: bool) -> float:
    """Return when a command that got SIGTERM at ``terminated_s`` is killed.

    ``has_upload``: whether files are uploaded afterwards.
    """
    remaining_s = max(0.0, request.deadline_s - terminated_s)
    fraction = _FRACTION_BEFORE_UPLOAD if has_upload else _FRACTION_WITHOUT_UPLOAD
    return terminated_s + remaining_s * fraction
