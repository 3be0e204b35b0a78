"""Documents in memory and on disk: both, or neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchyard.batch.jobs import Resources
from batchyard.embedded.store import Store
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import LOG_GROUP, QUEUE, EndpointState
from batchyard.errors import OperationalError


class FullDisk:
    """A store that has no room."""

    def commit(self, **rows: object) -> None:
        raise OperationalError("no space left on device")


def make_state(store: Any, region: str = "us-east-1") -> EndpointState:
    return EndpointState(
        scheduler=None,  # type: ignore[arg-type]
        loop=None,  # type: ignore[arg-type]
        store=store,
        log_files=None,  # type: ignore[arg-type]
        region=region,
        machine=Resources(1, 1),
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
    store = Store.open(tmp_path / "state.db")
    second = Regions("us-east-1", lambda region: make_state(store, region))
    second.load()
    assert second.default.documents(QUEUE) == [{"x": 1}]


def test_each_region_has_its_own_documents(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db", create=True)
    for region in ("us-east-1", "eu-west-1"):
        state = make_state(store, region)
        state.put(QUEUE, "a", {"region": region})
        state.put(LOG_GROUP, "/a/b", {"region": region})
        state.save()
    regions = Regions("us-west-2", lambda region: make_state(store, region))
    regions.load()
    assert regions.default.documents(QUEUE) == []
    for region in ("us-east-1", "eu-west-1"):
        assert regions.state(region).documents(QUEUE) == [{"region": region}]
        assert regions.state(region).get(LOG_GROUP, "/a/b") == {"region": region}


def test_documents_of_an_endpoint_with_one_region_are_moved(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db", create=True)
    old = [("job-queue/a", '{"x": 1}'), ("log-group//a/b", '{"x": 2}'), ("salt", "0")]
    store.commit(values=old)
    for default in ("eu-west-1", "us-east-1"):
        regions = Regions(default, lambda region: make_state(store, region))
        regions.load()
        assert regions.state("eu-west-1").documents(QUEUE) == [{"x": 1}]
        assert regions.state("eu-west-1").get(LOG_GROUP, "/a/b") == {"x": 2}
    assert "job-queue/a" not in dict(store.values())


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
    regions = Regions("us-east-1", lambda region: make_state(store, region))
    regions.load()
    reloaded = regions.default
    assert dict(reloaded.items(QUEUE)) == {"old": {"x": 1}, "gone": {"x": 2}}
