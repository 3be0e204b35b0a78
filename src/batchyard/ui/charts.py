"""The charts of runs, drawn by the code of `batchyard report`, once for all tabs."""

from __future__ import annotations

import threading
import time

from batchyard import report
from batchyard.engines.base import RunRecord, RunState

#: Drawing takes at most a fortieth of a core: charts that took a second are shown for so many.
_REST_FACTOR = 39.0
_MIN_AGE_S = 2.0
_MAX_RUNS = 8


class Charts:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Run -> (its state for the tab that asked, until when it is shown, the document).
        self._drawn: dict[str, tuple[RunState, float, bytes]] = {}

    def draw(self, record: RunRecord, state: RunState) -> bytes:
        """Return an HTML document with the charts of a run. It may be some seconds old.

        ``state``: that of the run for the tab that asks. Charts from before the end of a run are
        not shown after it, since a tab asks only once then.
        """
        # One at a time: a second tab that asks gets what the first has drawn.
        with self._lock:
            drawn_state, until_s, document = self._drawn.pop(record.run_id, (None, 0.0, b""))
            if drawn_state is not state or time.monotonic() >= until_s:
                began_s = time.thread_time()
                document = report.charts_of_run(record, int(time.time() * 1000)).encode()
                used_s = time.thread_time() - began_s
                until_s = time.monotonic() + max(_MIN_AGE_S, used_s * _REST_FACTOR)
            self._drawn[record.run_id] = (state, until_s, document)
            for key in list(self._drawn)[:-_MAX_RUNS]:
                del self._drawn[key]
            return document
