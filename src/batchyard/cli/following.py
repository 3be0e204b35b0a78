"""Following a run from outside: a live table on a terminal, elsewhere a line per change."""

from __future__ import annotations

import time

from batchyard import status
from batchyard.cli import progress
from batchyard.engines.base import Backoff, RunRecord, RunState
from batchyard.status import RunStatus


def follow(record: RunRecord, *, quiet: bool) -> RunStatus:
    """Return the status at the run's end, or once the run turns out to be interrupted."""
    engine = record.open()
    backoff = Backoff(engine.status_polling)
    watcher = progress.watcher_for(quiet=quiet)
    try:
        while True:
            overview = engine.overview()
            if overview.state is not RunState.RUNNING or overview.is_interrupted:
                return status.of_engine(record, engine)
            watcher.jobs_changed(overview.jobs)
            time.sleep(backoff.next_delay_s([job.counts for job in overview.jobs]))
    finally:
        watcher.close()
        engine.close()
