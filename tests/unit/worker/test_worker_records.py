"""Success records and lists, against a bucket that lists as S3 does: in pages, in the order of keys."""

from __future__ import annotations

import io
import struct
from itertools import accumulate
from typing import Any

import pytest
from test_worker_orders import orders

from batchyard.worker.faults import ORDERS, Fault
from batchyard.worker.orders import Child
from batchyard.worker.records import Records, command_reader
from batchyard.worker.rules import Failure
from batchyard.worker.s3 import Bucket

DONE = "runs/r/done/s/"
CHILD = Child(0, 2, True, "job:0")


class Listed:
    """The few calls of S3 that records need, over a dictionary."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = objects or {}
        self.calls: list[str] = []

    def list_objects_v2(
        self, *, Bucket: str, Prefix: str, MaxKeys: int, **more: str
    ) -> dict[str, Any]:
        self.calls.append("list")
        after = more.get("ContinuationToken") or more.get("StartAfter", "")
        keys = sorted(key for key in self.objects if key.startswith(Prefix) and key > after)
        page = keys[:MaxKeys]
        entries = [{"Key": key, "Size": len(self.objects[key]), "ETag": '"0"'} for key in page]
        return {
            "Contents": entries,
            "IsTruncated": len(keys) > len(page),
            "NextContinuationToken": page[-1:][0] if page else "",
        }

    def get_object(self, *, Bucket: str, Key: str, Range: str | None = None) -> dict[str, Any]:
        self.calls.append(f"get {Key} {Range}")
        data = self.objects[Key]
        if Range is not None:
            first, last = map(int, Range.removeprefix("bytes=").split("-"))
            data = data[first : last + 1]
        return {"Body": io.BytesIO(data)}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self.objects[Key] = Body


def records(s3: Listed, child: Child = CHILD, **changes: Any) -> Records:
    return Records(Bucket(s3), orders(**changes), child, 0)


def test_the_records_of_a_part_are_found_over_many_pages_and_no_others_are_read() -> None:
    done = [n for n in range(0, 100_000, 3)]
    s3 = Listed({f"{DONE}{n:07d}": b"{}" for n in done} | {f"{DONE}failures/0000001.json": b"[]"})
    part = range(5_000, 11_000)
    assert records(s3).done(part) == {n for n in done if n in part}
    assert len(s3.calls) == 3  # 2,000 records, and the end


def test_an_empty_part_and_one_that_an_earlier_run_did_ask_for_nothing() -> None:
    s3 = Listed()
    assert records(s3).done(range(5, 5)) == set()
    assert records(s3, skip=[[0, 9]]).done(range(3, 6)) == {3, 4, 5}
    assert s3.calls == []


def test_a_success_is_found_again() -> None:
    s3 = Listed()
    records(s3).succeeded(7, 1.25)
    assert list(s3.objects) == [f"{DONE}0000007"]
    assert records(s3).done(range(10)) == {7}


def test_failures_are_those_of_this_job_and_no_successes() -> None:
    s3 = Listed()
    first = records(s3, Child(0, 1, True, "job:0"))
    assert first.failures() == []
    first.failed([], Failure(3, 9))
    second = records(s3)
    assert [one["exit_code"] for one in second.failures()] == [9]
    assert records(s3, Child(0, 2, True, "another:0")).failures() == []
    assert second.done(range(10)) == set()


def listed(commands: list[str]) -> Listed:
    lines = [f"{command}\n".encode() for command in commands]
    offsets = [0, *accumulate(map(len, lines))]
    index = struct.pack(f"<{len(offsets)}Q", *offsets)
    return Listed({"runs/r/lists/s.txt": b"".join(lines), "runs/r/lists/s.idx": index})


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
    with pytest.raises(Fault, match=r"s\.idx ends before") as caught:
        read(0)
    assert caught.value.exit_code == ORDERS


def test_an_index_that_is_none_is_told() -> None:
    s3 = listed(["a", "b"])
    s3.objects["runs/r/lists/s.idx"] = struct.pack("<3Q", 9, 3, 4)
    with pytest.raises(Fault, match="go down"):
        command_reader(Bucket(s3), orders(), range(0, 2))(0)
