"""The state of a run on disk: one SQLite file. All SQL is in this module and in `use_table`.

Rows are added in batches, each in one transaction with synchronous=FULL, so that they survive a
power cut. An attempt gets its row when it has ended.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from batchyard.batch.jobs import JobState
from batchyard.embedded import use_table
from batchyard.embedded.use_table import UseRow
from batchyard.errors import BrokenStoreError, NewerStoreError, OperationalError
from batchyard.folder import sync_file
from batchyard.quick_dataclasses import NamedTuple
from batchyard.sampling.samples import SampledUse

SCHEMA_VERSION = 4
#: A file of this version can be read as it is, where it cannot be updated.
_OLDEST_READABLE_VERSION = 3

_COMMAND_TABLE = """
-- commands that have ended, of children with several commands; the attempt is that of the child
CREATE TABLE command (
  job INTEGER NOT NULL, number INTEGER NOT NULL, child INTEGER NOT NULL, attempt INTEGER NOT NULL,
  exit_code INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER,
  user_s REAL NOT NULL, system_s REAL NOT NULL, max_rss_kib INTEGER NOT NULL,
  log_offset INTEGER NOT NULL,  -- where its output begins in the output of the attempt
  log_length INTEGER NOT NULL,
  PRIMARY KEY (job, number, attempt)
) WITHOUT ROWID;
CREATE INDEX command_failed ON command (job, number) WHERE exit_code <> 0;
"""

_SCHEMA = (
    """
CREATE TABLE job (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, step TEXT NOT NULL, size INTEGER NOT NULL,
  state TEXT NOT NULL, status_reason TEXT NOT NULL, counts TEXT NOT NULL, attempts INTEGER NOT NULL,
  created_ms INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER,
  -- why all children without an attempt row have failed; NULL if they have not
  rest_reason TEXT,
  -- of a job whose children have several commands: commands that have succeeded or failed for good
  commands_succeeded INTEGER NOT NULL DEFAULT 0, commands_failed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE attempt (
  job INTEGER NOT NULL, child INTEGER NOT NULL, attempt INTEGER NOT NULL,
  state TEXT,  -- SUCCEEDED, FAILED, or NULL where another attempt follows
  exit_code INTEGER, reason TEXT NOT NULL, status_reason TEXT NOT NULL,
  started_ms INTEGER, ended_ms INTEGER NOT NULL,
  user_s REAL NOT NULL, system_s REAL NOT NULL, max_rss_kib INTEGER NOT NULL, gpus TEXT NOT NULL,
  -- position of the output in short.log; NULL if the output has its own file
  log_offset INTEGER, log_length INTEGER,
  place TEXT NOT NULL DEFAULT '',  -- compute environment, `environment/instance`, or slot
  PRIMARY KEY (job, child, attempt)
) WITHOUT ROWID;
CREATE INDEX attempt_failed ON attempt (job, child) WHERE state = 'FAILED';
CREATE TABLE stop_request (
  id INTEGER PRIMARY KEY, job_ids TEXT NOT NULL, reason TEXT NOT NULL, grace_s REAL NOT NULL
);
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""
    + _COMMAND_TABLE
    + use_table.SCHEMA
)

#: What makes a file of one version a file of the next.
_CHANGES = (
    "ALTER TABLE attempt ADD COLUMN place TEXT NOT NULL DEFAULT '';",
    """
ALTER TABLE job ADD COLUMN commands_succeeded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN commands_failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE command RENAME TO old_command;
"""
    + _COMMAND_TABLE
    + """
INSERT INTO command SELECT job, number, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0 FROM old_command;
DROP TABLE old_command;
""",
    use_table.SCHEMA,
)


#: Old versions of SQLite take at most 999 values.
_ROWS_AT_A_TIME = 60
_ATTEMPT_VALUES = "(" + ",".join("?" * 16) + ")"
_INSERT_ATTEMPT = f"INSERT OR REPLACE INTO attempt VALUES {_ATTEMPT_VALUES}"
_INSERT_MANY_ATTEMPTS = (
    f"INSERT OR REPLACE INTO attempt VALUES {','.join([_ATTEMPT_VALUES] * _ROWS_AT_A_TIME)}"
)


class JobRow(NamedTuple):
    """A row of the table `job`."""

    number: int
    id: str
    step: str
    size: int
    state: str
    status_reason: str
    counts: tuple[int, ...]
    attempts: int
    created_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    rest_reason: str | None = None
    commands_succeeded: int = 0
    commands_failed: int = 0


