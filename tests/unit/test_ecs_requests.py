"""Task definitions and RunTask requests of steps, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchyard import plan as planning
from batchyard.engines.aws.target import Target
from batchyard.engines.ecs import preparing
from batchyard.engines.ecs.requests import (
    Launch,
    make_definition,
    make_request,
    stream_name,
)
from batchyard.environments import Environment
from batchyard.errors import InputError
from batchyard.pipeline import Mount, Pipeline, Step
from batchyard.plan import PlannedJob

LAB = Environment("lab", "us-east-1", "runs", cluster="gpu", capacity_provider="nodes")
FARGATE = replace(LAB, capacity_provider="FARGATE_SPOT", subnets=("subnet-1",))


def planned(environment: Environment = LAB, **keys: Any) -> tuple[PlannedJob, Target]:
    step = Step("train", image="train:1", **{"command": "python train.py", **keys})
    plan = planning.with_claiming_children(planning.make(Pipeline("p", (step,))), 16)
    return plan.jobs[0], preparing.make_target(plan, environment)


def request_of(
    *children: int, environment: Environment = LAB, attempt: int = 1, **keys: Any
) -> dict[str, Any]:
    job, target = planned(environment, **keys)
    return make_request(job, target, "id", "arn", Launch("token", 0, attempt, children or (0,)))


def variables_of(request: dict[str, Any]) -> dict[str, str]:
    (container,) = request["overrides"]["containerOverrides"]
    return {entry["name"]: entry["value"] for entry in container["environment"]}


def test_what_differs_from_child_to_child_is_in_the_overrides() -> None:
    request = request_of(2, array=3, env={"EPOCHS": "3"}, gpus=1, cpus=4, memory_mib=8192)
    (container,) = request["overrides"]["containerOverrides"]
    assert container["command"] == ["sh", "-c", "exec 2>&1; python train.py"]
    assert (container["cpu"], container["memory"]) == (4096, 8192)
    assert container["resourceRequirements"] == [{"type": "GPU", "value": "1"}]
    told = variables_of(request)
    assert (told["EPOCHS"], told["BATCHYARD_DEVICE"]) == ("3", "gpu")
    assert told["AWS_BATCH_JOB_ID"] == "id:2" and told["AWS_BATCH_JOB_ARRAY_INDEX"] == "2"
    assert (request["clientToken"], request["count"]) == ("token", 1)
    assert len(request["startedBy"]) <= 128
    assert request["capacityProviderStrategy"] == [{"capacityProvider": "nodes", "weight": 1}]
    assert "launchType" not in request and "networkConfiguration" not in request


def test_children_of_a_dynamic_step_are_alike() -> None:
    keys = {"command": None, "commands": tuple("abcdef"), "share_out": "dynamic", "array": 6}
    request = request_of(0, 1, 2, **keys)
    told = variables_of(request)
    assert request["count"] == 3
    assert request["overrides"]["containerOverrides"][0]["command"] == ["batchyard-worker"]
    assert "AWS_BATCH_JOB_ID" not in told and "AWS_BATCH_JOB_ARRAY_INDEX" not in told


def test_the_name_of_a_definition_is_the_hash_of_its_content() -> None:
    first = make_definition(*planned(env={"X": "1"}, memory_mib=64))
    same = make_definition(*planned(env={"X": "2"}, memory_mib=512))
    assert same["family"] == first["family"]
    other = make_definition(*planned(shm_mib=512))
    assert other["family"] != first["family"]
    (container,) = other["containerDefinitions"]
    assert container["linuxParameters"] == {"initProcessEnabled": True, "sharedMemorySize": 512}
    assert container["logConfiguration"]["options"]["awslogs-create-group"] == "true"


def test_mounts_roles_and_the_log_group_are_in_the_definition() -> None:
    environment = replace(
        LAB, task_role="arn:task", execution_role="arn:execution", task_log_group="/ecs/lab"
    )
    definition = make_definition(*planned(environment, mounts=(Mount("/data", host="/disk"),)))
    (container,) = definition["containerDefinitions"]
    assert definition["volumes"] == [{"name": "mount0", "host": {"sourcePath": "/disk"}}]
    assert container["mountPoints"][0]["containerPath"] == "/data"
    assert (definition["taskRoleArn"], definition["executionRoleArn"]) == (
        "arn:task",
        "arn:execution",
    )
    options = container["logConfiguration"]["options"]
    assert options["awslogs-group"] == "/ecs/lab" and "awslogs-create-group" not in options
    assert stream_name("arn:aws:ecs:us-east-1:1:task/gpu/0a1b") == "batchyard/main/0a1b"


def test_fargate_has_sizes_of_tasks_and_interfaces_of_their_own() -> None:
    request = request_of(environment=FARGATE, cpus=1, memory_mib=1000)
    assert (request["overrides"]["cpu"], request["overrides"]["memory"]) == ("1024", "2048")
    assert request["networkConfiguration"] == {
        "awsvpcConfiguration": {"subnets": ["subnet-1"], "assignPublicIp": "ENABLED"}
    }
    definition = make_definition(*planned(FARGATE))
    assert definition["networkMode"] == "awsvpc"
    assert definition["requiresCompatibilities"] == ["FARGATE"]


@pytest.mark.parametrize(
    ("environment", "keys", "sentence"),
    [
        (LAB, {"env": {"X": "x" * 9000}}, "characters, and ECS takes 8,192"),
        (LAB, {"queue": "fast"}, "`queue` is about queues of AWS Batch"),
        (LAB, {"secrets": {"KEY": "arn:aws:ssm:1"}}, "has secrets"),
        (FARGATE, {"gpus": 1}, "Fargate has no GPUs"),
        (FARGATE, {"cpus": 3}, "Fargate has no tasks of 3 vCPUs"),
    ],
)
def test_what_ecs_would_refuse_is_refused_before_it_runs(
    environment: Environment, keys: dict[str, Any], sentence: str
) -> None:
    job, target = planned(environment, **keys)
    plan = planning.make(Pipeline("p", (Step("train", command="true", image="train:1"),)))
    with pytest.raises(InputError, match=sentence):
        preparing.check_plan(replace(plan, jobs=(job,)), target)
