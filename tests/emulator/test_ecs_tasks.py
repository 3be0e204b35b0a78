"""Tasks of ECS that really run: RunTask, StartTask, StopTask, DescribeTasks and ListTasks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from ecs_tasks_of_tests import describe, log_lines, logging_to, register, run, shell, wait_for
from emulator_endpoint import AWS, Endpoint, until


@pytest.fixture(scope="module")
def ecs(endpoint: Endpoint) -> Any:
    """A client, and the cluster `default` with one instance: this machine, with two GPUs."""
    client = endpoint.client("ecs")
    client.create_cluster()
    client.register_container_instance()
    return client


@pytest.fixture(autouse=True)
def no_tasks_left(ecs: Any) -> Iterator[None]:
    yield
    arns = ecs.list_tasks()["taskArns"]
    for arn in arns:
        ecs.stop_task(task=arn)
    for arn in arns:
        wait_for(ecs, arn, "STOPPED")


def error_of(call: Any, **members: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**members)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


# -- the life of a task ---------------------------------------------------------------------------


def test_a_task_runs_and_its_exit_code_is_shown(ecs: Any) -> None:
    register(ecs, "exits", {"command": shell("exit 7")})
    task = wait_for(ecs, run(ecs, "exits"), "STOPPED")
    (container,) = task["containers"]
    assert (container["exitCode"], container["lastStatus"]) == (7, "STOPPED")
    assert task["stopCode"] == "EssentialContainerExited"
    assert task["stoppedReason"] == "Essential container in task exited"
    assert task["createdAt"] <= task["startedAt"] <= task["stoppedAt"]
    assert (task["launchType"], task["group"]) == ("EC2", "family:exits")


def test_overrides_change_command_environment_and_gpus(ecs: Any, endpoint: Endpoint) -> None:
    register(
        ecs,
        "overridden",
        {
            "command": ["false"],
            "environment": [{"name": "EPOCHS", "value": "1"}, {"name": "SEED", "value": "7"}],
            "logConfiguration": logging_to("/ecs/overrides"),
        },
    )
    override = {
        "name": "main",
        "command": shell('echo "$EPOCHS $SEED $NVIDIA_VISIBLE_DEVICES"'),
        "environment": [{"name": "EPOCHS", "value": "3"}],
        "resourceRequirements": [{"type": "GPU", "value": "2"}],
    }
    arn = run(ecs, "overridden", overrides={"containerOverrides": [override]})
    (container,) = wait_for(ecs, arn, "STOPPED")["containers"]
    assert container["exitCode"] == 0
    assert len(container["gpuIds"]) == 2
    # The log is whole as soon as the task is STOPPED.
    assert log_lines(endpoint, "/ecs/overrides", arn) == ["3 7 0,1"]


def test_a_task_is_stopped_with_sigterm_and_a_reason(ecs: Any, endpoint: Endpoint) -> None:
    command = "trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.2; done"
    register(
        ecs, "polite", {"command": shell(command), "logConfiguration": logging_to("/ecs/polite")}
    )
    arn = run(ecs, "polite")
    until(lambda: log_lines(endpoint, "/ecs/polite", arn), lambda lines: lines == ["ready"])
    stopped = ecs.stop_task(task=arn, reason="enough")["task"]
    assert stopped["desiredStatus"] == "STOPPED"
    task = wait_for(ecs, arn, "STOPPED")
    assert (task["stopCode"], task["stoppedReason"]) == ("UserInitiated", "enough")
    assert task["containers"][0]["exitCode"] == 3
    assert log_lines(endpoint, "/ecs/polite", arn)[-1] == "term"


def test_a_task_that_ignores_sigterm_is_killed_after_its_stop_timeout(
    ecs: Any, tmp_path: Path
) -> None:
    command = shell(f"trap '' TERM; touch {tmp_path}/ready; while :; do sleep 1; done")
    register(ecs, "rude", {"command": command, "stopTimeout": 0})
    arn = run(ecs, "rude")
    until((tmp_path / "ready").exists, bool)
    ecs.stop_task(task=arn)
    task = wait_for(ecs, arn, "STOPPED")
    assert task["stoppedReason"] == "Task stopped by user"
    assert task["containers"][0]["exitCode"] == 137


def test_a_container_that_cannot_start_has_no_exit_code(ecs: Any) -> None:
    register(
        ecs,
        "nolog",
        {"command": ["true"], "logConfiguration": logging_to("/ecs/missing", create=False)},
    )
    task = wait_for(ecs, run(ecs, "nolog"), "STOPPED")
    assert (task["stopCode"], task["stoppedReason"]) == (
        "TaskFailedToStart",
        "Task failed to start",
    )
    (container,) = task["containers"]
    assert "exitCode" not in container
    assert container["reason"].startswith("CannotStartContainerError: ")
    assert "startedAt" not in task


def test_a_container_that_uses_too_much_memory_is_killed(ecs: Any) -> None:
    eat = "x=a; while :; do x=$x$x$x; done"
    register(ecs, "hungry", {"command": shell(eat), "memory": 32})
    task = wait_for(ecs, run(ecs, "hungry"), "STOPPED")
    (container,) = task["containers"]
    assert container["exitCode"] == 137
    assert container["reason"] == "OutOfMemoryError: Container killed due to memory usage"


def test_containers_wait_for_one_another_and_end_with_the_essential_one(
    ecs: Any, endpoint: Endpoint
) -> None:
    logs = logging_to("/ecs/three")
    register(
        ecs,
        "three",
        {"name": "main", "command": shell("echo main"), "logConfiguration": logs}
        | {"dependsOn": [{"containerName": "prepare", "condition": "SUCCESS"}]},
        {"name": "prepare", "command": shell("echo prepare"), "logConfiguration": logs}
        | {"essential": False},
        {"name": "helper", "command": shell("while :; do sleep 1; done"), "essential": False},
    )
    arn = run(ecs, "three")
    task = wait_for(ecs, arn, "STOPPED")
    codes = {container["name"]: container["exitCode"] for container in task["containers"]}
    assert (codes["main"], codes["prepare"]) == (0, 0)
    assert codes["helper"] in (137, 143)
    assert log_lines(endpoint, "/ecs/three", arn, "prepare") == ["prepare"]
    assert log_lines(endpoint, "/ecs/three", arn, "main") == ["main"]


def test_a_container_finds_its_metadata_and_credentials(ecs: Any, endpoint: Endpoint) -> None:
    script = """
