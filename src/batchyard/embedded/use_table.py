"""The table with what sampled attempts and commands have used: a part of the file of a run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator

from batchyard.quick_dataclasses import NamedTuple
from batchyard.sampling.samples import SampledUse, series_from_json, series_to_json

#: Stands for a command's number where the use of the whole attempt is meant.
WHOLE_ATTEMPT = -1

SCHEMA = """
-- what attempts, and commands of children with several, have used, if they were sampled
CREATE TABLE sampled_use (
  job INTEGER NOT NULL, child INTEGER NOT NULL, attempt INTEGER NOT NULL,
  command INTEGER NOT NULL,  -- number of the command; -1: the whole attempt
  samples INTEGER NOT NULL, seconds REAL NOT NULL,
  mean_cpus REAL NOT NULL, peak_cpus REAL NOT NULL, peak_memory_kib INTEGER NOT NULL,
  mean_gpu_percent REAL, peak_gpu_percent REAL,
  peak_gpu_memory_mib INTEGER, gpu_memory_mib INTEGER,
  series TEXT NOT NULL,  -- JSON
  PRIMARY KEY (job, child, attempt, command)
) WITHOUT ROWID;
"""

_USE_COLUMNS = ", ".join(SampledUse._fields[:-1])
_TOTAL_USES = """
SELECT job, sum(samples), sum(seconds), sum(mean_cpus * seconds) / sum(seconds), max(peak_cpus),
  max(peak_memory_kib),
  sum(mean_gpu_percent * seconds) / sum(CASE WHEN mean_gpu_percent IS NOT NULL THEN seconds END),
  max(peak_gpu_percent), max(peak_gpu_memory_mib), max(gpu_memory_mib)
FROM sampled_use WHERE command < 0 GROUP BY job
"""


class UseRow(NamedTuple):
    """What an attempt, or one of its commands, has used: a row of the table `sampled_use`."""

    job: int
    child: int
    attempt: int
    #: WHOLE_ATTEMPT, or the number of a command of a child with several.
    command: int
    use: SampledUse


def insert(db: sqlite3.Connection, rows: Iterable[UseRow]) -> None:
    columns = 4 + len(SampledUse._fields)
    places = ", ".join("?" * columns)
    db.executemany(f"INSERT OR REPLACE INTO sampled_use VALUES ({places})", map(_to_columns, rows))


def select(
    db: sqlite3.Connection, job: int, child: int | None = None, *, of_commands: bool = False
) -> Iterator[UseRow]:
    """See Store.uses."""
    if not _exists(db):
        return
    series = "''" if child is None else "series"
    sql = (
        f"SELECT job, child, attempt, command, {_USE_COLUMNS}, {series} FROM sampled_use"
        f" WHERE job = ? AND command {'>=' if of_commands else '<'} 0"
    )
    values = [job]
    if child is not None:
        sql, values = sql + " AND child = ?", [*values, child]
    order = "command, attempt" if of_commands else "child, attempt"
    for row in db.execute(f"{sql} ORDER BY {order}", values):
        job, child, attempt, command, *columns, text = row
        use_series = series_from_json(json.loads(text or "null"))
        use = SampledUse(*columns)._replace(series=use_series)
        yield UseRow(job, child, attempt, command, use)


def select_longest(db: sqlite3.Connection, job: int) -> UseRow | None:
    """See Store.longest_use."""
    if not _exists(db):
        return None
    sql = (
        "SELECT child FROM sampled_use WHERE job = ? AND command < 0"
        " ORDER BY seconds DESC, child LIMIT 1"
    )
    row = db.execute(sql, (job,)).fetchone()
    if row is None:
        return None
    return max(select(db, job, row[0]), key=lambda use_row: use_row.use.seconds)


def select_totals(db: sqlite3.Connection) -> dict[int, SampledUse]:
    """See Store.total_uses."""
    if not _exists(db):
        return {}
    return {job: SampledUse(*columns) for job, *columns in db.execute(_TOTAL_USES)}


def contains(db: sqlite3.Connection, job: int, child: int, attempt: int) -> bool:
    """See Store.has_use."""
    if not _exists(db):
        return False
    sql = (
        "SELECT EXISTS (SELECT 1 FROM sampled_use"
        " WHERE job = ? AND child = ? AND attempt = ? AND command = ?)"
    )
    return bool(db.execute(sql, (job, child, attempt, WHOLE_ATTEMPT)).fetchone()[0])


def _exists(db: sqlite3.Connection) -> bool:
    """Return whether the table is there. A file of an older version may only be read."""
    sql = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'sampled_use')"
    return bool(db.execute(sql).fetchone()[0])


def _to_columns(row: UseRow) -> tuple[object, ...]:
    series = json.dumps(series_to_json(row.use.series), separators=(",", ":"))
    return (*row[:4], *row.use[:-1], series)
