"""embedded/recorder: what is on disk, and when, while several threads commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchyard.embedded.logbook import LogBook
from batchyard.embedded.recorder import Recorder
from batchyard.embedded.store import AttemptRow, Store
from batchyard.errors import OperationalError
from batchyard.folder import RunFolder

#: Against a hang only.
_PATIENCE_S = 300


class ScriptedStore(Store):
    """Calls ``on_commit`` in each commit, and keeps the children of all written batches."""

    def __init__(self) -> None:
        self.on_commit: Callable[[], None] = lambda: None
        self.batches: list[list[int]] = []

    def commit(self, *, attempts: Any = (), **others: Any) -> None:
        self.on_commit()
        self.batches.append([row.child for row in attempts])


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def recorder(store: ScriptedStore, tmp_path: Path) -> Recorder:
    return Recorder(store, LogBook(RunFolder(tmp_path)))


def end_of(child: int) -> AttemptRow:
    return AttemptRow(0, child, 1, "SUCCEEDED", 0, "", "", 0, 0)


def test_rows_are_on_disk_after_a_commit_and_not_before(
    recorder: Recorder, store: ScriptedStore
) -> None:
    recorder.add_attempt("a", end_of(0))
    recorder.add_attempt("a", end_of(1))
    assert not recorder.has_all_ends({"a", "b"}) and recorder.has_all_ends({"b"})
    recorder.commit([], [])
    assert recorder.has_all_ends({"a"}) and not recorder.has_attempts
    assert store.batches == [[0, 1]]


def test_the_lock_is_free_only_while_the_disk_is_written(
    recorder: Recorder, store: ScriptedStore
) -> None:
    lock = threading.Lock()
    seen = []

    def look() -> None:
        seen.append((lock.locked(), recorder.has_all_ends({"a"})))
        recorder.add_attempt("b", end_of(5))

    store.on_commit = look
    recorder.add_attempt("a", end_of(0))
    with lock:
        recorder.commit_without(lock, [], [])
        assert lock.locked()
    assert seen == [(False, False)]
    assert recorder.has_all_ends({"a"}) and not recorder.has_all_ends({"b"})


def test_a_commit_waits_for_the_batch_before_it(recorder: Recorder, store: ScriptedStore) -> None:
    lock, is_writing, may_write = threading.Lock(), threading.Event(), threading.Event()

    def write_slowly() -> None:
        store.on_commit = lambda: None
        is_writing.set()
        assert may_write.wait(_PATIENCE_S)

    def tick() -> None:
        with lock:
            recorder.commit_without(lock, [], [])

    def start_dependent() -> None:
        with lock:
            recorder.add_attempt("b", end_of(1))
            recorder.commit([], [])

    store.on_commit = write_slowly
    recorder.add_attempt("a", end_of(0))
    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    assert is_writing.wait(_PATIENCE_S)
    starting = threading.Thread(target=start_dependent, daemon=True)
    starting.start()
    starting.join(0.05)
    assert store.batches == [] and not recorder.has_all_ends({"a"})
    may_write.set()
    for thread in (ticking, starting):
        thread.join(_PATIENCE_S)
        assert not thread.is_alive()
    assert store.batches == [[0], [1]]
    assert recorder.has_all_ends({"a", "b"})


def test_nothing_is_committed_after_a_batch_that_was_lost(
    recorder: Recorder, store: ScriptedStore
) -> None:
    lock = threading.Lock()

    def fail() -> None:
        raise OperationalError("the disk is full")

    store.on_commit = fail
    recorder.add_attempt("a", end_of(0))
    with lock, pytest.raises(OperationalError, match="the disk is full"):
        recorder.commit_without(lock, [], [])
    store.on_commit = lambda: None
    recorder.add_attempt("a", end_of(1))
    with lock:
        for commit in (
            lambda: recorder.commit([], []),
            lambda: recorder.commit_without(lock, [], []),
        ):
            with pytest.raises(OperationalError, match="the disk is full"):
                commit()
        assert lock.locked()
    assert store.batches == [] and not recorder.has_all_ends({"a"})


def test_nothing_is_committed_after_output_that_was_lost(
    store: ScriptedStore, tmp_path: Path
) -> None:
    class FullLogBook(LogBook):
        """Loses the first output, since the disk is full, and has room for the next."""

        is_full = True

        def write(self, fd: int, data: bytes) -> None:
            if self.is_full:
                self.is_full = False
                raise OperationalError("the disk is full")
            super().write(fd, data)

    logs = FullLogBook(RunFolder(tmp_path))
    recorder = Recorder(store, logs)
    for child in range(2):
        logs.add_short(b"output of a child\n")
        recorder.add_attempt("a", end_of(child))
        with pytest.raises(OperationalError, match="the disk is full"):
            recorder.commit([], [])
    assert store.batches == [] and not recorder.has_all_ends({"a"})
    logs.close()
