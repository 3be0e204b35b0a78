"""The commands of children, from the lists of the runs that were looked at last.

To find the lines of a list of a million commands takes 70 ms. They do not change, and a mouse that
moves over the children asks eight times a second.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from batchyard.command_texts import CommandTexts
from batchyard.engines.base import RunRecord

_MAX_RUNS = 4


class ChildCommands:
    """Every method can be called by several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Run -> its commands; the run that was looked at last is the last.
        self._texts: dict[str, CommandTexts] = {}

    def texts(self, record: RunRecord, step: str, numbers: Sequence[int]) -> list[str]:
        """Return the commands of these numbers of a step; empty texts if they are not here."""
        with self._lock:  # a list on the disk is read by one thread at a time
            texts = self._texts.pop(record.run_id, None) or CommandTexts(record)
            self._texts[record.run_id] = texts
            for run_id in list(self._texts)[:-_MAX_RUNS]:
                del self._texts[run_id]
            return [texts.text_of(step, number) for number in numbers]
