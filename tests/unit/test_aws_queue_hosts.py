"""Which steps the hosts of a queue can run, from the answers of AWS Batch and EC2."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard import plan as planning
from batchyard.batch.jobs import Resources
from batchyard.engines.aws import queue_hosts
from batchyard.engines.aws.queue_hosts import ComputeEnvironment
from batchyard.engines.aws.target import Target
from batchyard.environments import Environment
from batchyard.pipeline import Pipeline, Step

TARGET = Target(
    Environment("lab", "us-east-1", "bucket", queues={"cpu": "cpu", "gpu": "gpu"}),
    "demo-20260101-abcdef",
    {"a": "image"},
    "s3://bucket/runs/",
    "ada",
)
TYPES = {
    "c5.large": Resources(2, 3_700),
    "c5.4xlarge": Resources(16, 31_000),
    "g5.xlarge": Resources(4, 15_700, 1),
}


def find_misfits(step: Step, *environments: ComputeEnvironment) -> list[str]:
    plan = planning.make(Pipeline("demo", (step,)))
    queues = {"cpu": environments, "gpu": environments}
    return list(queue_hosts.find_misfits(plan, TARGET, queues, TYPES))


def managed(*types: str, max_vcpus: int = 256) -> ComputeEnvironment:
    return ComputeEnvironment("fleet", max_vcpus=max_vcpus, type_names=types)


def serverless(max_vcpus: int) -> ComputeEnvironment:
    return ComputeEnvironment("tasks", is_fargate=True, max_vcpus=max_vcpus)


SMALL = Step("a", command="x")
LARGE = Step("a", command="x", cpus=8, memory_mib=16_384)
WITH_GPU = Step("a", command="x", gpus=1, memory_mib=8_192)


@pytest.mark.parametrize(
    ("step", "environments", "fits"),
    [
        (SMALL, [managed("c5.large")], True),
        (SMALL, [managed("c5.4xlarge", max_vcpus=2)], False),
        (SMALL, [managed("c5", max_vcpus=2)], True),
        (LARGE, [managed("c5.large")], False),
        (LARGE, [managed("c5.large", "c5.4xlarge")], True),
        (LARGE, [managed("c5.large"), managed("c5")], True),
        (LARGE, [managed("c5", max_vcpus=8)], False),
        (LARGE, [managed("optimal", max_vcpus=8)], True),
        (LARGE, [managed("optimal", max_vcpus=4)], False),
        (WITH_GPU, [managed("g5.xlarge")], True),
        (WITH_GPU, [managed("c5")], False),
        (WITH_GPU, [managed("optimal")], False),
        # Of these the sizes are not known.
        (LARGE, [managed("z9.huge")], True),
        (WITH_GPU, [managed("z9.huge")], True),
        (LARGE, [managed("z9.huge", max_vcpus=4)], False),
        (LARGE, [ComputeEnvironment("mine")], True),
        (LARGE, [], True),
        (LARGE, [serverless(8)], True),
        (LARGE, [serverless(4)], False),
        (LARGE, [serverless(4), serverless(16)], True),
    ],
)
def test_a_step_needs_one_host_that_is_large_enough(
    step: Step, environments: list[ComputeEnvironment], fits: bool
) -> None:
    assert (find_misfits(step, *environments) == []) is fits


def test_the_reason_names_the_step_the_queue_and_its_hosts() -> None:
    assert find_misfits(WITH_GPU, managed("c5.large", "c5.4xlarge")) == [
        "step 'a': a child asks for 1 vCPU, 8GiB and 1 GPU, and queue gpu has no host for it "
        "(fleet: c5.large, c5.4xlarge, maxvCpus 256): ask for less, or name another `queue:`"
    ]
    (reason,) = find_misfits(LARGE, serverless(4))
    assert "queue cpu has no host for it (tasks: Fargate, maxvCpus 4)" in reason


def test_types_are_asked_for_only_where_they_matter() -> None:
    def patterns(step: Step, *environments: ComputeEnvironment) -> list[str]:
        plan = planning.make(Pipeline("demo", (step,)))
        return queue_hosts.list_type_patterns(plan, TARGET, {"cpu": environments})

    assert patterns(SMALL, managed("c5", "m5.large")) == []
    assert patterns(SMALL, managed("c5", "m5.large", max_vcpus=2)) == ["c5.*", "m5.large"]
    assert patterns(LARGE, managed("optimal", "c5", "m5.large")) == ["c5.*", "m5.large"]
    assert patterns(LARGE, serverless(16)) == []


def test_answers_of_aws_become_hosts() -> None:
    def environment(name: str, kind: str = "MANAGED", **resources: Any) -> dict[str, Any]:
        document: dict[str, Any] = {"computeEnvironmentName": name, "type": kind}
        return {**document, **({"computeResources": resources} if resources else {})}

    documents = {
        "arn:a": environment("a", type="SPOT", maxvCpus=16, instanceTypes=["c5"]),
        "arn:b": environment("b", type="FARGATE_SPOT", maxvCpus=8),
        "arn:c": environment("c", "UNMANAGED"),
    }
    order = [{"order": n, "computeEnvironment": f"arn:{name}"} for n, name in enumerate("cbax")]
    queue = {"computeEnvironmentOrder": order}
    assert queue_hosts.read_environments(queue, documents) == (
        ComputeEnvironment("c"),
        ComputeEnvironment("b", True, 8),
        ComputeEnvironment("a", False, 16, ("c5",), is_spot=True),
    )
    gpu = {
        "InstanceType": "g5.xlarge",
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16_384},
        "GpuInfo": {"Gpus": [{"Count": 1}]},
    }
    assert queue_hosts.read_types([gpu]) == {"g5.xlarge": Resources(4, 15_762, 1)}
