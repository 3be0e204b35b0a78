"""The SQLite file of a run: rows come back, a commit is all or nothing, bad files are errors."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest

from batchyard.batch.jobs import JobState
from batchyard.embedded import use_table
from batchyard.embedded.store import (
    SCHEMA_VERSION,
    AttemptRow,
    CommandRow,
    JobRow,
    StopRequest,
    Store,
)
from batchyard.embedded.use_table import WHOLE_ATTEMPT, UseRow
from batchyard.errors import BrokenStoreError, NewerStoreError, OperationalError
from batchyard.sampling.samples import SampledUse, Series

JOB = JobRow(0, "id-a", "pre", 3, "PENDING", "", (0, 3, 0, 0, 0, 0, 0), 0, 1_000)
OTHER = JobRow(
    1,
    "id-b",
    "post",
    1,
    "FAILED",
    "why: é",
    (0, 0, 0, 0, 0, 0, 1),
    4,
    1_000,
    2_000,
    3_000,
    "not wanted",
)
RETRIED = AttemptRow(0, 0, 1, None, 75, "", "Essential container in task exited", 10, 20)
DONE = AttemptRow(
    0,
    0,
    2,
    "SUCCEEDED",
    0,
    "",
    "Essential container in task exited",
    30,
    40,
    1.5,
    0.25,
    999,
    "0,3",
    7,
    12,
)
COMMAND = CommandRow(0, 1, 0, 1, 0)
NEVER_RAN = AttemptRow(0, 2, 0, "FAILED", None, "", "Dependent Job failed", None, 50)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store.open(path, create=True)
    yield opened
    opened.close()


def make_store(path: Path, children: int = 500) -> Path:
    """A store of some size, closed in order, so that all of it is in one file."""
    with closing(Store.open(path, create=True)) as store:
        rows = [
            AttemptRow(0, child, 1, "SUCCEEDED", 0, "", "x" * 50, 1, 2) for child in range(children)
        ]
        store.commit(new_jobs=[JOB], attempts=rows)
    return path


# -- what goes in comes out --------------------------------------------------------------------


def test_jobs_come_back_as_they_were_in_order(store: Store) -> None:
    store.commit(new_jobs=[OTHER, JOB])
    assert store.jobs() == [JOB, OTHER]


def test_a_job_is_replaced_by_its_newer_row(store: Store) -> None:
    store.commit(new_jobs=[JOB])
    newer = JOB._replace(
        state="SUCCEEDED", counts=(0, 0, 0, 0, 0, 3, 0), attempts=3, started_ms=5, ended_ms=9
    )
    store.commit(jobs=[newer])
    assert store.jobs() == [newer]


def test_attempts_come_back_as_they_were_by_child_and_attempt(store: Store) -> None:
    store.commit(attempts=[NEVER_RAN, DONE, RETRIED])
    assert list(store.attempts(0)) == [RETRIED, DONE, NEVER_RAN]


def test_attempts_are_picked_by_job_child_and_state(store: Store) -> None:
    store.commit(attempts=[RETRIED, DONE, NEVER_RAN, DONE._replace(job=1)])
    assert list(store.attempts(0, child=0)) == [RETRIED, DONE]
    assert list(store.attempts(0, state=JobState.FAILED)) == [NEVER_RAN]
    assert list(store.attempts(0, child=0, state=JobState.SUCCEEDED)) == [DONE]
    assert list(store.attempts(1)) == [DONE._replace(job=1)]
    assert list(store.attempts(2)) == []


def test_an_attempt_recorded_again_has_its_newer_row(store: Store) -> None:
    store.commit(attempts=[RETRIED])
    failed = RETRIED._replace(state="FAILED", exit_code=1)
    store.commit(attempts=[failed])
    assert list(store.attempts(0)) == [failed]


def test_a_command_that_succeeded_is_recorded_once(store: Store) -> None:
    store.commit(commands=[CommandRow(0, 7, 1, 1, 0), CommandRow(0, 2, 0, 1, 0)])
    store.commit(commands=[CommandRow(0, 7, 1, 1, 0), CommandRow(1, 5, 0, 1, 0)])
    assert store.succeeded_commands(0) == [2, 7]
    assert store.succeeded_commands(1) == [5]
    assert store.succeeded_commands(2) == []


def test_commands_come_back_as_they_were_by_number_and_attempt(store: Store) -> None:
    failed = CommandRow(0, 4, 1, 1, 3, 10, 20, 0.5, 0.25, 99, 7, 12)
    again = failed._replace(attempt=2, exit_code=0)
    other = CommandRow(0, 2, 0, 1, 1)
    store.commit(commands=[again, failed, other])
    assert list(store.commands(0)) == [other, failed, again]
    assert list(store.commands(0, number=4)) == [failed, again]
    assert list(store.commands(0, failed_only=True)) == [other, failed]
    assert store.succeeded_commands(0) == [4]


def test_a_file_of_the_version_before_is_updated(path: Path) -> None:
    make_store(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "DROP TABLE sampled_use; DROP TABLE command;"
            "CREATE TABLE command (job INTEGER NOT NULL, number INTEGER NOT"
            " NULL, PRIMARY KEY (job, number)) WITHOUT ROWID; INSERT INTO command VALUES (0, 3);"
            "ALTER TABLE job DROP COLUMN commands_failed;"
            "ALTER TABLE job DROP COLUMN commands_succeeded; PRAGMA user_version=2;"
        )
    with closing(Store.open(path)) as store:
        assert store.jobs() == [JOB]
        assert list(store.commands(0)) == [CommandRow(0, 3, 0, 0, 0)]
        assert list(store.uses(0)) == []
        assert store.total_uses() == {}


def test_two_processes_update_a_file_at_once(path: Path) -> None:
    make_store(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db, ThreadPoolExecutor() as pool:
        db.executescript("DROP TABLE sampled_use; PRAGMA user_version=3;")
        db.execute("BEGIN IMMEDIATE")
        opened = pool.submit(Store.open, path)
        # The other one has seen the old version then, and waits for this transaction.
        wait([opened], timeout=0.5)
        db.execute(use_table.SCHEMA)
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        db.execute("COMMIT")
        with closing(opened.result()) as store:
            assert store.jobs() == [JOB]
            assert store.total_uses() == {}


def test_totals_need_no_function_of_a_recent_sqlite(path: Path) -> None:
    """SQLite has `iif` since 3.32, and systems that are still in use have 3.26 and 3.31."""

    def authorize(action: int, _: object, name: str | None, *rest: object) -> int:
        is_new = action == sqlite3.SQLITE_FUNCTION and name not in ("sum", "max")
        return sqlite3.SQLITE_DENY if is_new else sqlite3.SQLITE_OK

    make_store(path)
    with closing(sqlite3.connect(path)) as db:
        db.set_authorizer(authorize)
        assert use_table.select_totals(db) == {}


def test_a_file_without_the_table_of_uses_has_none(path: Path) -> None:
    make_store(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE sampled_use")
        assert list(use_table.select(db, 0)) == []
        assert use_table.select_longest(db, 0) is None
        assert use_table.select_totals(db) == {}


def test_uses_come_back_by_child_and_with_a_series_for_one_child(store: Store) -> None:
    series = Series((1.0, 2.0), (5, 6), (50, None), (7, 8))
    use = SampledUse(2, 4.0, 1.5, 2.0, 6144, 50.0, 90.0, 8, 16, series)
    short = SampledUse(1, 2.0, 0.0, 0.0, 1)
    rows = [UseRow(0, 3, 1, WHOLE_ATTEMPT, use), UseRow(0, 1, 2, WHOLE_ATTEMPT, short)]
    command = UseRow(0, 3, 1, 7, short)
    store.commit(uses=[*rows, command])
    plain = rows[0]._replace(use=use.without_series())
    assert list(store.uses(0)) == [rows[1], plain]
    assert list(store.uses(0, child=3)) == [rows[0]]
    assert list(store.uses(0, of_commands=True)) == [command]
    assert store.longest_use(0) == rows[0]
    assert store.longest_use(1) is None
    assert store.total_uses() == {0: SampledUse(3, 6.0, 1.0, 2.0, 6144, 50.0, 90.0, 8, 16)}


def test_a_value_is_the_last_that_was_written(store: Store) -> None:
    assert store.value("state") is None
    store.commit(values=[("state", "RUNNING")])
    store.commit(values=[("state", "STOPPED"), ("other", "")])
    assert store.value("state") == "STOPPED"
    assert store.value("other") == ""


def test_stop_requests_come_back_in_order_and_only_the_new_ones(store: Store) -> None:
    assert store.stop_requests(0) == []
    store.request_stop(["id-a", "id-b"], "not wanted: é", 30.0)
    store.request_stop([], "", 0.5)
    first, second = store.stop_requests(0)
    assert first == StopRequest(first.id, ("id-a", "id-b"), "not wanted: é", 30.0)
    assert second == StopRequest(second.id, (), "", 0.5)
    assert store.stop_requests(first.id) == [second]
    assert store.stop_requests(second.id) == []


def test_what_is_written_is_there_for_the_next_process(path: Path) -> None:
    with closing(Store.open(path, create=True)) as store:
        store.commit(
            new_jobs=[JOB],
            attempts=[DONE],
            commands=[COMMAND],
            values=[("state", "RUNNING")],
        )
    with closing(Store.open(path)) as store:
        assert store.jobs() == [JOB]
        assert list(store.attempts(0)) == [DONE]
        assert store.succeeded_commands(0) == [1]
        assert store.value("state") == "RUNNING"


def test_creating_what_is_there_already_keeps_it(path: Path) -> None:
    make_store(path)
    with closing(Store.open(path, create=True)) as store:
        assert store.jobs() == [JOB]


def test_one_connection_sees_at_once_what_another_has_committed(store: Store, path: Path) -> None:
    with closing(Store.open(path)) as other:
        other.request_stop(["id-a"], "enough", 1.0)
        store.commit(new_jobs=[JOB])
        assert [request.reason for request in store.stop_requests(0)] == ["enough"]
        assert other.jobs() == [JOB]


def test_reading_may_go_on_while_something_is_written(store: Store) -> None:
    store.commit(attempts=[RETRIED._replace(child=child) for child in range(100)])
    rows = store.attempts(0)
    first = next(rows)
    store.commit(values=[("state", "RUNNING")])
    assert len([first, *rows]) == 100


# -- all or nothing ----------------------------------------------------------------------------


def test_a_commit_that_cannot_be_made_whole_leaves_nothing(store: Store) -> None:
    store.commit(new_jobs=[JOB])
    bad = DONE._replace(reason=None)  # the schema has it NOT NULL
    with pytest.raises(OperationalError):
        store.commit(
            new_jobs=[OTHER],
            attempts=[RETRIED, bad],
            commands=[COMMAND],
            values=[("state", "x")],
        )
    assert store.jobs() == [JOB]
    assert list(store.attempts(0)) == []
    assert store.succeeded_commands(0) == []
    assert store.value("state") is None


def test_rows_that_fail_while_they_are_made_leave_nothing_and_the_store_goes_on(
    store: Store,
) -> None:
    def rows() -> Iterator[AttemptRow]:
        yield RETRIED
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        store.commit(attempts=rows())
    assert list(store.attempts(0)) == []
    store.commit(attempts=[DONE])
    assert list(store.attempts(0)) == [DONE]


def test_a_new_job_never_replaces_one_that_is_there(store: Store) -> None:
    store.commit(new_jobs=[JOB])
    with pytest.raises(OperationalError):
        store.commit(new_jobs=[JOB._replace(step="another")])
    assert store.jobs() == [JOB]


def test_a_process_killed_inside_a_transaction_leaves_what_was_committed_before(path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from batchyard.embedded.store import AttemptRow, Store

def rows():
    for child in range(1000):
        yield AttemptRow(0, child, 1, "SUCCEEDED", 0, "", "", 1, 2)
    os.kill(os.getpid(), signal.SIGKILL)

store = Store.open(Path({str(path)!r}), create=True)
store.commit(values=[("state", "before")])
store.commit(values=[("state", "after")], attempts=rows())
"""
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -9
    with closing(Store.open(path)) as store:
        assert store.value("state") == "before"
        assert list(store.attempts(0)) == []


