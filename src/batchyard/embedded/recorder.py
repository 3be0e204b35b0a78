"""Collects the rows of attempts and commands that have ended, and commits them in batches.

The loop's lock protects the rows. Another lock is held while a batch is written, so that a tick can
write without the loop's lock: a disk takes milliseconds, in which children end and start. The lock
for writing is taken with the loop's lock held, never the other way round.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence, Set

from batchyard.embedded.logbook import LogBook
from batchyard.embedded.store import AttemptRow, CommandRow, JobRow, Store
from batchyard.embedded.use_table import UseRow

_Values = Sequence[tuple[str, str | None]]


class Recorder:
    """The rows that are not on disk yet."""

    def __init__(self, store: Store, logs: LogBook) -> None:
        self._store = store
        self._logs = logs
        self._write_lock = threading.Lock()
        self._attempts: list[AttemptRow] = []
        self._commands: list[CommandRow] = []
        self._uses: list[UseRow] = []
        #: Jobs with children that ended since the last commit, and those of the batch that is being
        #: written.
        self._ended: set[str] = set()
        self._being_written: Set[str] = frozenset()
        #: After this error nothing is committed any more: rows before it, or their output, are
        #: missing.
        self._failure: BaseException | None = None

    @property
    def has_attempts(self) -> bool:
        return bool(self._attempts)

    def add_attempt(self, job_id: str, row: AttemptRow) -> None:
        self._attempts.append(row)
        self._ended.add(job_id)

    def add_commands(self, rows: Sequence[CommandRow]) -> None:
        self._commands += rows

    def add_uses(self, rows: Sequence[UseRow]) -> None:
        self._uses += rows

    def has_all_ends(self, job_ids: Set[str]) -> bool:
        """Return whether all ends of children of these jobs are on disk."""
        return self._ended.isdisjoint(job_ids) and self._being_written.isdisjoint(job_ids)

    def commit(self, jobs: Sequence[JobRow], values: _Values) -> None:
        """Write all rows in one transaction. Everything that was added before is on disk then."""
        with self._write_lock:
            self._write(*self._take(), jobs, values)

    def commit_without(self, lock: threading.Lock, jobs: Sequence[JobRow], values: _Values) -> None:
        """Write all rows in one transaction, and release ``lock`` meanwhile."""
        self._write_lock.acquire()
        try:
            rows = self._take()
        except BaseException:
            self._write_lock.release()
            raise
        lock.release()
        try:
            self._write(*rows, jobs, values)
        finally:
            # First, since the thread that has the other lock may be waiting for this one.
            self._write_lock.release()
            lock.acquire()

    def _take(self) -> tuple[list[AttemptRow], list[CommandRow], list[UseRow]]:
        """Return the rows of the next batch. The caller holds both locks."""
        if self._failure is not None:
            raise self._failure
        # The rows refer to the log, so it is written first.
        try:
            self._logs.flush()
        except BaseException as exc:
            self._failure = exc
            raise
        rows = self._attempts, self._commands, self._uses
        self._attempts, self._commands, self._uses = [], [], []
        self._being_written, self._ended = self._ended, set()
        return rows

    def _write(
        self,
        attempts: list[AttemptRow],
        commands: list[CommandRow],
        uses: list[UseRow],
        jobs: Sequence[JobRow],
        values: _Values,
    ) -> None:
        try:
            self._store.commit(
                attempts=attempts, commands=commands, uses=uses, jobs=jobs, values=values
            )
        except BaseException as exc:
            self._failure = exc
            raise
        self._being_written = frozenset()
