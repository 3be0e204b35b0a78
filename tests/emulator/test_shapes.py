"""The members of AWS's answers: empty lists are sent, and nothing is invented (facts, 1.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from emulator_answers import held_to_account, refused
from emulator_endpoint import Endpoint

REQUIREMENTS = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
NO_ENTRIES: dict[str, Any] = {
    name: [] for name in ("environment", "mountPoints", "volumes", "ulimits", "secrets")
}


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


def describe_definition(endpoint: Endpoint, name: str) -> Any:
    (definition,) = endpoint.batch.describe_job_definitions(jobDefinitions=[name])["jobDefinitions"]
    return definition


def test_a_definition_has_the_lists_that_its_request_left_out(endpoint: Endpoint) -> None:
    container = {
        "image": "busybox",
        "resourceRequirements": REQUIREMENTS,
        "logConfiguration": {"logDriver": "awslogs"},
        "linuxParameters": {"initProcessEnabled": True},
    }
    endpoint.batch.register_job_definition(
        jobDefinitionName="sparse", type="container", containerProperties=container
    )
    definition = describe_definition(endpoint, "sparse:1")
    assert definition["containerProperties"] == {
        **container,
        **NO_ENTRIES,
        "command": [],
        "logConfiguration": {"logDriver": "awslogs", "options": {}, "secretOptions": []},
        "linuxParameters": {"initProcessEnabled": True, "devices": [], "tmpfs": []},
    }
    assert (definition["parameters"], definition["tags"]) == ({}, {})
    assert "platformCapabilities" not in definition
    assert "retryStrategy" not in definition


def test_the_old_way_to_ask_for_resources(endpoint: Endpoint) -> None:
    container = {"image": "busybox", "vcpus": 1, "memory": 64}
    endpoint.batch.register_job_definition(
        jobDefinitionName="old", type="container", containerProperties=container
    )
    described = describe_definition(endpoint, "old:1")["containerProperties"]
    assert (described["resourceRequirements"], described["vcpus"]) == ([], 1)


def test_a_job_has_the_members_that_nobody_set(endpoint: Endpoint) -> None:
    job = endpoint.wait(endpoint.submit(endpoint.definition("plain", "true")))
    assert job["retryStrategy"] == {"attempts": 1, "evaluateOnExit": []}
    assert job["propagateTags"] is False
    assert (job["platformCapabilities"], job["eksAttempts"]) == ([], [])
    assert (job["dependsOn"], job["parameters"], job["tags"]) == ([], {}, {})
    assert job["container"].items() >= {**NO_ENTRIES, "networkInterfaces": []}.items()


def test_a_job_has_what_its_definition_says(endpoint: Endpoint) -> None:
    definition = endpoint.definition(
        "said",
        "true",
        platformCapabilities=["EC2"],
        propagateTags=True,
        retryStrategy={"attempts": 2},
    )
    assert describe_definition(endpoint, definition)["retryStrategy"] == {
        "attempts": 2,
        "evaluateOnExit": [],
    }
    job = endpoint.job(endpoint.submit(definition))
    assert (job["platformCapabilities"], job["propagateTags"]) == (["EC2"], True)
    assert job["retryStrategy"] == {"attempts": 2, "evaluateOnExit": []}
    assert endpoint.job(endpoint.submit(definition, propagateTags=False))["propagateTags"] is False


def test_a_retry_strategy_needs_attempts(endpoint: Endpoint) -> None:
    with refused("Error executing request, Exception : RetryAttempts must be provided with retry"):
        endpoint.definition("never", "true", retryStrategy={})


def test_the_child_of_an_array(endpoint: Endpoint) -> None:
    array = endpoint.run("true", arrayProperties={"size": 2})
    child = endpoint.wait(f"{array}:1")
    assert child["arrayProperties"] == {"statusSummary": {}, "index": 1}


def test_a_list_says_which_jobs_were_stopped(endpoint: Endpoint) -> None:
    job_id = endpoint.run("sleep", "60", name="to-stop")
    endpoint.wait(job_id, "RUNNING")
    endpoint.batch.terminate_job(jobId=job_id, reason="enough")
    endpoint.wait(job_id)
    filters = [{"name": "JOB_NAME", "values": ["to-stop"]}]
    (summary,) = endpoint.batch.list_jobs(jobQueue="queue", filters=filters)["jobSummaryList"]
    assert (summary["isCancelled"], summary["isTerminated"]) == (False, True)


def test_a_job_of_ecs_properties_is_described_as_a_task(endpoint: Endpoint) -> None:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", "echo $WHO; exit 3"],
        "environment": [{"name": "WHO", "value": "definition"}],
        "resourceRequirements": REQUIREMENTS,
    }
    task = {"containers": [container], "taskRoleArn": "arn:aws:iam::123456789012:role/r"}
    endpoint.batch.register_job_definition(
        jobDefinitionName="as-task", type="container", ecsProperties={"taskProperties": [task]}
    )
    overrides = {"containers": [{"environment": [{"name": "WHO", "value": "job"}]}]}
    job_id = endpoint.submit("as-task", ecsPropertiesOverride={"taskProperties": [overrides]})
    job = endpoint.wait(job_id)
    assert "container" not in job
    (described,) = job["ecsProperties"]["taskProperties"]
    (main,) = described["containers"]
    assert described["taskRoleArn"] == task["taskRoleArn"]
    assert described["volumes"] == []
    assert (main["name"], main["command"], main["exitCode"]) == ("main", container["command"], 3)
    assert main["environment"] == [{"name": "WHO", "value": "job"}]
    assert (main["dependsOn"], main["networkInterfaces"]) == ([], [])
    task_id = described["taskArn"].rpartition("/")[2]
    assert main["logStreamName"] == f"as-task/main/{task_id}"
    (attempt,) = job["attempts"]
    (attempt_task,) = attempt["taskProperties"]
    assert attempt_task == {
        "taskArn": described["taskArn"],
        "containerInstanceArn": described["containerInstanceArn"],
        "containers": [
            {
                "name": "main",
                "exitCode": 3,
                "logStreamName": main["logStreamName"],
                "networkInterfaces": [],
            }
        ],
    }
    events = endpoint.logs.get_log_events(
        logGroupName="/aws/batch/job", logStreamName=main["logStreamName"]
    )["events"]
    assert [event["message"] for event in events] == ["job"]
    filters = [{"name": "JOB_DEFINITION", "values": ["as-task"]}]
    (summary,) = endpoint.batch.list_jobs(jobQueue="queue", filters=filters)["jobSummaryList"]
    assert summary["container"] == {"exitCode": 3}


def test_an_environment_of_instances_has_tags_and_template_overrides(endpoint: Endpoint) -> None:
    endpoint.environment("templated", launchTemplate={"launchTemplateName": "t"})
    (environment,) = endpoint.batch.describe_compute_environments(
        computeEnvironments=["templated"]
    )["computeEnvironments"]
    resources = environment["computeResources"]
    assert resources["tags"] == {}
    assert resources["launchTemplate"] == {"launchTemplateName": "t", "overrides": []}
