"""Stacks with services of ECS: they are in progress until their tasks run, as on AWS."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from ecs_tasks_of_tests import shell
from emulator_endpoint import Endpoint, until

FOREVER = shell("while :; do sleep 1; done")


@pytest.fixture(scope="module")
def ecs(endpoint: Endpoint) -> Any:
    client = endpoint.client("ecs")
    client.create_cluster()
    client.register_container_instance()
    return client


@pytest.fixture(scope="module")
def cloudformation(endpoint: Endpoint, ecs: Any) -> Any:
    return endpoint.client("cloudformation")


def template(name: str, command: list[str], memory: int = 64) -> str:
    container = {"Name": "main", "Image": "busybox", "Memory": memory, "Command": command}
    container |= {"StopTimeout": 0, "PortMappings": [{"ContainerPort": 8888}]}
    breaker = {"DeploymentCircuitBreaker": {"Enable": True, "Rollback": True}}
    resources = {
        "Task": {
            "Type": "AWS::ECS::TaskDefinition",
            "Properties": {"Family": name, "ContainerDefinitions": [container]},
        },
        "Service": {
            "Type": "AWS::ECS::Service",
            "Properties": {
                "ServiceName": name,
                "TaskDefinition": {"Ref": "Task"},
                "DesiredCount": 1,
                "LaunchType": "EC2",
                "DeploymentConfiguration": breaker,
            },
        },
    }
    return json.dumps({"Resources": resources})


def status_of(cloudformation: Any, name: str) -> str:
    return str(cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])


def wait_for_end(cloudformation: Any, name: str) -> str:
    return until(
        lambda: status_of(cloudformation, name), lambda status: not status.endswith("_PROGRESS")
    )


def reasons_of(cloudformation: Any, name: str) -> str:
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    return "\n".join(
        f"{event['ResourceStatus']} {event.get('ResourceStatusReason', '')}"
        for event in events
        if event["LogicalResourceId"] == "Service"
    )


def test_a_stack_waits_for_its_service_and_returns_to_the_revision_that_worked(
    cloudformation: Any, ecs: Any
) -> None:
    cloudformation.create_stack(StackName="web", TemplateBody=template("web", FOREVER))
    assert status_of(cloudformation, "web") == "CREATE_IN_PROGRESS"
    with pytest.raises(ClientError, match="CREATE_IN_PROGRESS state and can not be updated"):
        cloudformation.update_stack(StackName="web", TemplateBody=template("web", FOREVER, 65))
    assert wait_for_end(cloudformation, "web") == "CREATE_COMPLETE"
    (service,) = ecs.describe_services(services=["web"])["services"]
    assert service["runningCount"] == 1
    (arn,) = ecs.list_tasks(serviceName="web")["taskArns"]
    (task,) = ecs.describe_tasks(tasks=[arn])["tasks"]
    binding = {"bindIP": "0.0.0.0", "containerPort": 8888, "hostPort": 8888, "protocol": "tcp"}
    assert task["containers"][0]["networkBindings"] == [binding]

    cloudformation.update_stack(StackName="web", TemplateBody=template("web", ["/no/such/program"]))
    with pytest.raises(ClientError, match="cannot be deleted while in status UPDATE_IN_PROGRESS"):
        cloudformation.delete_stack(StackName="web")
    assert wait_for_end(cloudformation, "web") == "UPDATE_ROLLBACK_COMPLETE"
    assert "ECS Deployment Circuit Breaker was triggered" in reasons_of(cloudformation, "web")
    (service,) = ecs.describe_services(services=["web"])["services"]
    assert service["taskDefinition"].endswith(":task-definition/web:1")
    cloudformation.delete_stack(StackName="web")


def test_a_stack_whose_first_service_fails_is_rolled_back(cloudformation: Any, ecs: Any) -> None:
    cloudformation.create_stack(StackName="bad", TemplateBody=template("bad", ["/no/such/program"]))
    assert wait_for_end(cloudformation, "bad") == "ROLLBACK_COMPLETE"
    assert "CREATE_FAILED Resource handler" in reasons_of(cloudformation, "bad")
    (service,) = ecs.describe_services(services=["bad"])["services"]
    assert service["status"] != "ACTIVE"


def test_a_stack_that_waits_can_be_deleted(cloudformation: Any, ecs: Any) -> None:
    too_large = template("large", FOREVER, memory=10**6)
    cloudformation.create_stack(StackName="large", TemplateBody=too_large)
    stack_id = cloudformation.describe_stacks(StackName="large")["Stacks"][0]["StackId"]
    cloudformation.delete_stack(StackName="large")
    assert wait_for_end(cloudformation, stack_id) == "DELETE_COMPLETE"
    (service,) = ecs.describe_services(services=["large"])["services"]
    assert service["status"] != "ACTIVE"
