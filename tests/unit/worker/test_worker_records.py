"""Success records and lists, with a bucket that lists keys in order and in pages, as S3 does."""

from __future__ import annotations

import io
import struct
from itertools import accumulate
from typing import Any

import pytest
from test_worker_orders import orders

from batchyard.worker.errors import EXIT_ORDERS, WorkerError
from batchyard.worker.orders import Child
from batchyard.worker.processes import CommandResult
from batchyard.worker.records import Records, command_reader
from batchyard.worker.s3 import Bucket

DONE = "runs/r/done/s/"
CHILD = Child(0, 2, True, "job:0")


class FakeS3:
    """The few calls of S3 that records need, over a dictionary."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = objects or {}
        self.calls: list[str] = []

    # boto3's parameters have capital letters.
    def list_objects_v2(self, **request: Any) -> dict[str, Any]:
        self.calls.append("list")
        start = request.get("ContinuationToken") or request.get("StartAfter", "")
        prefix = request["Prefix"]
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > start)
        page = keys[: request["MaxKeys"]]
        entries = [{"Key": key, "Size": len(self.objects[key]), "ETag": '"0"'} for key in page]
        return {
            "Contents": entries,
            "IsTruncated": len(keys) > len(page),
            "NextContinuationToken": page[-1:][0] if page else "",
        }

    def get_object(self, **request: str) -> dict[str, Any]:
        key, byte_range = request["Key"], request.get("Range")
        self.calls.append(f"get {key} {byte_range}")
        data = self.objects[key]
        if byte_range is not None:
            first, last = map(int, byte_range.removeprefix("bytes=").split("-"))
            data = data[first : last + 1]
        return {"Body": io.BytesIO(data)}

    def put_object(self, **request: Any) -> None:
        self.objects[request["Key"]] = request["Body"]


def records(s3: FakeS3, child: Child = CHILD, **changes: Any) -> Records:
    return Records(Bucket(s3), orders(**changes), child, 0)


def test_the_records_of_a_part_are_found_over_many_pages_and_no_others_are_read() -> None:
    done = [n for n in range(0, 100_000, 3)]
    s3 = FakeS3({f"{DONE}{n:07d}": b"{}" for n in done} | {f"{DONE}failures/0000001.json": b"[]"})
    part = range(5_000, 11_000)
    assert records(s3).succeeded_commands(part) == {n for n in done if n in part}
    assert len(s3.calls) == 3  # 2,000 records, and the end


def test_an_empty_part_and_one_that_an_earlier_run_did_ask_for_nothing() -> None:
    s3 = FakeS3()
    assert records(s3).succeeded_commands(range(5, 5)) == set()
    assert records(s3, skip=[[0, 9]]).succeeded_commands(range(3, 6)) == {3, 4, 5}
    assert s3.calls == []


def test_a_success_is_found_again() -> None:
    s3 = FakeS3()
    records(s3).record_success(7, CommandResult(0, 1.25, user_s=0.5, max_rss_kib=99, started_ms=3))
    assert list(s3.objects) == [f"{DONE}0000007"]
    assert records(s3).succeeded_commands(range(10)) == {7}


def test_failures_are_those_of_this_job_and_no_successes() -> None:
    s3 = FakeS3()
    first = records(s3, Child(0, 1, True, "job:0"))
    assert first.earlier_failures() == []
    first.record_failures([], {3: CommandResult(9, 1.0)})
    second = records(s3)
    assert [one["exit_code"] for one in second.earlier_failures()] == [9]
    assert records(s3, Child(0, 2, True, "another:0")).earlier_failures() == []
    assert second.succeeded_commands(range(10)) == set()


def listed(commands: list[str]) -> FakeS3:
    lines = [f"{command}\n".encode() for command in commands]
    offsets = [0, *accumulate(map(len, lines))]
    index = struct.pack(f"<{len(offsets)}Q", *offsets)
    return FakeS3({"runs/r/lists/s.txt": b"".join(lines), "runs/r/lists/s.idx": index})


def test_of_a_list_only_the_childs_part_is_fetched_when_it_is_needed() -> None:
    commands = [f"echo {n} ü\nmore" for n in range(10)]
    s3 = listed(commands)
    read = command_reader(Bucket(s3), orders(), range(4, 7))
    assert s3.calls == []
    assert [read(n) for n in (4, 5, 6)] == commands[4:7]
    begin = sum(len(f"{command}\n".encode()) for command in commands[:4])
    end = sum(len(f"{command}\n".encode()) for command in commands[:7])
    assert s3.calls == [
        "get runs/r/lists/s.idx bytes=32-63",
        f"get runs/r/lists/s.txt bytes={begin}-{end - 1}",
    ]


def test_a_list_shorter_than_the_orders_say_is_told() -> None:
    read = command_reader(Bucket(listed(["a", "b"])), orders(), range(0, 5))
    with pytest.raises(WorkerError, match=r"s\.idx ends before") as caught:
        read(0)
    assert caught.value.exit_code == EXIT_ORDERS


def test_an_index_that_is_none_is_told() -> None:
    s3 = listed(["a", "b"])
    s3.objects["runs/r/lists/s.idx"] = struct.pack("<3Q", 9, 3, 4)
    with pytest.raises(WorkerError, match="go down"):
        command_reader(Bucket(s3), orders(), range(0, 2))(0)
