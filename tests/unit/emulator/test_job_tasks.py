"""What a child is told and given, from the job's document (facts, 3 and 5.1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from batchyard.batch.changes import Start
from batchyard.embedded.runner import Task
from batchyard.emulator import names
from batchyard.emulator.docker_flags import Volume
from batchyard.emulator.job_tasks import (
    ContainerTasks,
    TaskSettings,
    inherited_environment,
    substitute_references,
)

SALT = "0123456789abcdef"
SECRETS = {"arn:good": "hidden"}


def task_settings(**changes: Any) -> TaskSettings:
    members: dict[str, Any] = {
        "environ": {"PATH": "/bin", "HOME": "/root"},
        "client_variables": {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "us-east-1"},
        "metadata_address": "http://127.0.0.1:1/imds/k",
        "token": "by0",
        "open_log_group": lambda job: True,
        "salt": SALT,
        "gpu_numbers": (3, 4, 5),
        "emulated_gpus": 1,
        "read_secret": lambda value_from: SECRETS[value_from],
        "has_images": False,
    }
    return TaskSettings(**(members | changes))


def document(container: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    shared = {"image": "busybox", "command": ["echo", "Ref::x"], "environment": [], "secrets": []}
    return {
        "jobId": "job",
        "jobQueue": "arn:aws:batch:us-east-1:123456789012:job-queue/q",
        "parameters": {"x": "1"},
        "platformCapabilities": ["EC2"],
        "container": {**shared, **(container or {})},
        "_resources": {"vcpus": 1, "memory_mib": 64, "gpus": 0},
        "_overrides_length": 0,
        **changes,
    }


def task(
    container: Mapping[str, Any] | None = None,
    settings: TaskSettings | None = None,
    gpus: tuple[int, ...] = (),
    **changes: Any,
) -> Task:
    return ContainerTasks(7, document(container, **changes), settings or task_settings()).task(
        Start("job", 2, 3, gpus, "ce")
    )


def environ(made_task: Task) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in made_task.environ.items()}


def test_what_batch_says() -> None:
    """facts, 3: four variables, and two more in an array."""
    variables = environ(task())
    assert {name: value for name, value in variables.items() if name.startswith("AWS_BATCH_")} == {
        "AWS_BATCH_CE_NAME": "ce",
        "AWS_BATCH_JQ_NAME": "q",
        "AWS_BATCH_JOB_ID": "job",
        "AWS_BATCH_JOB_ATTEMPT": "3",
    }
    variables = environ(task(arrayProperties={"size": 5}))
    assert variables["AWS_BATCH_JOB_ID"] == "job:2"
    assert (variables["AWS_BATCH_JOB_ARRAY_INDEX"], variables["AWS_BATCH_JOB_ARRAY_SIZE"]) == (
        "2",
        "5",
    )


def test_what_ecs_says() -> None:
    """facts, 3: AWS_EXECUTION_ENV; and the metadata address is the attempt's own."""
    variables = environ(task())
    key = names.task_id(names.AttemptKey(7, 2, 3), SALT)
    assert variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] == f"http://127.0.0.1:1/imds/k/{key}"
    assert variables["AWS_EXECUTION_ENV"] == "AWS_ECS_EC2"
    assert environ(task(platformCapabilities=["FARGATE"]))["AWS_EXECUTION_ENV"] == "AWS_ECS_FARGATE"


def test_the_containers_variables_win_over_the_endpoints_but_not_over_batchs() -> None:
    variables = [
        {"name": "AWS_ENDPOINT_URL", "value": "http://elsewhere"},
        {"name": "PATH", "value": "/opt"},
        {"name": "NOTHING"},
        {"name": "AWS_BATCH_JOB_ID", "value": "forged"},
        {"name": "BATCHYARD_TOKEN", "value": "forged"},
    ]
    merged = environ(task({"environment": variables}))
    assert (merged["AWS_ENDPOINT_URL"], merged["PATH"], merged["NOTHING"]) == (
        "http://elsewhere",
        "/opt",
        "",
    )
    assert (merged["AWS_BATCH_JOB_ID"], merged["HOME"]) == ("job", "/root")
    assert merged["BATCHYARD_TOKEN"] == "by0.7.2.3." == task().mark.decode()


def test_a_container_is_told_nothing_of_this_machine() -> None:
    made_task = task(settings=task_settings(has_images=True))
    variable_names = {name.decode() for name in made_task.engine_variables}
    assert (
        "PATH" not in variable_names
        and "HOME" not in variable_names
        and "AWS_BATCH_JOB_ID" in variable_names
    )
    assert made_task.container_flags == () and made_task.image == "busybox"
    assert task().container_flags is None


