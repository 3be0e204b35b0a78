"""What asks an attempt to end before its time, and how the time that is left is shared out."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: of what is left of the machine's time, the part that a command has to end by itself; the rest is for uploads
_SHARE_WITH_UPLOAD = 0.6
_SHARE_ALONE = 0.9
#: of the rest, what is kept for exiting
_SPARE_S = 1.0


@dataclass(frozen=True, slots=True)
class Stop:
    why: str
    #: when nothing will run here any more, by the bell's clock
    deadline: float


class Bell:
    """Rung by a signal handler or another thread, heard by the main thread wherever it waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        #: None for each ring, and whatever else the main thread waits for
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Appending is one step: a signal handler may come between any two others.
        self._rings: list[Stop] = []

    def ring(self, why: str, seconds_left: float) -> None:
        self._rings.append(Stop(why, self.clock() + seconds_left))
        self.events.put(None)

    @property
    def stop(self) -> Stop | None:
        """The one that comes first, if there is any."""
        return min(self._rings, key=lambda stop: stop.deadline, default=None)

    def has_rung(self) -> bool:
        return bool(self._rings)

    def is_too_late(self) -> bool:
        """Whether what is still under way must be given up."""
        stop = self.stop
        return stop is not None and self.clock() > stop.deadline - _SPARE_S


def kill_time(stop: Stop, rang_at: float, saves: bool) -> float:
    """When a command that was asked to end is ended. ``saves``: whether something is uploaded after it."""
    left = max(0.0, stop.deadline - rang_at)
    return rang_at + left * (_SHARE_WITH_UPLOAD if saves else _SHARE_ALONE)
