"""Dynamic steps in the AWS engine: their requests and orders, and what their blocks tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from batchyard import plan as planning
from batchyard.aws.s3 import S3Object
from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.aws import (
    block_layout,
    definitions,
    refusals,
    retry_rules,
    staging,
    submit_requests,
    success_records,
)
from batchyard.engines.aws.block_records import BlockRecords
from batchyard.engines.aws.target import Target
from batchyard.engines.base import CommandCounts
from batchyard.environments import Environment
from batchyard.plan import Plan, PlannedJob
from batchyard.worker import leases
from batchyard.worker import orders as worker_orders
from batchyard.worker.leases import BlockState, Lease, Owner, Record

TARGET = Target(
    Environment("lab", "us-east-1", "bucket", queues={"cpu": "cpu"}),
    "demo-20260101-abcdef",
    {"a": "image"},
    "s3://bucket/runs/demo-20260101-abcdef/workspace/",
    "ada",
)
RUN = "s3://bucket/runs/demo-20260101-abcdef/"


def dynamic_job(commands: int = 10, size: int = 2, **changes: Any) -> PlannedJob:
    job = PlannedJob(
        step="a",
        size=size,
        is_array=True,
        resources=Resources(1, 256),
        command_count=commands,
        step_size=size,
        share_out="dynamic",
        dynamic_children=size,
    )
    return replace(job, **changes)


# -- requests --------------------------------------------------------------------------------------


def test_orders_of_a_dynamic_step_name_its_blocks_and_its_list_in_dispatch_order() -> None:
    orders = submit_requests.make_orders(dynamic_job(timeout_s=5), TARGET)
    assert (orders["format"], orders["children"], orders["timeout_s"]) == (3, 2, 5)
    assert orders["blocks"] == f"{RUN}blocks/a/"
    assert orders["list"] == f"{RUN}lists/a.order.txt"


def test_the_time_limit_is_for_commands_and_not_for_the_child() -> None:
    job = dynamic_job(timeout_s=5)
    assert "timeout" not in definitions.make_definition(job, TARGET)
    assert not list(refusals.find_problems(Plan("p", (job,)), TARGET))


def test_attempts_are_for_reclaims_and_killed_workers() -> None:
    strategy = retry_rules.make_strategy(dynamic_job(), TARGET, has_worker=True)
    actions = {rule.get("onExitCode"): rule["action"] for rule in strategy["evaluateOnExit"]}
    assert strategy["attempts"] == 10
    assert (actions["75"], actions["137"], actions[None]) == ("RETRY", "RETRY", "EXIT")


def test_fail_on_spot_and_oom_is_final() -> None:
    job = dynamic_job(fail_on=("spot", "oom"))
    strategy = retry_rules.make_strategy(job, TARGET, has_worker=True)
    assert [rule["action"] for rule in strategy["evaluateOnExit"]] == ["RETRY", "EXIT", "EXIT"]


@pytest.mark.parametrize(
    ("children", "commands", "size"), [(None, 100, 16), (None, 3, 3), (5, 100, 5), (5, 2, 2)]
)
def test_a_dynamic_step_has_as_many_children_as_it_can_use(
    children: int | None, commands: int, size: int
) -> None:
    job = dynamic_job(commands, 1, dynamic_children=children, is_array=False)
    (fitted,) = planning.with_claiming_children(Plan("p", (job,)), 16).jobs
    assert (fitted.size, fitted.step_size, fitted.is_array) == (size, size, size > 1)


# -- blocks ----------------------------------------------------------------------------------------


def record(command: int, exit_code: int = 0, attempts: int = 1, epoch: int = 1) -> Record:
    return Record(command, exit_code, attempts, 1000, 2.5, 0.1, 0.2, 300, False, epoch)


class FakeS3:
    """Blocks as S3 has them, which counts what is read."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[str] = []

    def put(self, number: int, state: BlockState, *records: Record) -> None:
        owners = tuple(Owner(f"job:{child}", child, 1) for child in (1, 0))
        lease = Lease(owners, state, records=records, writes=len(self.objects) + 1)
        self.objects[f"{RUN}blocks/a/{number:07d}"] = leases.encode(lease)

    def list(self, prefix: str) -> Iterator[S3Object]:
        for address, data in self.objects.items():
            assert address.startswith(prefix)
            yield S3Object(address.removeprefix("s3://bucket/"), len(data), 7.0, str(hash(data)))

    def get(self, address: str) -> bytes | None:
        self.reads.append(address[-1])
        return self.objects[address]


def fill(job: PlannedJob) -> FakeS3:
    """Block 0 is complete, 1 has a failed command, 2 is in work."""
    s3 = FakeS3()
    order, blocks = block_layout.cut(job, frozenset())
    numbers = [[order.command_at(position) for position in block] for block in blocks]
    s3.put(0, BlockState.COMPLETE, *map(record, numbers[0]))
    s3.put(1, BlockState.FAILED, record(numbers[1][0], 7), *map(record, numbers[1][1:]))
    s3.put(2, BlockState.LEASED, record(numbers[2][0], epoch=2))
    return s3


