"""The failures of a run on AWS: children that never started are not described, nor asked twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from batchyard import plan as planning
from batchyard.batch.jobs import JobState
from batchyard.engines.aws.failed_attempts import FailedAttempts
from batchyard.engines.aws.from_aws import EndStates
from batchyard.engines.aws.render import Part
from batchyard.engines.base import JobDetail
from batchyard.errors import OperationalError
from batchyard.pipeline_file import reading

SIZE = 500


class Cloud:
    """Two arrays of which some children have failed, and the files of the run."""

    def __init__(self, started: Sequence[int], *, may_write: bool = True) -> None:
        self.started = started
        self.calls = 0
        self.described = 0
        self.stored: dict[str, Any] = {}
        self.may_write = may_write

    def started_children(self, array_id: str, state: str) -> Iterator[str]:
        assert state == JobState.FAILED
        self.calls += 1
        return (f"{array_id}:{number}" for number in reversed(self.started))

    def describe(self, job_ids: Sequence[str]) -> dict[str, Any]:
        self.calls += 1
        self.described += len(job_ids)
        attempt = {"container": {"exitCode": 3}, "startedAt": 1, "stoppedAt": 2}
        job = {"status": "FAILED", "attempts": [attempt, attempt], "container": {}}
        return {job_id: {**job, "jobId": job_id} for job_id in job_ids}

    def read(self, name: str) -> Any:
        return self.stored.get(name)

    def write(self, name: str, content: Any) -> None:
        if not self.may_write:
            raise OperationalError("access denied")
        self.stored[name] = content


def make_finder(cloud: Cloud, folder: Path, end_states: EndStates | None) -> FailedAttempts:
    file = folder / "pipeline.yaml"
    steps = f"[{{name: a, array: {SIZE}, command: x}}, {{name: b, array: {SIZE}, command: x}}]"
    file.write_text(f"name: p\nimage: x\nsteps: {steps}\n")
    plan = planning.make(reading.load(file, {}))
    parts = [
        (Part("run-a", "a", SIZE, 0, "d", {}), "id-a"),
        (Part("run-b", "b", SIZE, 0, "d", {}), "id-b"),
    ]
    source: Any = cloud
    return FailedAttempts(plan, source, source, lambda: parts, lambda: end_states)


def make_end(counted: dict[str, int]) -> EndStates:
    """``counted``: id of a job -> its attempts, of those whose children were described."""
    counts = tuple(SIZE * (state is JobState.FAILED) for state in JobState)
    jobs = tuple(
        JobDetail(
            job_id, step, JobState.FAILED, "", SIZE, counts, counted.get(job_id, SIZE), 1, 1, 2
        )
        for job_id, step in (("id-a", "a"), ("id-b", "b"))
    )
    return EndStates(jobs, True, {job_id: [] for job_id in counted})


def find(finder: FailedAttempts, *job_ids: str) -> list[tuple[str, int]]:
    attempts = finder.find(job_ids or ("id-a", "id-b"))
    return [(attempt.step, attempt.index) for attempt in attempts]


def test_only_children_that_started_are_described_and_only_once(tmp_path: Path) -> None:
    cloud, end = Cloud([3, 7, 400]), make_end({})
    expected = [(step, index) for step in "ab" for index in (3, 7, 400)]
    assert find(make_finder(cloud, tmp_path, end)) == expected
    assert cloud.described == 6
    cloud.calls = 0
    assert find(make_finder(cloud, tmp_path, end)) == expected
    assert find(make_finder(cloud, tmp_path, end), "id-b") == expected[3:]
    assert cloud.calls == 0
    (attempt, *_) = make_finder(cloud, tmp_path, end).find(["id-a"])
    assert (attempt.attempt, attempt.exit_code, attempt.state) == (2, 3, JobState.FAILED)
    assert attempt.gpus == ()


def test_a_job_of_which_no_failed_child_started_is_not_listed(tmp_path: Path) -> None:
    cloud = Cloud([])
    assert find(make_finder(cloud, tmp_path, make_end({"id-a": 0, "id-b": 0}))) == []
    assert cloud.calls == 0


@pytest.mark.parametrize("count", [20, 21, 130])
def test_more_failures_than_are_stored_are_found_all(tmp_path: Path, count: int) -> None:
    cloud, end = Cloud(range(count)), make_end({"id-b": 0})
    for _ in range(2):
        finder = make_finder(cloud, tmp_path, end)
        assert find(finder) == [("a", index) for index in range(count)]
        assert find(finder, "id-b") == []
    stored = cloud.stored["failures.json"]
    assert (len(stored["attempts"]), stored["is_complete"]) == (20, count == 20)


def test_of_a_run_that_is_not_over_nothing_is_stored(tmp_path: Path) -> None:
    cloud = Cloud([1])
    assert find(make_finder(cloud, tmp_path, None)) == [("a", 1), ("b", 1)]
    assert not cloud.stored


def test_who_may_not_write_searches_each_time(tmp_path: Path) -> None:
    cloud = Cloud([1], may_write=False)
    for _ in range(2):
        assert len(find(make_finder(cloud, tmp_path, make_end({})))) == 2