import json, os, urllib.request
def read(address):
    return json.load(urllib.request.urlopen(address))
base = os.environ["ECS_CONTAINER_METADATA_URI_V4"]
own, task = read(base), read(base + "/task")
keys = read(os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"])
print(json.dumps([own["Name"], own["LogOptions"]["awslogs-stream"], task["Family"],
                  task["TaskARN"], keys["RoleArn"], os.environ["AWS_EXECUTION_ENV"],
                  "AWS_ACCESS_KEY_ID" in os.environ, "AWS_BATCH_JOB_ID" in os.environ]))
"""
    role = "arn:aws:iam::123456789012:role/trainer"
    register(
        ecs,
        "curious",
        {"command": ["python3", "-c", script], "logConfiguration": logging_to("/ecs/curious")},
        taskRoleArn=role,
    )
    arn = run(ecs, "curious")
    wait_for(ecs, arn, "STOPPED")
    (line,) = log_lines(endpoint, "/ecs/curious", arn)
    stream = f"run/main/{arn.rpartition('/')[2]}"
    expected = ["main", stream, "curious", arn, role, "AWS_ECS_EC2", False, False]
    assert json.loads(line) == expected


def test_a_task_takes_its_whole_room_before_a_container_of_it_starts(ecs: Any) -> None:
    """Two tasks whose second containers wait for the first ones, with room for one task."""
    waits = {"dependsOn": [{"containerName": "first", "condition": "START"}]}
    half = {"cpu": 3 * 1024, "command": shell("sleep 0.3")}
    register(ecs, "pair", {"name": "first", **half, "essential": False}, half | waits)
    ecs.create_cluster(clusterName="pairs")
    for _ in range(2):
        ecs.register_container_instance(cluster="pairs")
    arns = [run(ecs, "pair", cluster="pairs") for _ in range(2)]
    codes = [
        container["exitCode"]
        for arn in arns
        for container in wait_for(ecs, arn, "STOPPED")["containers"]
    ]
    assert codes == [0, 0, 0, 0]


def test_a_container_that_is_larger_than_its_task_is_refused(ecs: Any) -> None:
    """Such a container would wait for room for ever, and all tasks behind it too."""
    large = {"command": ["true"], "memory": 99_999_999}
    assert error_of(
        ecs.register_task_definition,
        family="inner",
        memory="512",
        containerDefinitions=[{"name": "main", "image": "busybox", **large}],
    ) == (
        "ClientException",
        "The 'memory' setting for container 'main' is greater than for the task.",
    )
    register(ecs, "inner", {"command": ["true"]}, memory="512")
    override = {"containerOverrides": [{"name": "main", "cpu": 99_999}], "cpu": "1024"}
    assert error_of(ecs.run_task, taskDefinition="inner", overrides=override) == (
        "InvalidParameterException",
        "The 'cpu' setting for container 'main' is greater than for the task.",
    )
    assert wait_for(ecs, run(ecs, "inner"), "STOPPED")["containers"][0]["exitCode"] == 0


def test_the_waiters_of_boto3(ecs: Any) -> None:
    often = {"Delay": 1, "MaxAttempts": 60}
    register(ecs, "awaited", {"command": shell("while :; do sleep 1; done"), "stopTimeout": 0})
    arns = [run(ecs, "awaited"), run(ecs, "awaited")]
    ecs.get_waiter("tasks_running").wait(tasks=arns, WaiterConfig=often)
    for arn in arns:
        ecs.stop_task(task=arn)
    ecs.get_waiter("tasks_stopped").wait(tasks=arns, WaiterConfig=often)
    # A task that has stopped will never run, and one that is unknown never comes.
    for arn in (arns[0], "0" * 32):
        with pytest.raises(WaiterError, match="terminal failure"):
            ecs.get_waiter("tasks_running").wait(tasks=[arn], WaiterConfig=often)


def test_commands_cannot_be_executed_in_a_task(ecs: Any) -> None:
    register(ecs, "closed", {"command": shell("while :; do sleep 1; done"), "stopTimeout": 0})
    request = {"command": "sh", "interactive": True}
    closed = run(ecs, "closed")
    code, message = error_of(ecs.execute_command, task=closed, **request)
    assert (code, "execute command was not enabled" in message) == (
        "InvalidParameterException",
        True,
    )
    opened = run(ecs, "closed", enableExecuteCommand=True)
    assert describe(ecs, opened)["enableExecuteCommand"]
    code, message = error_of(ecs.execute_command, task=opened, **request)
    assert (code, "has no ExecuteCommand" in message) == ("TargetNotConnectedException", True)


@pytest.mark.slow
def test_the_aws_command_is_refused_a_session_by_name(
    ecs: Any, endpoint: Endpoint, tmp_path: Path
) -> None:
    """The command begins a session only where the plugin of Session Manager is installed."""
    plugin = tmp_path / "session-manager-plugin"
    plugin.write_text("#!/bin/sh\n")
    plugin.chmod(0o755)
    register(ecs, "shelled", {"command": shell("while :; do sleep 1; done"), "stopTimeout": 0})
    arn = run(ecs, "shelled", enableExecuteCommand=True)
    path = f"{tmp_path}{os.pathsep}{endpoint.environ['PATH']}"
    done = subprocess.run(
        [AWS, "ecs", "execute-command", "--task", arn, "--interactive", "--command", "sh"],
        env={**endpoint.environ, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    assert "TargetNotConnectedException" in done.stderr and "docker exec" in done.stderr


def test_settings_that_nobody_has_changed_have_their_defaults(ecs: Any) -> None:
    name = "taskLongArnFormat"
    answer = ecs.list_account_settings(name=name, effectiveSettings=True)
    assert [entry["value"] for entry in answer["settings"]] == ["enabled"]
    ecs.put_account_setting(name="containerInsights", value="enabled")
    settings = ecs.list_account_settings(effectiveSettings=True)["settings"]
    assert {entry["name"]: entry["value"] for entry in settings}["containerInsights"] == "enabled"


# -- RunTask --------------------------------------------------------------------------------------


def test_failures_name_the_instance_and_what_it_lacks(ecs: Any) -> None:
    (instance,) = ecs.list_container_instances()["containerInstanceArns"]
    for name, container, reason in (
        ("cpu", {"cpu": 999_999}, "RESOURCE:CPU"),
        ("memory", {"memory": 9_999_999}, "RESOURCE:MEMORY"),
        ("gpu", {"resourceRequirements": [{"type": "GPU", "value": "3"}]}, "RESOURCE:GPU"),
    ):
        register(ecs, f"large-{name}", {"command": ["true"], **container})
        answer = ecs.run_task(taskDefinition=f"large-{name}")
        assert answer["tasks"] == []
        assert answer["failures"] == [{"arn": instance, "reason": reason}]


def test_gpus_are_taken_and_given_back(ecs: Any) -> None:
    command = shell("while :; do sleep 1; done")
    gpu = {"resourceRequirements": [{"type": "GPU", "value": "1"}]}
    register(ecs, "gpu", {"command": command, "stopTimeout": 0, **gpu})
    answer = ecs.run_task(taskDefinition="gpu", count=3)
    assert len(answer["tasks"]) == 2
    assert [failure["reason"] for failure in answer["failures"]] == ["RESOURCE:GPU"]
    arns = [task["taskArn"] for task in answer["tasks"]]
    gpus = [wait_for(ecs, arn, "RUNNING")["containers"][0]["gpuIds"] for arn in arns]
    (instance,) = ecs.list_container_instances()["containerInstanceArns"]
    (described,) = ecs.describe_container_instances(containerInstances=[instance])[
        "containerInstances"
    ]
    resources = {entry["name"]: entry for entry in described["registeredResources"]}
    assert sorted(resources["GPU"]["stringSetValue"]) == sorted(gpu for ids in gpus for gpu in ids)
    remaining = {entry["name"]: entry for entry in described["remainingResources"]}
    assert remaining["GPU"]["stringSetValue"] == []
    assert described["runningTasksCount"] == 2
    (cluster,) = ecs.describe_clusters(clusters=["default"])["clusters"]
    assert (cluster["runningTasksCount"], cluster["registeredContainerInstancesCount"]) == (2, 1)
    ecs.stop_task(task=arns[0])
    wait_for(ecs, arns[0], "STOPPED")
    assert ecs.run_task(taskDefinition="gpu")["failures"] == []


def test_a_client_token_starts_no_second_task(ecs: Any) -> None:
    register(ecs, "once", {"command": ["true"]})
    first = ecs.run_task(taskDefinition="once", count=2, clientToken="token-1")
    again = ecs.run_task(taskDefinition="once", count=2, clientToken="token-1")
    arns = [task["taskArn"] for task in first["tasks"]]
    assert [task["taskArn"] for task in again["tasks"]] == arns
    with pytest.raises(ClientError) as caught:
        ecs.run_task(taskDefinition="once", clientToken="token-1")
    assert caught.value.response["Error"]["Code"] == "ConflictException"
    assert caught.value.response["resourceIds"] == arns


def test_tags_of_aws_itself_are_refused(ecs: Any) -> None:
    tags = [{"key": "aws:mine", "value": "1"}]
    with pytest.raises(ClientError, match="aws: prefixed tag key names are not allowed"):
        register(ecs, "reserved", {"command": ["true"]}, tags=tags)
    arn = register(ecs, "reserved", {"command": ["true"]})
    with pytest.raises(ClientError, match="InvalidParameterException"):
        ecs.run_task(taskDefinition="reserved", tags=tags)
    with pytest.raises(ClientError, match="InvalidParameterException"):
        ecs.tag_resource(resourceArn=arn, tags=tags)


def test_tags_group_and_starter_are_kept(ecs: Any) -> None:
    register(ecs, "tagged", {"command": ["true"]}, tags=[{"key": "of", "value": "definition"}])
    arn = run(
        ecs,
        "tagged",
        startedBy="nightly",
        group="trainings",
        tags=[{"key": "run", "value": "1"}],
        propagateTags="TASK_DEFINITION",
        enableECSManagedTags=True,
    )
    task = describe(ecs, arn, include=["TAGS"])
    assert {tag["key"]: tag["value"] for tag in task["tags"]} == {
        "of": "definition",
        "run": "1",
        "aws:ecs:clusterName": "default",
    }
    assert (task["startedBy"], task["group"]) == ("nightly", "trainings")
    assert describe(ecs, arn)["tags"] == []
    until(
        lambda: ecs.list_tasks(startedBy="nightly", desiredStatus="STOPPED")["taskArns"],
        lambda arns: arns == [arn],
    )


@pytest.mark.parametrize(
    ("members", "code", "words"),
    [
        ({"count": 11}, "InvalidParameterException", "between 1 and 10"),
        ({"cluster": "nowhere"}, "ClusterNotFoundException", "Cluster not found."),
        ({"taskDefinition": "unknown"}, "ClientException", "TaskDefinition not found."),
        ({"launchType": "FARGATE"}, "InvalidParameterException", "launch_type FARGATE"),
        (
            {"overrides": {"containerOverrides": [{"name": "other"}]}},
            "InvalidParameterException",
            "Override for container named other is not a container in the TaskDefinition.",
        ),
        (
            {"overrides": {"containerOverrides": [{"name": "main", "command": ["x" * 9000]}]}},
            "InvalidParameterException",
            "Container Overrides length must be at most 8192",
        ),
        (
            {"capacityProviderStrategy": [{"capacityProvider": "none"}]},
            "InvalidParameterException",
            "The specified capacity provider was not found",
        ),
        ({"startedBy": "x" * 129}, "InvalidParameterException", "startedBy"),
        ({"clientToken": "x" * 65}, "InvalidParameterException", "clientToken"),
    ],
)
def test_bad_requests_are_refused(ecs: Any, members: dict[str, Any], code: str, words: str) -> None:
    register(ecs, "refused", {"command": ["true"]})
    refused = error_of(ecs.run_task, **{"taskDefinition": "refused", **members})
    assert refused[0] == code and words in refused[1]


def test_a_cluster_without_instances_refuses_tasks(ecs: Any) -> None:
    ecs.create_cluster(clusterName="empty")
    register(ecs, "homeless", {"command": ["true"]})
    refused = error_of(ecs.run_task, taskDefinition="homeless", cluster="empty")
    assert refused == (
        "InvalidParameterException",
        "No Container Instances were found in your cluster.",
    )


def test_a_task_is_started_on_a_named_instance(ecs: Any) -> None:
    register(ecs, "named", {"command": ["true"]})
    (instance,) = ecs.list_container_instances()["containerInstanceArns"]
    missing = "0" * 32
    answer = ecs.start_task(taskDefinition="named", containerInstances=[instance, missing])
    assert answer["failures"] == [{"arn": missing, "reason": "MISSING"}]
    (task,) = answer["tasks"]
    assert task["containerInstanceArn"] == instance
    wait_for(ecs, task["taskArn"], "STOPPED")


# -- DescribeTasks and ListTasks ------------------------------------------------------------------


def test_the_first_reason_of_a_stop_stays(ecs: Any, endpoint: Endpoint) -> None:
    ecs.create_cluster(clusterName="lost")
    instance = ecs.register_container_instance(cluster="lost")["containerInstance"]
    ignores = shell("trap '' TERM; echo ready; while :; do sleep 1; done")
    log = {"logConfiguration": logging_to("/lost")}
    register(ecs, "lost", {"command": ignores, "stopTimeout": 60, **log})
    arn = run(ecs, "lost", cluster="lost")
    until(lambda: log_lines(endpoint, "/lost", arn), lambda lines: lines == ["ready"])
    ecs.stop_task(cluster="lost", task=arn, reason="mine")
    ecs.deregister_container_instance(
        cluster="lost", containerInstance=instance["containerInstanceArn"], force=True
    )
    task = wait_for(ecs, arn, "STOPPED")
    assert (task["stopCode"], task["stoppedReason"]) == ("UserInitiated", "mine")


def test_unknown_tasks_are_missing(ecs: Any) -> None:
    answer = ecs.describe_tasks(tasks=["0" * 32])
    assert answer["tasks"] == []
    assert [failure["reason"] for failure in answer["failures"]] == ["MISSING"]
    code, _ = error_of(ecs.describe_tasks, tasks=["a"] * 101)
    assert code == "InvalidParameterException"


def test_tasks_are_listed_in_pages_and_by_their_state(ecs: Any) -> None:
    command = shell("while :; do sleep 1; done")
    register(ecs, "listed", {"command": command, "stopTimeout": 0})
    answer = ecs.run_task(taskDefinition="listed", count=3)
    arns = sorted(task["taskArn"] for task in answer["tasks"])
    pages = ecs.get_paginator("list_tasks").paginate(
        family="listed", PaginationConfig={"PageSize": 2}
    )
    assert sorted(arn for page in pages for arn in page["taskArns"]) == arns
    ecs.stop_task(task=arns[0])
    assert arns[0] in ecs.list_tasks(family="listed", desiredStatus="STOPPED")["taskArns"]
    assert sorted(ecs.list_tasks(family="listed")["taskArns"]) == arns[1:]


# -- the aws command ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_aws_command_runs_a_task_and_waits_for_it(ecs: Any, endpoint: Endpoint) -> None:
    register(ecs, "by-hand", {"command": shell("exit 5")})
    answer = endpoint.aws("ecs", "run-task", "--task-definition", "by-hand")
    arn = answer["tasks"][0]["taskArn"]
    endpoint.aws("ecs", "wait", "tasks-stopped", "--tasks", arn)
    (task,) = endpoint.aws("ecs", "describe-tasks", "--tasks", arn)["tasks"]
    assert task["containers"][0]["exitCode"] == 5
