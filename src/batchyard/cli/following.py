"""Show the progress of a run that another process executes: a live table, or lines."""

from __future__ import annotations

import time

from batchyard import status
from batchyard.cli import progress
from batchyard.engines.base import Backoff, RunRecord, RunState
from batchyard.status import RunStatus


def follow(record: RunRecord, *, quiet: bool) -> RunStatus:
    """Wait until the run has ended or is interrupted, and return its status."""
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
