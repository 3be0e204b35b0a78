"""Task definitions and tasks of ECS for the tests, in short words."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError
from emulator_endpoint import Endpoint, until


def register(ecs: Any, family: str, *containers: dict[str, Any], **members: Any) -> str:
    """Register a task definition; return its ARN."""
    definition = ecs.register_task_definition(
        family=family,
        containerDefinitions=[
            {"name": "main", "image": "busybox", "memory": 64, **container}
            for container in containers
        ],
        **members,
    )
    return str(definition["taskDefinition"]["taskDefinitionArn"])


def shell(command: str) -> list[str]:
    return ["sh", "-c", command]


def logging_to(group: str, *, create: bool = True) -> dict[str, Any]:
    options = {
        "awslogs-group": group,
        "awslogs-region": "us-east-1",
        "awslogs-stream-prefix": "run",
    }
    if create:
        options["awslogs-create-group"] = "true"
    return {"logDriver": "awslogs", "options": options}


def log_lines(endpoint: Endpoint, group: str, arn: str, container: str = "main") -> list[str]:
    """Return the log of a container; nothing before its stream exists."""
    stream = f"run/{container}/{arn.rpartition('/')[2]}"
    try:
        events = endpoint.logs.get_log_events(
            logGroupName=group, logStreamName=stream, startFromHead=True
        )
    except ClientError:
        return []
    return [event["message"] for event in events["events"]]


def run(ecs: Any, family: str, **members: Any) -> str:
    """Run one task; return its ARN."""
    answer = ecs.run_task(taskDefinition=family, **members)
    assert answer["failures"] == []
    return str(answer["tasks"][0]["taskArn"])


def describe(ecs: Any, arn: str, **members: Any) -> Any:
    cluster = arn.split("/")[-2]
    (task,) = ecs.describe_tasks(cluster=cluster, tasks=[arn], **members)["tasks"]
    return task


def wait_for(ecs: Any, arn: str, status: str) -> Any:
    """Wait for a status of a task; return the description then."""
    return until(lambda: describe(ecs, arn), lambda task: task["lastStatus"] == status)
