"""Execute a run of one command: its output on stdout, its exit code as that of `batchyard run`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

import click

from batchyard import operations
from batchyard.engines.base import (
    AttemptDetail,
    Backoff,
    JobDetail,
    RunRecord,
)
from batchyard.engines.busy_service import PatientCaller
from batchyard.errors import BatchyardError


def execute(record: RunRecord) -> int:
    """Execute the run in this process; return the exit code of its command."""
    engine = record.open()
    output = _Output(record)
    output.start()
    try:
        try:
            operations.execute(record, engine, _Notes())
        finally:
            output.finish()
        end = PatientCaller(_say, was_answered=True).call(lambda: operations.find_end(engine))
    except KeyboardInterrupt:
        return operations.STOPPED_EXIT_CODE
    finally:
        engine.close()
    if end.reason:
        _say(f"run {record.run_id}: {end.reason}")
    return end.exit_code


def _say(text: str) -> None:
    with suppress(OSError):
        click.echo(text, err=True)


class _Notes:
    """Passes the notes of a run to stderr, and nothing else: stdout belongs to the command."""

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None: ...

    def attempt_failed(self, attempt: AttemptDetail) -> None: ...

    def note(self, text: str) -> None:
        _say(text)


class _Output:
    """Writes the output of a run to stdout, in a thread beside the execution."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._engine = record.open()
        self._has_output = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Write all that is left, and return."""
        self._is_over.set()
        self._thread.join()

    def _follow(self) -> None:
        try:
            backoff = Backoff(self._engine.log_polling)
            caller = PatientCaller(was_answered=True)
            count = 0
            while not self._is_over.wait(backoff.next_delay_s(count)):
                count += caller.call(self._write_new)
            caller.call(self._write_new)
        except BatchyardError as exc:
            _say(f"the output cannot be shown: {exc.message}")
        finally:
            self._engine.close()

    def _write_new(self) -> int:
        """Write the new output; return the number of its chunks."""
        if not self._has_output:
            # A run that was opened before its jobs were submitted may not know them.
            self._engine.close()
            self._engine = self._record.open()
        count = 0
        jobs = self._engine.describe(self._engine.job_ids)
        for chunk in self._engine.log_reader.follow(jobs):
            count += 1
            self._has_output = True
            # A reader that has gone must not end the run.
            with suppress(OSError):
                sys.stdout.buffer.write(chunk.data)
                sys.stdout.buffer.flush()
        return count