class AttemptRow(NamedTuple):
    """A row of the table `attempt`: an attempt that has ended."""

    job: int
    child: int
    attempt: int
    state: str | None
    exit_code: int | None
    reason: str
    status_reason: str
    started_ms: int | None
    ended_ms: int
    user_s: float = 0.0
    system_s: float = 0.0
    max_rss_kib: int = 0
    gpus: str = ""
    log_offset: int | None = None
    log_length: int | None = None
    #: Name of the compute environment, followed by a slash and the id of the instance, if any.
    place: str = ""

    @property
    def compute_environment(self) -> str:
        return self.place.partition("/")[0]

    @property
    def host_id(self) -> str:
        return self.place.partition("/")[2]


class CommandRow(NamedTuple):
    """A row of the table `command`: a command that has ended, of a child with several commands."""

    job: int
    number: int
    child: int
    #: Attempt of the child; 0 if the command succeeded in the run that this one is a retry of.
    attempt: int
    exit_code: int
    started_ms: int | None = None
    ended_ms: int | None = None
    user_s: float = 0.0
    system_s: float = 0.0
    max_rss_kib: int = 0
    #: Position of the command's output in the output of the attempt.
    log_offset: int = 0
    log_length: int = 0


class StopRequest(NamedTuple):
    """A request of another process to stop jobs."""

    id: int
    job_ids: tuple[str, ...]
    reason: str
    grace_s: float


