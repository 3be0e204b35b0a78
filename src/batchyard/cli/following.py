"""Show the progress of a run that another process executes: a live table, or lines."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from batchyard import status
from batchyard.cli import progress
from batchyard.engines.base import Backoff, RunRecord, RunState
from batchyard.engines.busy_service import PatientCaller
from batchyard.errors import BatchyardError
from batchyard.folder import home_flag
from batchyard.status import RunStatus
from batchyard.supervision import Supervisor


def follow(record: RunRecord, *, quiet: bool) -> RunStatus:
    """Wait until the run has ended or is interrupted, and return its status."""
    engine = record.open()
    backoff = Backoff(engine.status_polling)
    watcher = progress.watcher_for(record.plan, quiet=quiet)
    supervise = Supervisor(record, engine, watcher.note)
    caller = PatientCaller(watcher.note)
    is_running = False
    try:
        while True:
            overview = caller.call(engine.overview)
            engine.record_usage(overview)
            is_running = overview.state is RunState.RUNNING and not overview.is_interrupted
            if not is_running:
                return caller.call(lambda: status.of_engine(record, engine))
            watcher.jobs_changed(overview.jobs)
            look_s = caller.call(partial(supervise, overview))
            time.sleep(min(look_s, backoff.next_delay_s([job.counts for job in overview.jobs])))
    except (KeyboardInterrupt, BatchyardError):
        if is_running:
            flags = home_flag(record.folder, Path.cwd())
            watcher.note(
                "the run goes on without this command: "
                f"`batchyard status {record.run_id}{flags} --watch` follows it again"
            )
        raise
    finally:
        watcher.close()
        engine.close()
