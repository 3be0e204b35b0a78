"""Start a process that executes a run and outlives the caller."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from batchyard.engines.base import RunState
from batchyard.errors import OperationalError
from batchyard.folder import RunFolder

if TYPE_CHECKING:
    from batchyard.engines.scheduled.run import ScheduledRun

_START_TIMEOUT_S = 30.0
_POLL_S = 0.01


def start(folder: RunFolder, run: ScheduledRun, *, carry_out_old_stops: bool = False) -> None:
    """Start the process, and return when it executes the run.

    ``carry_out_old_stops``: also carry out stop requests from while no process executed the run.
    Raises OperationalError.
    """
    command = [sys.executable, "-m", "batchyard", "execute", str(folder.path)]
    if carry_out_old_stops:
        command.append("--carry-out-old-stops")
    log_start = folder.engine_log.stat().st_size if folder.engine_log.exists() else 0
    with folder.engine_log.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while run.executed_by != process.pid and run.run_state is RunState.RUNNING:
        if process.poll() is not None and run.run_state is RunState.RUNNING:
            text = folder.engine_log.read_bytes()[log_start:].decode(errors="replace").strip()
            raise OperationalError(
                f"the engine of run {folder.run_id} did not start: {text or process.returncode}"
            )
        if time.monotonic() > deadline:
            raise OperationalError(
                f"the engine of run {folder.run_id} did not start within {_START_TIMEOUT_S:.0f} s"
            )
        time.sleep(_POLL_S)
    # Prevents the warning of Python that the process still runs.
    process.returncode = 0
