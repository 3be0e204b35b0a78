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


def make_state(store: Any) -> EndpointState:
    return EndpointState(
        scheduler=None,  # type: ignore[arg-type]
        loop=None,  # type: ignore[arg-type]
        store=store,
        log_files=None,  # type: ignore[arg-type]
        region="us-east-1",
        machine=Resources(1, 1),
        instance_resources=lambda name: None,
        family_types=lambda name: [],
        task_maker=lambda number, document: None,  # type: ignore[arg-type, return-value]
        salt="0" * 16,
    )


def test_what_was_saved_is_there_in_the_next_process(tmp_path: Path) -> None:
    first = make_state(Store.open(tmp_path / "state.db", create=True))
    first.put(QUEUE, "a", {"x": 1})
    first.put(QUEUE, "b", {"x": 2})
    first.save()
    first.remove(QUEUE, "b")
    first.save()
    second = make_state(Store.open(tmp_path / "state.db"))
    second.load()
    assert second.documents(QUEUE) == [{"x": 1}]


def test_what_cannot_be_saved_has_not_happened(tmp_path: Path) -> None:
    state = make_state(Store.open(tmp_path / "state.db", create=True))
    state.put(QUEUE, "old", {"x": 1})
    state.put(QUEUE, "gone", {"x": 2})
    state.save()
    store, state.store = state.store, FullDisk()  # type: ignore[assignment]
    state.put(QUEUE, "old", {"x": 3})
    state.put(QUEUE, "new", {"x": 4})
    state.remove(QUEUE, "gone")
    with pytest.raises(OperationalError):
        state.save()
    assert dict(state.items(QUEUE)) == {"old": {"x": 1}, "gone": {"x": 2}}
    state.store = store
    state.save()
    reloaded = make_state(store)
    reloaded.load()
    assert dict(reloaded.items(QUEUE)) == {"old": {"x": 1}, "gone": {"x": 2}}
