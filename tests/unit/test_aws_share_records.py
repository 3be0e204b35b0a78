"""Commands of lists that are shared out by index, from the records of their workers."""

from __future__ import annotations

import json
from collections.abc import Iterator

from batchyard.aws.s3 import S3Object
from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.aws.share_records import read_commands
from batchyard.engines.base import CommandDetail
from batchyard.plan import PlannedJob

RUN = "s3://bucket/runs/r/"
JOB = PlannedJob("a", 2, True, Resources(1, 64), command_count=4, step_size=2)
MEASURED = {"started_ms": 1000, "seconds": 1.5, "user_s": 0.5, "system_s": 0.1, "max_rss_kib": 9}
SUCCESS = {"child": 0, "attempt": 2, "job": "j:0", "exit_code": 0, "ended": 3, **MEASURED}
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
