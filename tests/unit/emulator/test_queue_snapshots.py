"""GetJobQueueSnapshot of children whose ends are not on disk yet."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from batchyard.batch.jobs import Resources
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.emulator.queue_snapshots import get_snapshot
from batchyard.emulator.state import JOB, QUEUE, EndpointState

ROW = JobRow(0, "job-a", "job-a", 1, "RUNNABLE", "", (), 1, 1000, 1500)


def test_a_child_that_is_tried_again_waits_since_the_end_of_its_last_attempt(
    tmp_path: Path,
) -> None:
    with closing(Store.open(tmp_path / "state.db", create=True)) as store:
        ended = AttemptRow(0, 0, 1, None, 1, "", "", 1500, 2000)
        loop = SimpleNamespace(
            row={"job-a": ROW}.__getitem__,
            record=lambda job_ids: store.commit(attempts=[ended] if "job-a" in job_ids else []),
        )
        snapshot = get_snapshot(make_state(store, loop), {"jobQueue": "queue"})
    assert snapshot["frontOfQueue"]["jobs"] == [{"jobArn": "arn:a", "earliestTimeAtPosition": 2000}]


def make_state(store: Store, loop: Any) -> EndpointState:
    scheduler = SimpleNamespace(
        front_of=lambda queue, at_most: [("job-a", 0)], placed_children=lambda: []
    )
    state = EndpointState(
        scheduler=scheduler,  # type: ignore[arg-type]
        loop=loop,
        store=store,
        log_files=None,  # type: ignore[arg-type]
        region="us-east-1",
        machine=Resources(1, 1),
        task_maker=lambda number, document: None,  # type: ignore[arg-type, return-value]
        salt="0" * 16,
    )
    state.put(QUEUE, "queue", {"jobQueueArn": "arn:queue"})
    document = {"jobId": "job-a", "jobArn": "arn:a", "createdAt": 1000, "jobQueue": "arn:queue"}
    state.put(JOB, "job-a", {**document, "dependsOn": []})
    return state
