"""Children that succeeded with more memory than they requested, which AWS Batch would have killed.

Processes of this machine have no limit, so such a child succeeds here. It is counted only where it
is certain:

- The kernel gives a process the peak of the process that started it, because posix_spawn uses
  vfork. So a small child seems to be as large as the engine. A peak counts only if it is far above
  the engine's own.
- A peak includes files that the process maps. They can be dropped at any time and no limit kills
  for them. Of a child that runs for a second or longer, only memory without files counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from batchyard.embedded import proc
from batchyard.quick_dataclasses import NamedTuple

if TYPE_CHECKING:
    from batchyard.embedded.runner import Task

#: The counters of memory are inexact by some pages for each processor.
_TRUSTED_ABOVE_OWN_PEAK = 2


#: Key of the store: the peak of the process that executed the run.
ENGINE_PEAK = "engine_peak_kib"


class Excess(NamedTuple):
    """Children of one step that used more memory than they requested."""

    step: str
    #: Number of such children.
    children: int
    #: The child that used most: its number in the step, and its peak.
    index_in_step: int
    peak_kib: int
    requested_mib: int


class MemoryUse:
    """The excesses of a run, by step."""

    def __init__(
        self, stored: str | None = None, own_peak_kib: Callable[[], int] = proc.own_peak_kib
    ) -> None:
        """``stored``: the text that an earlier process of the run has stored."""
        self._by_step = {excess.step: excess for excess in from_text(stored)}
        self._own_peak_kib = own_peak_kib
        #: Whether there is something new to store.
        self.has_changed = False

    def add(self, task: Task, max_rss_kib: int, anonymous_kib: int | None) -> None:
        """Take the peak of an attempt that succeeded.

        ``max_rss_kib``: as the kernel reports it. ``anonymous_kib``: the largest amount without
        files that was seen; None if nobody looked.
        """
        requested_kib = task.resources.memory_mib * 1024
        if max_rss_kib <= requested_kib:
            return
        if anonymous_kib is None:
            is_certain = max_rss_kib > _TRUSTED_ABOVE_OWN_PEAK * self._own_peak_kib()
            peak_kib = max_rss_kib
        else:
            is_certain = anonymous_kib > requested_kib
            peak_kib = anonymous_kib
        if is_certain:
            self._add(task, peak_kib)

    def _add(self, task: Task, peak_kib: int) -> None:
        excess = Excess(task.step, 1, task.index_in_step, peak_kib, task.resources.memory_mib)
        old = self._by_step.get(task.step)
        if old is not None:
            largest = max(old, excess, key=lambda row: row.peak_kib)
            excess = largest._replace(children=old.children + 1)
        self._by_step[task.step] = excess
        self.has_changed = True

    def to_text(self) -> str:
        """Return the text to store."""
        return json.dumps(list(self._by_step.values()))


def find_floor_kib(engine_peak: str | None) -> int:
    """Return up to which amount a peak may be that of the engine; 0 if its peak is not stored."""
    return _TRUSTED_ABOVE_OWN_PEAK * int(engine_peak or 0)


def from_text(stored: str | None) -> list[Excess]:
    """Return the excesses of a stored text; none if there is no text."""
    return [Excess(*row) for row in json.loads(stored or "[]")]