def test_gpus_by_the_drivers_numbers() -> None:
    """facts, 3: NVIDIA_VISIBLE_DEVICES; of those that are pretended the runner is told nothing."""
    made_task = task(gpus=(0, 2))
    assert (
        environ(made_task)["NVIDIA_VISIBLE_DEVICES"]
        == environ(made_task)["CUDA_VISIBLE_DEVICES"]
        == "3,5"
    )
    assert made_task.gpus == (0,)
    assert environ(task())["CUDA_VISIBLE_DEVICES"] == ""
    assert "NVIDIA_VISIBLE_DEVICES" not in environ(task())
    assert "CUDA_VISIBLE_DEVICES" not in environ(task(settings=task_settings(has_images=True)))


def test_secrets_and_what_becomes_of_a_job_without_them() -> None:
    """facts, 1.8: ResourceInitializationError, and the task failed to start."""
    good = task({"secrets": [{"name": "KEY", "valueFrom": "arn:good"}]})
    assert good.refusal is None and environ(good)["KEY"] == "hidden"
    bad = task({"secrets": [{"name": "KEY", "valueFrom": "arn:bad" + "x" * 500}]}).refusal
    assert bad is not None and (bad.exit_code, bad.status_reason) == (None, "Task failed to start")
    assert bad.reason.startswith("ResourceInitializationError: ") and len(bad.reason) <= 255


def test_what_cannot_be_dispatched() -> None:
    """facts, 1.8 and 5.4: overrides of more than 8192 characters, too many tags together."""
    assert task(_overrides_length=8192).refusal is None
    refused = task(_overrides_length=8193).refusal
    assert (
        refused is not None
        and refused.status_reason == "Container Overrides length must be at most 8192"
    )
    refused = task(_refused="too many tags").refusal
    assert refused is not None and refused.status_reason == "too many tags"


def test_without_a_command_only_an_image_can_run() -> None:
    refused = task({"command": []}).refusal
    assert refused is not None and refused.reason.startswith(
        "CannotStartContainerError: no command"
    )
    assert task({"command": []}, settings=task_settings(has_images=True)).refusal is None


def test_a_container_that_mounts_efs_is_refused_and_a_process_is_not() -> None:
    """A choice: a process has no volumes at all, and a container that found its EFS empty would
    not know."""
    efs = {
        "volumes": [{"name": "v", "efsVolumeConfiguration": {"fileSystemId": "fs-1"}}],
        "mountPoints": [{"sourceVolume": "v", "containerPath": "/" + "d" * 300}],
    }
    assert task(efs).refusal is None
    refused = task(efs, settings=task_settings(has_images=True)).refusal
    assert refused is not None and (refused.exit_code, refused.status_reason) == (
        None,
        "Task failed to start",
    )
    assert (
        refused.reason.startswith("ResourceInitializationError: this endpoint has no EFS")
        and len(refused.reason) <= 255
    )
    instead = Volume("/here", "/" + "d" * 300)
    made_task = task(efs, settings=task_settings(has_images=True, volumes=(instead,)))
    assert made_task.refusal is None and made_task.container_flags == (
        "--mount",
        f"type=bind,source=/here,target={instead.target}",
    )


def test_the_command_with_its_parameters() -> None:
    """facts, 5.1: only in the command, never in the environment."""
    made_task = task({"environment": [{"name": "E", "value": "Ref::x"}]})
    assert made_task.command(0) == ("echo", "1")
    assert environ(made_task)["E"] == "Ref::x"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Ref::a", "1"),
        ("--in=Ref::a,Ref::b", "--in=1,2"),
        ("Ref::missing", "Ref::missing"),
        ("Ref::a-b", "3"),
        ("ref::a", "ref::a"),
        ("Ref::", "Ref::"),
        ("Ref::c", "Ref::a"),
        ("$a", "$a"),
    ],
)
def test_references(word: str, expected: str) -> None:
    """facts, 5.1: a choice: one that nobody has given stays as it is; a value is not looked at
    again."""
    assert substitute_references(word, {"a": "1", "b": "2", "a-b": "3", "c": "Ref::a"}) == expected


def test_what_is_inherited() -> None:
    environment = {
        "PATH": "/bin",
        "AWS_PROFILE": "p",
        "AWS_BATCH_JOB_ID": "j",
        "BATCHYARD_TOKEN": "t",
        "LANG": "C",
    }
    assert inherited_environment(environment) == {"PATH": "/bin", "LANG": "C"}
    assert inherited_environment(environment, "/venv/bin") == {
        "PATH": "/bin:/venv/bin",
        "LANG": "C",
    }
    assert inherited_environment({"PATH": "/venv/bin:/bin"}, "/venv/bin") == {
        "PATH": "/venv/bin:/bin"
    }
    assert inherited_environment({}, "/venv/bin") == {"PATH": f"{os.defpath}:/venv/bin"}


def test_a_job_whose_log_group_does_not_exist_is_not_started() -> None:
    refused = task(settings=task_settings(open_log_group=lambda job: False)).refusal
    assert refused is not None
    assert refused.status_reason == "Task failed to start"
    assert refused.reason.endswith("The specified log group does not exist.")
