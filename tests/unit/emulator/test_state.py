"""Documents in memory and on disk: both, or neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchyard.batch.jobs import Resources
from batchyard.embedded.store import Store
from batchyard.emulator.state import QUEUE, EndpointState
from batchyard.errors import OperationalError


class FullDisk:
    """A store that has no room."""

    def commit(self, **rows: object) -> None:
        raise OperationalError("no space left on device")


def yard(store: Any) -> EndpointState:
    return EndpointState(
        scheduler=None,  # type: ignore[arg-type]
        loop=None,  # type: ignore[arg-type]
        store=store,
        region="us-east-1",
        machine=Resources(1, 1),
        instance_type=lambda name: None,
        instance_family=lambda name: [],
        task_maker=lambda number, document: None,  # type: ignore[arg-type, return-value]
        salt="0" * 16,
    )


def test_what_was_saved_is_there_in_the_next_process(tmp_path: Path) -> None:
    first = yard(Store.open(tmp_path / "state.db", create=True))
    first.keep(QUEUE, "a", {"x": 1})
    first.keep(QUEUE, "b", {"x": 2})
    first.save()
    first.forget(QUEUE, "b")
    first.save()
    second = yard(Store.open(tmp_path / "state.db"))
    second.load()
    assert second.all(QUEUE) == [{"x": 1}]


def test_what_cannot_be_saved_has_not_happened(tmp_path: Path) -> None:
    it = yard(Store.open(tmp_path / "state.db", create=True))
    it.keep(QUEUE, "old", {"x": 1})
    it.keep(QUEUE, "gone", {"x": 2})
    it.save()
    store, it.store = it.store, FullDisk()  # type: ignore[assignment]
    it.keep(QUEUE, "old", {"x": 3})
    it.keep(QUEUE, "new", {"x": 4})
    it.forget(QUEUE, "gone")
    with pytest.raises(OperationalError):
        it.save()
    assert dict(it.items(QUEUE)) == {"old": {"x": 1}, "gone": {"x": 2}}
    it.store = store
    it.save()
    again = yard(store)
    again.load()
    assert dict(again.items(QUEUE)) == {"old": {"x": 1}, "gone": {"x": 2}}
