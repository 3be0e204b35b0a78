"""Hosts and attempts of a run: from AWS's answers to values, to JSON and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from batchyard.batch.jobs import Resources
from batchyard.engines import usage as values
from batchyard.engines.aws.from_aws import read_uses
from batchyard.engines.ec2_hosts import cluster_of, read_container_instance, read_instance
from batchyard.engines.usage import LINGER_S, HostUse, PaidHost, Usage, merge, paid_until_s

ARN = "arn:aws:ecs:us-east-1:123456789012:container-instance/AWSBatch-lab/0a1b"
SMALL = Resources(4, 8192, 1)
HOST = PaidHost("i-1", "g5.xlarge", "us-east-1a", True, 1000.0, capacity=Resources(4, 15000, 1))
USE = HostUse("i-1", "a", 0, 1, 1100.0, 1200.0, SMALL)


def described(**members: Any) -> dict[str, Any]:
    requirements = [("VCPU", "4"), ("MEMORY", "8192"), ("GPU", "1")]
    return {
        "jobId": "j:0",
        "container": {
            "containerInstanceArn": ARN,
            "resourceRequirements": [{"type": kind, "value": n} for kind, n in requirements],
        },
        **members,
    }


def attempt(started_s: int | None, stopped_s: int, reason: str = "", arn: str = ARN) -> Any:
    started = {} if started_s is None else {"startedAt": started_s * 1000}
    container = {"containerInstanceArn": arn} if arn else {}
    return {
        **started,
        "stoppedAt": stopped_s * 1000,
        "statusReason": reason,
        "container": container,
    }


def test_only_the_last_attempt_of_a_child_that_succeeded_counts() -> None:
    job = described(
        status="SUCCEEDED",
        attempts=[
            attempt(100, 110, "Host EC2 (instance i-0abc) terminated."),
            attempt(None, 120, "Task failed to start"),
            attempt(130, 150),
        ],
    )
    uses, on_fargate = read_uses("a", 7, job)
    assert uses == [
        (HostUse(ARN, "a", 7, 1, 100.0, 110.0, SMALL, False), "i-0abc"),
        (HostUse(ARN, "a", 7, 3, 130.0, 150.0, SMALL, True), ""),
    ]
    assert not on_fargate


def test_an_attempt_that_runs_has_no_end_and_one_on_fargate_no_host() -> None:
    job = described(status="RUNNING", startedAt=200_000, attempts=[attempt(100, 110, arn="")])
    assert read_uses("a", 0, job) == ([(HostUse(ARN, "a", 0, 2, 200.0, None, SMALL), "")], 1)


def test_a_host_as_ecs_and_ec2_describe_it() -> None:
    registered = {
        "ec2InstanceId": "i-1",
        "attributes": [
            {"name": "ecs.instance-type", "value": "g5.xlarge"},
            {"name": "ecs.availability-zone", "value": "us-east-1a"},
            {"name": "com.amazonaws.ecs.capability.logging-driver.awslogs"},
        ],
        "registeredResources": [
            {"name": "CPU", "integerValue": 4096},
            {"name": "MEMORY", "integerValue": 15000},
            {"name": "GPU", "stringSetValue": ["GPU-1"]},
        ],
    }
    instance = {
        "InstanceId": "i-1",
        "InstanceType": "g5.xlarge",
        "InstanceLifecycle": "spot",
        "LaunchTime": datetime.fromtimestamp(1000, UTC),
        "State": {"Name": "running"},
    }
    host = read_instance(read_container_instance(registered), instance, 5000.0)
    assert host == HOST
    over = {
        **instance,
        "State": {"Name": "terminated"},
        "StateTransitionReason": "Service initiated (1970-01-01 01:00:00 GMT)",
        "StateReason": {"Code": "Server.SpotInstanceTermination"},
    }
    host = read_instance(host, over, 5000.0)
    assert host.ended_s == 3600.0 and host.was_reclaimed
    # A user has ended it, whatever the end of its jobs looked like.
    over["StateReason"] = {"Code": "Client.UserInitiatedShutdown"}
    assert not read_instance(host, over, 5000.0).was_reclaimed
    assert cluster_of(ARN) == "AWSBatch-lab"


def test_a_run_pays_for_a_host_until_its_end_or_some_minutes_after_its_last_child() -> None:
    later_s = 1200.0 + LINGER_S
    assert paid_until_s(HOST, [USE], 1300.0) == 1300.0
    assert paid_until_s(HOST, [USE], 9000.0) == later_s
    running = HostUse("i-1", "a", 1, 1, 1100.0, None, SMALL)
    assert paid_until_s(HOST, [USE, running], 9000.0) == 9000.0
    ended = PaidHost("i-1", launched_s=1000.0, ended_s=1250.0)
    assert paid_until_s(ended, [USE], 9000.0) == 1250.0


def test_usage_is_the_same_after_json() -> None:
    usage = Usage("us-east-1", (HOST,), (USE,), 1300.0, True, ("x is not known",), {"spot": []})
    assert values.from_json(json.loads(json.dumps(values.to_json(usage)))) == usage


def test_what_two_machines_have_seen_is_merged() -> None:
    ended = PaidHost("i-1", ended_s=1250.0)
    running = HostUse("i-1", "a", 0, 1, 1100.0, None, SMALL)
    other = HostUse("i-1", "a", 1, 1, 1100.0, 1150.0, SMALL)
    older = Usage("us-east-1", (HOST,), (USE,), 1300.0, prices={"spot": []})
    newer = Usage("us-east-1", (ended,), (running, other), 1400.0)
    merged = merge(older, newer)
    assert merged.uses == (USE, other) and merged.prices == {"spot": []}
    assert merged.hosts[0].ended_s == 1250.0 and merged.hosts[0].type == "g5.xlarge"