# -- files that are no store -------------------------------------------------------------------


def test_a_missing_file_is_a_broken_store_and_is_not_made(path: Path) -> None:
    with pytest.raises(BrokenStoreError, match="is missing") as raised:
        Store.open(path)
    assert str(path) in raised.value.message
    assert raised.value.hint
    assert not path.exists()


def test_a_newer_format_is_refused_and_left_as_it_is(path: Path) -> None:
    make_store(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    old_bytes = path.read_bytes()
    for create in (False, True):
        versions = f"format {SCHEMA_VERSION + 1}; this version reads up to format {SCHEMA_VERSION}"
        with pytest.raises(NewerStoreError, match=versions) as raised:
            Store.open(path, create=create)
        assert "upgrade" in raised.value.hint
    assert path.read_bytes() == old_bytes


@pytest.mark.parametrize(
    "data", [b"hello\n", b"garbage" * 1_000, bytes(5_000)], ids=["short", "long", "zeros"]
)
@pytest.mark.parametrize("create", [False, True])
def test_garbage_is_a_broken_store_and_is_left_as_it_is(
    path: Path, data: bytes, create: bool
) -> None:
    path.write_bytes(data)
    with pytest.raises(BrokenStoreError) as raised:
        Store.open(path, create=create)
    assert str(path) in raised.value.message
    assert raised.value.hint
    assert path.read_bytes() == data


def test_an_empty_file_was_never_finished(path: Path) -> None:
    path.touch()
    with pytest.raises(BrokenStoreError, match="never finished"):
        Store.open(path)


def test_somebody_else_s_database_is_no_store_and_is_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    old_bytes = path.read_bytes()
    with pytest.raises(BrokenStoreError, match="not a batchyard state"):
        Store.open(path)
    assert path.read_bytes() == old_bytes


@pytest.mark.parametrize("length", [10, 100, 1_000, 4_096, 5_000, 20_480, -4_096])
def test_a_truncated_file_is_a_broken_store(path: Path, length: int) -> None:
    size = make_store(path).stat().st_size
    os.truncate(path, length if length > 0 else size + length)
    with pytest.raises(BrokenStoreError) as raised, closing(Store.open(path)) as store:
        store.jobs()
        list(store.attempts(0))
    assert str(path) in raised.value.message


def test_pages_overwritten_in_the_middle_are_a_broken_store(path: Path) -> None:
    make_store(path)
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * (path.stat().st_size - 4_096))
    with pytest.raises(BrokenStoreError), closing(Store.open(path)) as store:
        store.jobs()
        list(store.attempts(0))


def test_a_folder_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OperationalError, match="could not use") as raised:
        Store.open(tmp_path / "none" / "state.db", create=True)
    assert not isinstance(raised.value, BrokenStoreError)
    assert "check that the folder exists" in raised.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_in_is_told_with_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    with pytest.raises(OperationalError, match="could not use") as raised:
        Store.open(folder / "state.db", create=True)
    assert raised.value.hint


def test_every_refusal_exits_3() -> None:
    assert {error.exit_code for error in (OperationalError, BrokenStoreError, NewerStoreError)} == {
        3
    }
