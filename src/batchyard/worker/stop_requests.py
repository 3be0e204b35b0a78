"""Requests to end an attempt early, and how the remaining time is divided.

An attempt that ends before its host is gone frees a slot on that host, and AWS Batch can place the
next attempt there, which ends at once again. So an attempt that was ended by a spot notice waits
for the end of the host before it requests the next attempt.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from batchyard.quick_dataclasses import dataclass

#: fraction of the remaining time that a command has to end by itself before it is killed, with
#: files to upload afterwards and without
_FRACTION_BEFORE_UPLOAD = 0.6
_FRACTION_WITHOUT_UPLOAD = 0.9
#: time reserved for the worker's own exit
_EXIT_S = 1.0
#: EC2 takes a machine no earlier than it said, in whole seconds, and often somewhat later
_LATE_HOST_S = 3.0


@dataclass(frozen=True, slots=True)
class StopRequest:
    reason: str
    #: when the machine or container is gone, by the clock of StopRequests
    deadline_s: float
    #: whether the whole host ends at the deadline, and the container may stay until then
    ends_host: bool = False


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

    def add(self, reason: str, remaining_s: float, *, ends_host: bool = False) -> None:
        self._requests.append(StopRequest(reason, self.clock() + remaining_s, ends_host))
        self.events.put(None)

    @property
    def first(self) -> StopRequest | None:
        """The request with the earliest deadline, if there is any."""
        return min(self._requests, key=lambda request: request.deadline_s, default=None)

    def is_stopping(self) -> bool:
        return bool(self._requests)

    def has_signal(self) -> bool:
        """Return whether this container itself was asked to end, and not only its host."""
        return any(not request.ends_host for request in self._requests)

    def is_too_late(self) -> bool:
        """Return whether transfers must be given up so that the worker can exit in time."""
        request = self.first
        return request is not None and self.clock() > request.deadline_s - _EXIT_S

    def time_until_host_ends_s(self) -> float:
        """Return how long the attempt keeps its slot after its work; 0 if it exits at once.

        It exits at once if no notice came, or if the container itself was asked to end.
        """
        if not self._requests or not all(request.ends_host for request in self._requests):
            return 0.0
        deadline_s = min(request.deadline_s for request in self._requests)
        return max(0.0, deadline_s + _LATE_HOST_S - self.clock())

    def forget_events(self) -> None:
        """Remove what the main thread has not read, except that a stop was requested."""
        with suppress(queue.Empty):
            while True:
                self.events.get_nowait()
        if self.is_stopping():
            self.events.put(None)

    def wait(self, seconds: float) -> None:
        """Wait that long, or until the attempt is to end early."""
        with suppress(queue.Empty):
            self.events.get(timeout=seconds)

    def wait_until_host_ends(self, max_wait_s: float = float("inf")) -> None:
        """Wait until the host should be gone, or ``max_wait_s``, or a signal."""
        end_s = self.clock() + max_wait_s
        while (wait_s := min(self.time_until_host_ends_s(), end_s - self.clock())) > 0:
            with suppress(queue.Empty):
                self.events.get(timeout=wait_s)


def kill_time_s(request: StopRequest, terminated_s: float, has_upload: bool) -> float:
    """Return when a command that got SIGTERM at ``terminated_s`` is killed.

    ``has_upload``: whether files are uploaded afterwards.
    """
    remaining_s = max(0.0, request.deadline_s - terminated_s)
    fraction = _FRACTION_BEFORE_UPLOAD if has_upload else _FRACTION_WITHOUT_UPLOAD
    return terminated_s + remaining_s * fraction