class Store:
    """The SQLite file of one run. All methods raise OperationalError or BrokenStoreError."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, is_draft: bool) -> None:
        self._db = connection
        self._path = path
        self._is_draft = is_draft

    @classmethod
    def open(cls, path: Path, *, create: bool = False, is_draft: bool = False) -> Store:
        """Open the file, and create it on request. Raises BrokenStoreError if it is missing.

        ``is_draft``: nobody relies on the file before ``close``, which writes all of it to disk.
        """
        if not create and not path.exists():
            raise BrokenStoreError(
                f"{path} is missing: this run has no state",
                hint="start a new run with `batchyard run`",
            )
        with _map_errors(path):
            is_read_only = not create and not os.access(path.parent, os.W_OK)
            # In a read-only folder SQLite cannot create its write-ahead log, and needs `immutable`.
            name = f"{path.absolute().as_uri()}?immutable=1" if is_read_only else str(path)
            # Autocommit mode: only `commit` begins and ends transactions.
            db = sqlite3.connect(
                name, timeout=30, isolation_level=None, check_same_thread=False, uri=is_read_only
            )
            try:
                if is_draft:
                    db.execute("PRAGMA synchronous=OFF")
                _prepare(db, path, create, is_read_only)
                if not is_read_only and not is_draft:
                    db.execute("PRAGMA synchronous=FULL")
            except BaseException:
                db.close()
                raise
            return cls(db, path, is_draft=is_draft)

    def close(self) -> None:
        self._db.close()
        if self._is_draft:
            sync_file(self._path)

    # -- writing -------------------------------------------------------------------------------

    def commit(
        self,
        *,
        new_jobs: Iterable[JobRow] = (),
        jobs: Iterable[JobRow] = (),
        attempts: Iterable[AttemptRow] = (),
        commands: Iterable[CommandRow] = (),
        uses: Iterable[UseRow] = (),
        values: Iterable[tuple[str, str | None]] = (),
    ) -> None:
        """Write all rows in one transaction, which is on disk on return.

        ``values``: pairs of key and value; None removes the key.
        """
        with _map_errors(self._path), self._transaction():
            db = self._db
            db.executemany(
                f"INSERT INTO job VALUES ({_placeholders(14)})", map(_to_columns, new_jobs)
            )
            _insert_attempts(db, attempts)
            db.executemany(f"INSERT OR REPLACE INTO command VALUES ({_placeholders(12)})", commands)
            use_table.insert(db, uses)
            db.executemany(
                f"INSERT OR REPLACE INTO job VALUES ({_placeholders(14)})", map(_to_columns, jobs)
            )
            for key, value in values:
                if value is None:
                    db.execute("DELETE FROM run WHERE key = ?", (key,))
                else:
                    db.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, value))

    def remove_jobs(self) -> None:
        """Remove all jobs with their attempts."""
        with _map_errors(self._path), self._transaction():
            for table in ("job", "attempt", "command", "sampled_use", "stop_request"):
                self._db.execute(f"DELETE FROM {table}")

    def request_stop(self, job_ids: Sequence[str], reason: str, grace_s: float) -> None:
        with _map_errors(self._path):
            self._db.execute(
                "INSERT INTO stop_request (job_ids, reason, grace_s) VALUES (?, ?, ?)",
                (json.dumps(list(job_ids)), reason, grace_s),
            )

    # -- reading -------------------------------------------------------------------------------

    def jobs(self) -> list[JobRow]:
        with _map_errors(self._path):
            rows = self._db.execute("SELECT * FROM job ORDER BY number").fetchall()
        return [JobRow._make((*row[:6], tuple(json.loads(row[6])), *row[7:])) for row in rows]

    def attempts(
        self,
        job: int,
        *,
        child: int | None = None,
        state: JobState | None = None,
        started_only: bool = False,
        since_ms: int | None = None,
    ) -> Iterator[AttemptRow]:
        sql, values = "SELECT * FROM attempt WHERE job = ?", [job]
        if child is not None:
            sql, values = sql + " AND child = ?", [*values, child]
        if state is not None:
            sql += f" AND state = '{state.value}'"
        if started_only:
            sql += " AND attempt > 0"
        if since_ms is not None:
            sql, values = sql + " AND ended_ms >= ?", [*values, since_ms]
        with _map_errors(self._path):
            for row in self._db.execute(sql + " ORDER BY child, attempt", values):
                yield AttemptRow(*row)

    def uses(
        self, job: int, *, child: int | None = None, of_commands: bool = False
    ) -> Iterator[UseRow]:
        """Return what sampled attempts have used, by child and attempt; or commands, by number.

        Only the use of one ``child`` has its series.
        """
        with _map_errors(self._path):
            yield from use_table.select(self._db, job, child, of_commands=of_commands)

    def longest_use(self, job: int) -> UseRow | None:
        """Return the use of the attempt with the longest samples, with its series."""
        with _map_errors(self._path):
            return use_table.select_longest(self._db, job)

    def total_uses(self) -> dict[int, SampledUse]:
        """Return job -> what its sampled attempts have used together."""
        with _map_errors(self._path):
            return use_table.select_totals(self._db)

    def has_use(self, job: int, child: int, attempt: int) -> bool:
        """Return whether an attempt has ended and was sampled."""
        with _map_errors(self._path):
            return use_table.contains(self._db, job, child, attempt)

    def succeeded_commands(self, job: int) -> list[int]:
        """Return the numbers of the commands that have succeeded, of children with several."""
        with _map_errors(self._path):
            rows = self._db.execute(
                "SELECT number FROM command WHERE job = ? AND exit_code = 0 ORDER BY number", (job,)
            )
            return [number for (number,) in rows]

    def commands(
        self, job: int, *, number: int | None = None, failed_only: bool = False
    ) -> Iterator[CommandRow]:
        """Return the ended commands of children with several, by number and attempt.

        ``failed_only``: without commands that succeeded. A failed command may have succeeded in a
        later attempt.
        """
        sql, values = "SELECT * FROM command WHERE job = ?", [job]
        if number is not None:
            sql, values = sql + " AND number = ?", [*values, number]
        if failed_only:
            sql += " AND exit_code <> 0"
        with _map_errors(self._path):
            for row in self._db.execute(sql + " ORDER BY number, attempt", values):
                yield CommandRow(*row)

    def durations(self, job: int, *, of_commands: bool) -> Iterator[tuple[int, float]]:
        """Return (number, seconds) of what has succeeded: children, or ``of_commands``."""
        sql = (
            "SELECT child, ended_ms - started_ms FROM attempt WHERE job = ? AND state = 'SUCCEEDED'"
        )
        if of_commands:
            sql = (
                "SELECT number, ended_ms - started_ms FROM command WHERE job = ? AND exit_code = 0"
            )
        with _map_errors(self._path):
            for number, duration_ms in self._db.execute(sql, (job,)):
                if duration_ms is not None:
                    yield number, duration_ms / 1000

    def stop_requests(self, last_id: int) -> list[StopRequest]:
        """Return the stop requests with ids above ``last_id``."""
        with _map_errors(self._path):
            rows = self._db.execute(
                "SELECT * FROM stop_request WHERE id > ? ORDER BY id", (last_id,)
            ).fetchall()
        return [StopRequest(row[0], tuple(json.loads(row[1])), row[2], row[3]) for row in rows]

    def last_stop_request(self) -> int:
        with _map_errors(self._path):
            return int(
                self._db.execute("SELECT coalesce(max(id), 0) FROM stop_request").fetchone()[0]
            )

    def scales(self) -> dict[str, int]:
        """Return step -> children at once that another process has requested."""
        with _map_errors(self._path):
            rows = self._db.execute(
                "SELECT key, value FROM run WHERE key >= 'scale/' AND key < 'scale0'"
            ).fetchall()
        return {key.removeprefix("scale/"): int(value) for key, value in rows}

    def request_scale(self, step: str, children: int) -> None:
        self.commit(values=[(f"scale/{step}", str(children))])

    def value(self, key: str) -> str | None:
        with _map_errors(self._path):
            row = self._db.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def values(self) -> list[tuple[str, str]]:
        """Return all keys and values."""
        with _map_errors(self._path):
            return self._db.execute("SELECT key, value FROM run").fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def _insert_attempts(db: sqlite3.Connection, rows: Iterable[AttemptRow]) -> None:
    """Insert many rows at a time: each statement gives the interpreter lock to another thread."""
    rows = iter(rows)
    while len(batch := list(islice(rows, _ROWS_AT_A_TIME))) == _ROWS_AT_A_TIME:
        db.execute(_INSERT_MANY_ATTEMPTS, list(chain.from_iterable(batch)))
    db.executemany(_INSERT_ATTEMPT, batch)


def _prepare(db: sqlite3.Connection, path: Path, create: bool, is_read_only: bool) -> None:
    """Check the version of the file, and create or update its tables."""
    version = _read_version(db)
    if version > SCHEMA_VERSION:
        raise NewerStoreError(
            f"{path} was written by a newer batchyard (format {version}; "
            f"this version reads up to format {SCHEMA_VERSION})",
            hint="upgrade batchyard, or use the version that made the run",
        )
    if not version and not create:
        raise BrokenStoreError(f"{path} is not a batchyard state, or was never finished")
    if is_read_only:
        if version < _OLDEST_READABLE_VERSION:
            raise OperationalError(
                f"{path} was written by an older batchyard, and cannot be updated here",
                hint="give yourself write permission there",
            )
        return
    db.execute("PRAGMA journal_mode=WAL")
    if not version:
        db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
    elif version < SCHEMA_VERSION:
        _update(db, version)


def _update(db: sqlite3.Connection, version: int) -> None:
    """Make a file of this older version one of the present version."""
    changes = "".join((*_CHANGES[version - 1 :], f"PRAGMA user_version={SCHEMA_VERSION};"))
    try:
        db.executescript(f"BEGIN IMMEDIATE; {changes} COMMIT;")
    except sqlite3.OperationalError:
        if db.in_transaction:
            db.execute("ROLLBACK")
        # While this process waited for the lock, another one has made the same changes.
        if _read_version(db) != SCHEMA_VERSION:
            raise


def _read_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _placeholders(count: int) -> str:
    return ", ".join("?" * count)


def _to_columns(row: JobRow) -> tuple[object, ...]:
    return (*row[:6], json.dumps(row.counts), *row[7:])


@contextmanager
def _map_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into OperationalError or BrokenStoreError, with a hint."""
    try:
        yield
    except sqlite3.OperationalError as exc:
        code = exc.sqlite_errorcode & 0xFF if hasattr(exc, "sqlite_errorcode") else 0
        hints = {
            sqlite3.SQLITE_FULL: "free space on the disk, then run `batchyard resume`",
            sqlite3.SQLITE_READONLY: "give yourself write permission there",
            sqlite3.SQLITE_CANTOPEN: "check that the folder exists and that you may write in it",
            sqlite3.SQLITE_IOERR: "check that the disk is mounted and not full, then run "
            "`batchyard resume`",
            sqlite3.SQLITE_BUSY: "another process keeps the file locked; try again",
        }
        raise OperationalError(f"could not use {path}: {exc}", hint=hints.get(code, "")) from exc
    except sqlite3.DatabaseError as exc:
        raise BrokenStoreError(
            f"{path} cannot be read: {exc}",
            hint="the logs beside the file remain; start a new run",
        ) from exc
