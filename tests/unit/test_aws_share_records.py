"""Commands of lists that are shared out by index, from the records of their workers."""

from __future__ import annotations

import json
from collections.abc import Iterator

from batchyard.aws.s3 import S3Object
from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.aws.share_records import (
    MAX_MEASURED,
    read_commands,
    read_measurements,
    with_measurements,
)
from batchyard.engines.base import AttemptDetail, CommandDetail
from batchyard.plan import PlannedJob
from batchyard.sampling.samples import SampledUse, to_json

RUN = "s3://bucket/runs/r/"
JOB = PlannedJob("a", 2, True, Resources(1, 64), command_count=4, step_size=2)
MEASURED = {"started_ms": 1000, "seconds": 1.5, "user_s": 0.5, "system_s": 0.1, "max_rss_kib": 9}
SUCCESS = {"child": 0, "attempt": 2, "job": "j:0", "exit_code": 0, "ended": 3, **MEASURED}
USE = SampledUse(3, 6.0, 1.5, 2.0, 2048, 50.5, 99.0, 1000, 16384)
FAILURE = {"attempt": 1, "job": "j:0", "exit_code": 7, "out_of_memory": False, "ended": 3}


class FakeS3:
    def __init__(self) -> None:
        self.reads = 0
        self.objects: dict[str, object] = {
            "done/a/0000000": {"child": 0, "attempt": 1, "job": "j:0", "seconds": 1, "ended": 3},
            "done/a/0000001": SUCCESS,
            "done/a/failures/0000000.json": [{**FAILURE, **MEASURED, "command": 1}],
            "done/a/failures/0000001.json": [
                {**FAILURE, **MEASURED, "command": 2, "attempt": attempt} for attempt in (1, 2)
            ],
        }

    def list(self, prefix: str) -> Iterator[S3Object]:
        for name in self.objects:
            yield S3Object(f"runs/r/{name}", 1, 0.0)

    def get(self, address: str) -> bytes | None:
        self.reads += 1
        return json.dumps(self.objects[address.removeprefix(RUN)]).encode()


def read(number: int | None = None, *, failed_only: bool = False) -> list[CommandDetail]:
    s3 = FakeS3()
    return list(read_commands(s3, RUN, JOB, number, failed_only=failed_only))  # type: ignore[arg-type]


def test_each_command_has_its_last_execution_and_its_attempts() -> None:
    old, retried, failed = read()
    assert (old.number, old.state, old.started_ms, old.attempts) == (0, JobState.SUCCEEDED, None, 1)
    assert (retried.number, retried.state, retried.attempts) == (1, JobState.SUCCEEDED, 2)
    assert (retried.duration_s, retried.user_s, retried.max_rss_kib) == (1.5, 0.5, 9)
    assert (failed.number, failed.state, failed.attempts) == (2, JobState.FAILED, 2)
    assert (failed.index, failed.exit_code, failed.child_attempt) == (1, 7, 2)


def test_failed_commands_are_those_that_never_succeeded() -> None:
    assert [command.number for command in read(failed_only=True)] == [2]


def test_one_command_is_found_by_its_number() -> None:
    assert [command.number for command in read(1)] == [1]
    assert read(3) == []


def test_records_of_sampled_commands_have_their_use() -> None:
    s3 = FakeS3()
    s3.objects["done/a/0000001"] = {**SUCCESS, "use": to_json(USE)}
    old, sampled, _ = read_commands(s3, RUN, JOB, None, failed_only=False)  # type: ignore[arg-type]
    assert (old.use, sampled.use) == (None, USE)
    assert sampled.peak_memory_kib == USE.peak_memory_kib


def test_only_some_records_of_a_large_step_are_read_for_what_it_uses() -> None:
    s3 = FakeS3()
    s3.objects = {f"done/a/{number:07}": SUCCESS for number in range(1001)}
    records = read_measurements(s3, RUN, JOB)  # type: ignore[arg-type]
    assert s3.reads == len(records) <= MAX_MEASURED
    assert min(records) == 0
    assert max(records) > 950


def test_the_command_of_a_child_gets_what_its_worker_has_measured() -> None:
    attempt = AttemptDetail("j", "a", 0, 2, JobState.SUCCEEDED, 0, "", "", 0, 9, 0.0, 0.0, 0)
    detail = with_measurements(CommandDetail.of_attempt(attempt, 0), {**SUCCESS, "use": None})
    assert (detail.user_s, detail.system_s, detail.max_rss_kib, detail.use) == (0.5, 0.1, 9, None)