def test_counts_need_only_the_blocks_in_work_and_those_with_failures() -> None:
    job = dynamic_job(12)
    s3 = fill(job)
    records = BlockRecords(s3, RUN)  # type: ignore[arg-type]
    step_blocks = records.of_step(job, frozenset())
    assert step_blocks.counts() == CommandCounts(total=12, succeeded=3 + 2 + 1, failed=1)
    assert sorted(s3.reads) == ["1", "2"]
    assert len(step_blocks.succeeded_commands()) == 6
    # What has not changed is not read again.
    records.of_step(job, frozenset())
    assert sorted(s3.reads) == ["1", "2"]


def test_every_command_has_its_child_and_its_end() -> None:
    job = dynamic_job(12)
    records = BlockRecords(fill(job), RUN)  # type: ignore[arg-type]
    step_blocks = records.of_step(job, frozenset(), is_thorough=True)
    details = [detail for detail, _ in step_blocks.details()]
    assert [detail.number for detail in details] == sorted(detail.number for detail in details)
    (failed,) = [detail for detail in details if detail.state is JobState.FAILED]
    assert (failed.exit_code, failed.index, failed.duration_s) == (7, 1, 2.5)
    assert sum(detail.index == 0 for detail in details) == 1, "the one of the second epoch"


def test_a_failure_that_is_retried_is_not_counted() -> None:
    s3 = FakeS3()
    s3.put(0, BlockState.LEASED, record(0, 7, attempts=1))
    retried = dynamic_job(retry=planning.retry_strategy(1, (), ()))
    counts = BlockRecords(s3, RUN).of_step(retried, frozenset()).counts()  # type: ignore[arg-type]
    assert (counts.succeeded, counts.failed) == (0, 0)
    final = BlockRecords(s3, RUN).of_step(dynamic_job(), frozenset())  # type: ignore[arg-type]
    assert final.counts().failed == 1


def test_the_children_of_a_dynamic_step_have_succeeded_when_all_commands_have() -> None:
    plan = Plan("p", (dynamic_job(3),))
    some = success_records.find_succeeded(plan, {"a": {0, 1}}, {}, {})
    every = success_records.find_succeeded(plan, {"a": {0, 1}}, {"a": {2}}, {})
    assert (some, every) == ({"a": set()}, {"a": {0, 1}})


# -- lengths ---------------------------------------------------------------------------------------


class Uploads:
    """Objects that were uploaded."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, address: str, data: bytes, content_type: str = "") -> None:
        self.objects[address] = data

    def get(self, address: str) -> bytes | None:
        return self.objects.get(address)

    def list(self, prefix: str) -> Iterator[S3Object]:
        return iter(())


def test_with_lengths_the_longest_command_is_first_and_blocks_have_equal_work() -> None:
    job = dynamic_job(6, has_lengths=True)
    order, blocks = block_layout.cut(job, {4}, [1, 50, 2, 20, 99, 3])
    assert [order.command_at(position) for position in range(5)] == [1, 3, 5, 2, 0]
    assert blocks[:2] == [range(1), range(1, 2)]


@pytest.mark.parametrize("padding", ["", "#" * 20_000])
def test_the_orders_tell_other_machines_and_workers_the_layout(padding: str) -> None:
    job = dynamic_job(6, has_lengths=True)
    commands = [f"echo {number} {padding}" for number in range(6)]
    plan = Plan("p", (job,), lists={"a": commands}, lengths={"a": [1, 50, 2, 20, 99, 3]})
    s3: Any = Uploads()
    staging.upload_orders(s3, plan, TARGET, {"a": [4]}, None)
    document = s3.objects[f"{RUN}steps/a.json"]
    orders = worker_orders.read(document, worker_orders.Place("bucket", "steps/a.json"))
    assert (orders.order is None) == bool(padding)
    ordered = s3.objects[f"{RUN}lists/a.order.txt"].decode().splitlines()
    assert [line.split()[1] for line in ordered] == ["1", "3", "5", "2", "0"]
    order, blocks = block_layout.read(s3, RUN, job, {4})
    assert [order.command_at(position) for position in range(5)] == [1, 3, 5, 2, 0]
    assert (blocks, orders.cut_blocks()) == (block_layout.cut(job, {4}, plan.lengths["a"])[1],) * 2


def test_commands_that_took_no_time_are_shared_out_all_the_same() -> None:
    job = dynamic_job(100, has_lengths=True)
    blocks = block_layout.cut(job, (), [0.0] * 100).blocks
    assert (len(blocks[0]), len(blocks[-1])) == (25, 1)
