"""Events of children that end while earlier ends are being written to the disk."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from batchyard.batch.jobs import JobState, Resources
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.emulator.job_events import JobEvents
from batchyard.emulator.state import JOB, EndpointState

ROW = JobRow(0, "job-a", "job-a", 1, "SUCCEEDED", "", (), 1, 1000)


def test_a_child_whose_end_is_not_on_disk_has_all_its_events(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "state.db", create=True)) as store:
        ended = AttemptRow(0, 0, 1, "SUCCEEDED", 0, "", "", 1500, 2000)
        loop = SimpleNamespace(
            row={"job-a": ROW}.__getitem__,
            record=lambda job_ids: store.commit(attempts=[ended] if "job-a" in job_ids else []),
            find_running_task=lambda job_id, child: None,
        )
        sent: list[Any] = []
        events = JobEvents(make_state(store, loop), lambda: True, sent.extend)
        events.on_changes([ROW])
    states = [event["detail"]["status"] for event in sent]
    assert states == ["RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED"]
    assert sent[-1]["detail"]["startedAt"] == 1500


def make_state(store: Store, loop: Any) -> EndpointState:
    state = EndpointState(
        scheduler=SimpleNamespace(child_state=lambda *child: JobState.SUCCEEDED),  # type: ignore[arg-type]
        loop=loop,
        store=store,
        log_files=None,  # type: ignore[arg-type]
        region="us-east-1",
        machine=Resources(1, 1),
        task_maker=lambda number, document: None,  # type: ignore[arg-type, return-value]
        salt="0" * 16,
    )
    document = {"jobId": "job-a", "jobArn": "arn:a", "createdAt": 1000, "container": {}}
    state.put(JOB, "job-a", {**document, "_definition": "a"})
    return state
