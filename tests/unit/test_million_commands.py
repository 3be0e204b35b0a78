"""A dynamic step of a million commands on AWS: what a worker and `status` read and hold."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from batchyard.aws.s3 import S3Object
from batchyard.batch.jobs import Resources
from batchyard.engines.aws import submit_requests
from batchyard.engines.aws.block_records import BlockRecords
from batchyard.engines.aws.target import Target
from batchyard.engines.base import CommandCounts
from batchyard.environments import Environment
from batchyard.plan import PlannedJob
from batchyard.worker import leases, orders, records
from batchyard.worker.leases import BlockState, Lease, Owner, Record

RUN = "s3://bucket/runs/rows-20260101-abcdef/"
CHILDREN = 64
COUNTS = (10_000, 1_000_000)
#: Bytes that the memory may differ: blocks are few, but more of a longer list.
SLACK_BYTES = 2**20
LINE = b"echo 123456\n"


def dynamic_job(count: int) -> PlannedJob:
    return PlannedJob(
        step="a",
        size=CHILDREN,
        is_array=True,
        resources=Resources(1, 256),
        command_count=count,
        step_size=CHILDREN,
        share_out="dynamic",
    )


class ListBucket:
    """A list of equal commands, which nobody holds as a whole. Counts what is read."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def read(self, place: Any, action: str, first: int, stop: int) -> bytes:
        self.read_bytes += stop - first
        if place.key.endswith(".idx"):
            return b"".join(
                struct.pack("<Q", number * len(LINE)) for number in range(first // 8, stop // 8)
            )
        return LINE * ((stop - first) // len(LINE))


def run_block(count: int) -> tuple[int, int]:
    """Read the orders and the commands of the first block; return bytes held and bytes read."""
    target = Target(Environment("lab", "us-east-1", "bucket"), "rows-20260101-abcdef", {}, RUN, "")
    document = json.dumps(submit_requests.make_orders(dynamic_job(count), target)).encode()
    bucket: Any = ListBucket()
    tracemalloc.start()
    try:
        step_orders = orders.read(document, orders.Place("bucket", "steps/a.json"))
        blocks = step_orders.cut_blocks()
        number_of = records.number_reader(bucket, step_orders)(blocks[0])
        text_of = records.command_reader(bucket, step_orders, blocks[0])
        numbers = [number_of(position) for position in blocks[0]]
        assert len(set(numbers)) == len(numbers) <= 1000
        assert {text_of(position) for position in blocks[0]} == {"echo 123456"}
        return tracemalloc.get_traced_memory()[1], bucket.read_bytes
    finally:
        tracemalloc.stop()


def test_a_worker_holds_and_reads_one_block() -> None:
    (small, _), (large, read_bytes) = map(run_block, COUNTS)
    assert large < small + SLACK_BYTES
    assert read_bytes <= 1000 * (len(LINE) + 8) + 8


class Blocks:
    """All blocks are complete, but those of the children that work. Counts the requests."""

    def __init__(self, total: int) -> None:
        self.total, self.reads, self.lists = total, 0, 0

    def list(self, prefix: str) -> Iterator[S3Object]:
        self.lists += -(-self.total // 1000)
        key = prefix.removeprefix("s3://bucket/")
        for number in range(self.total):
            size = BlockState.COMPLETE if number >= CHILDREN else BlockState.LEASED
            yield S3Object(f"{key}{number:07d}", 400 + size, 7.0, "etag")

    def get(self, address: str) -> bytes | None:
        self.reads += 1
        record = Record(self.reads, 0, 1, 0, 1.0, 0, 0, 0, False, 1)
        return leases.encode(Lease((Owner("job", 0, 1),), records=(record,)))


@pytest.mark.parametrize("count", COUNTS)
def test_status_reads_only_the_blocks_in_work(count: int) -> None:
    job = dynamic_job(count)
    total = len(orders.cut_blocks(count, CHILDREN))
    s3: Any = Blocks(total)
    tracemalloc.start()
    try:
        counts = BlockRecords(s3, RUN).of_step(job, frozenset()).counts()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    in_work = sum(map(len, orders.cut_blocks(count, CHILDREN)[:CHILDREN]))
    assert counts == CommandCounts(count, count - in_work + CHILDREN, 0)
    assert (s3.reads, s3.lists) == (CHILDREN, -(-total // 1000))
    assert s3.lists <= 2
    assert peak_bytes < 4 * SLACK_BYTES


def test_the_number_of_claims_grows_with_the_logarithm_of_the_list() -> None:
    small, large = (len(orders.cut_blocks(count, CHILDREN)) for count in COUNTS)
    assert large < 3 * small
