"""The hosts of a run on a cluster: tasks that nobody saw stopping, and hosts outside EC2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from batchyard.batch.jobs import Resources
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.ecs.usage_records import EcsUsage, TaskAttempt, read_running_attempt
from batchyard.engines.usage import PaidHost
from batchyard.plan import Plan, PlannedJob

JOB = PlannedJob("a", 2, True, Resources(1, 64), step_size=2)
ARN = "arn:aws:ecs:us-east-1:123456789012:container-instance/lab/0a1b"


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_a_task_that_nobody_saw_stopping_has_an_end() -> None:
    task = {"containerInstanceArn": ARN, "createdAt": at(900), "startedAt": at(1000)}
    running = read_running_attempt(JOB, 1, 1, task)
    assert running is not None and (running.started_s, running.ended_s) == (1000, None)
    stopped = read_running_attempt(JOB, 1, 1, {**task, "stoppedAt": at(1500)})
    assert stopped is not None and (stopped.index, stopped.ended_s) == (1, 1500)
    assert read_running_attempt(JOB, 1, 1, {"createdAt": at(900)}) is None


class OutsideEc2:
    """Hosts without an id of EC2; and a bucket that keeps nothing."""

    def __init__(self) -> None:
        self.refusals: dict[str, None] = {}

    def find(self, arns: Iterable[str]) -> dict[str, PaidHost]:
        return {arn: PaidHost("") for arn in arns}

    def update(self, hosts: Sequence[PaidHost], now_s: float) -> dict[str, PaidHost]:
        return {}

    def put(self, address: str, data: bytes, content_type: str = "") -> None: ...


def test_hosts_outside_ec2_are_two_hosts_whose_type_is_not_known(tmp_path: Path) -> None:
    service: Any = OutsideEc2()
    attempts = [
        TaskAttempt("a", number, 1, JOB.resources, f"arn:container-instance/lab/{number}", 0, 10)
        for number in range(2)
    ]
    records = EcsUsage(
        service,
        RunFiles(tmp_path, "s3://bucket/run/", service),
        Plan("p", (JOB,)),
        lambda: attempts,
        lambda step: (),
        "us-east-1",
        lambda: 1000.0,
    )
    usage = records.refresh(is_over=True)
    assert {use.host for use in usage.uses} == {host.id for host in usage.hosts}
    assert len(usage.hosts) == 2 and all(host.id for host in usage.hosts)
    assert usage.unknown == ("the instance type of 2 hosts is not known",)
