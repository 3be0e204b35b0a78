"""Answers of DescribeJobs as values of the contract: attempts and log streams of a child."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchyard.batch.jobs import JobState
from batchyard.engines.aws import definitions, from_aws
from batchyard.engines.aws.from_aws import Stream
from batchyard.engines.aws.render import Part
from batchyard.engines.base import AttemptDetail
from batchyard.pipeline_file import reading
from batchyard.plan import PlannedJob, make

PART = Part("run-train-1", "train", 3, 10, "definition", {})
CONTAINER = {
    "resourceRequirements": [{"type": "VCPU", "value": "4"}, {"type": "GPU", "value": "2"}]
}


def planned(tmp_path: Path, **keys: Any) -> PlannedJob:
    file = tmp_path / "pipeline.json"
    step = {"name": "train", "command": "true", "array": 13, **keys}
    file.write_text(json.dumps({"name": "p", "steps": [step]}))
    return make(reading.load(file)).job("train")


def described(status: str, **members: Any) -> dict[str, Any]:
    return {"jobId": "id:2", "status": status, "container": CONTAINER, **members}


def ended(exit_code: int, number: int) -> dict[str, Any]:
    return {
        "startedAt": 1000 * number,
        "stoppedAt": 1000 * number + 500,
        "statusReason": f"reason {number}",
        "container": {
            "exitCode": exit_code,
            "reason": f"detail {number}",
            "logStreamName": f"stream/{number}",
        },
    }


def attempt(number: int, **members: Any) -> AttemptDetail:
    values: dict[str, Any] = {
        "job_id": "id:2",
        "step": "train",
        "index": 12,
        "attempt": number,
        "user_s": 0.0,
        "system_s": 0.0,
        "max_rss_kib": 0,
    }
    return AttemptDetail(**values | members)


def test_every_attempt_with_its_times_codes_and_reasons(tmp_path: Path) -> None:
    job = described("FAILED", attempts=[ended(75, 1), ended(3, 2)], statusReason="the last word")
    first, last = from_aws.make_attempts(PART, planned(tmp_path), job)
    assert first == attempt(
        1,
        state=None,
        exit_code=75,
        reason="detail 1",
        status_reason="reason 1",
        started_ms=1000,
        ended_ms=1500,
        gpus=(0, 1),
    )
    assert last == attempt(
        2,
        state=JobState.FAILED,
        exit_code=3,
        reason="detail 2",
        status_reason="the last word",
        started_ms=2000,
        ended_ms=2500,
        gpus=(0, 1),
    )


def test_a_child_that_runs_again_has_no_last_attempt(tmp_path: Path) -> None:
    job = described("RUNNING", attempts=[ended(75, 1)])
    (only,) = from_aws.make_attempts(PART, planned(tmp_path), job)
    assert only.state is None and only.status_reason == "reason 1"


def test_a_child_that_failed_without_starting_has_attempt_0(tmp_path: Path) -> None:
    job = described("FAILED", statusReason="Dependent Job failed", stoppedAt=7000)
    assert list(from_aws.make_attempts(PART, planned(tmp_path), job)) == [
        attempt(
            0,
            state=JobState.FAILED,
            exit_code=None,
            reason="",
            status_reason="Dependent Job failed",
            started_ms=None,
            ended_ms=7000,
        )
    ]


def test_streams_of_ended_attempts_and_of_the_one_under_way(tmp_path: Path) -> None:
    container = {**CONTAINER, "logStreamName": "stream/2"}
    job = described("RUNNING", attempts=[ended(75, 1)], container=container)
    assert list(from_aws.find_streams(PART, planned(tmp_path), job)) == [
        Stream("stream/1", "train", 12, 1, True, 1500),
        Stream("stream/2", "train", 12, 2, False),
    ]
    over = described("SUCCEEDED", attempts=[ended(0, 1)], container=container)
    assert [stream.name for stream in from_aws.find_streams(PART, planned(tmp_path), over)] == [
        "stream/1"
    ]


@pytest.mark.parametrize(
    ("keys", "is_needed"),
    [
        ({}, False),
        ({"inputs": ["a"]}, True),
        ({"outputs": ["b"]}, True),
        ({"checkpoint": ["c"]}, True),
    ],
)
def test_files_in_s3_need_the_worker(tmp_path: Path, keys: dict[str, Any], is_needed: bool) -> None:
    assert definitions.needs_worker(planned(tmp_path, **keys)) is is_needed
