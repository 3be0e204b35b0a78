"""Services of ECS: the desired count is kept, new revisions are deployed, failures are noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from ecs_tasks_of_tests import describe, register, shell, wait_for
from emulator_endpoint import Endpoint, until

FOREVER = shell("while :; do sleep 1; done")
FAILS = shell("exit 1")


@pytest.fixture(scope="module")
def ecs(endpoint: Endpoint) -> Any:
    client = endpoint.client("ecs")
    client.create_cluster()
    client.register_container_instance()
    return client


def service_of(ecs: Any, name: str) -> Any:
    (service,) = ecs.describe_services(services=[name])["services"]
    return service


def is_stable(service: Any) -> bool:
    (deployment, *others) = service["deployments"]
    is_full = service["runningCount"] == service["desiredCount"]
    return not others and is_full and deployment["rolloutState"] == "COMPLETED"


def wait_stable(ecs: Any, name: str) -> Any:
    return until(lambda: service_of(ecs, name), is_stable)


def tasks_of(ecs: Any, name: str) -> list[str]:
    return list(ecs.list_tasks(serviceName=name)["taskArns"])


def messages_of(service: Any) -> str:
    return "\n".join(event["message"] for event in service["events"])


def delete(ecs: Any, name: str) -> None:
    ecs.delete_service(service=name, force=True)
    until(lambda: service_of(ecs, name), lambda service: service["status"] == "INACTIVE")


def test_a_service_keeps_its_desired_count(ecs: Any) -> None:
    register(ecs, "kept", {"command": FOREVER, "stopTimeout": 0})
    created = ecs.create_service(serviceName="kept", taskDefinition="kept", desiredCount=2)
    assert created["service"]["deployments"][0]["rolloutState"] == "IN_PROGRESS"
    service = wait_stable(ecs, "kept")
    assert "has reached a steady state." in messages_of(service)
    assert "has started 2 tasks" in messages_of(service)
    arns = tasks_of(ecs, "kept")
    assert len(arns) == 2
    task = describe(ecs, arns[0])
    assert (task["group"], task["startedBy"]) == ("service:kept", service["deployments"][0]["id"])

    ecs.stop_task(task=arns[0])
    until(lambda: tasks_of(ecs, "kept"), lambda now: len(now) == 2 and arns[0] not in now)
    ecs.update_service(service="kept", desiredCount=1)
    wait_stable(ecs, "kept")
    until(lambda: tasks_of(ecs, "kept"), lambda now: len(now) == 1)
    with pytest.raises(ClientError, match="cannot be stopped while it is scaled above 0"):
        ecs.delete_service(service="kept")
    with pytest.raises(ClientError, match="while Services are active"):
        ecs.delete_cluster(cluster="default")
    (last,) = tasks_of(ecs, "kept")
    delete(ecs, "kept")
    stopped = wait_for(ecs, last, "STOPPED")
    assert stopped["stopCode"] == "ServiceSchedulerInitiated"
    assert stopped["stoppedReason"].startswith("Scaling activity initiated by (deployment ecs-svc/")
    assert ecs.list_services()["serviceArns"] == []


def test_a_new_revision_replaces_the_old_one(ecs: Any) -> None:
    first = register(ecs, "rolled", {"command": FOREVER, "stopTimeout": 0})
    ecs.create_service(serviceName="rolled", taskDefinition="rolled", desiredCount=1)
    wait_stable(ecs, "rolled")
    (old,) = tasks_of(ecs, "rolled")
    second = register(ecs, "rolled", {"command": FOREVER, "stopTimeout": 0})
    updated = ecs.update_service(service="rolled", taskDefinition="rolled")["service"]
    assert [entry["taskDefinition"] for entry in updated["deployments"]] == [second, first]
    assert [entry["status"] for entry in updated["deployments"]] == ["PRIMARY", "ACTIVE"]
    ecs.get_waiter("services_stable").wait(
        services=["rolled"], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    (new,) = tasks_of(ecs, "rolled")
    assert describe(ecs, new)["taskDefinitionArn"] == second
    # The old task ran until the new one did.
    assert describe(ecs, new)["startedAt"] <= wait_for(ecs, old, "STOPPED")["stoppedAt"]

    ecs.update_service(service="rolled", forceNewDeployment=True)
    until(lambda: tasks_of(ecs, "rolled"), lambda now: len(now) == 1 and now != [new])
    delete(ecs, "rolled")


def test_the_circuit_breaker_returns_to_the_last_revision_that_worked(ecs: Any) -> None:
    good = register(ecs, "broken", {"command": FOREVER, "stopTimeout": 0})
    breaker = {"deploymentCircuitBreaker": {"enable": True, "rollback": True}}
    ecs.create_service(
        serviceName="broken",
        taskDefinition="broken",
        desiredCount=1,
        deploymentConfiguration=breaker,
    )
    wait_stable(ecs, "broken")
    # A task that ends at once may be seen RUNNING, with which the deployment would be complete.
    register(ecs, "broken", {"command": ["/no/such/program"]})
    ecs.update_service(service="broken", taskDefinition="broken")
    service = until(
        lambda: service_of(ecs, "broken"),
        lambda service: "rolling back to deployment" in messages_of(service),
    )
    assert "deployment failed: tasks failed to start." in messages_of(service)
    service = wait_stable(ecs, "broken")
    assert service["taskDefinition"] == good
    delete(ecs, "broken")


def test_a_healthy_task_sets_the_count_of_the_circuit_breaker_back(
    ecs: Any, tmp_path: Path
) -> None:
    script = (
        f"n=0; until mkdir {tmp_path}/$n 2>/dev/null; do n=$((n+1)); done; "
        "[ $n -lt 2 ] && exit 1; while :; do sleep 1; done"
    )
    gpu = {"resourceRequirements": [{"type": "GPU", "value": "1"}]}
    register(ecs, "shaky", {"command": shell(script), "stopTimeout": 0, **gpu})
    ecs.create_service(
        serviceName="shaky",
        taskDefinition="shaky",
        # There is room for two, so that the deployment goes on.
        desiredCount=3,
        deploymentConfiguration={"deploymentCircuitBreaker": {"enable": True, "rollback": False}},
    )
    service = until(
        lambda: service_of(ecs, "shaky"),
        lambda service: (
            (tmp_path / "3").exists()
            and service["runningCount"] == 2
            and not service["deployments"][0]["failedTasks"]
        ),
    )
    assert service["deployments"][0]["rolloutState"] == "IN_PROGRESS"
    assert len(ecs.list_tasks(serviceName="shaky", desiredStatus="STOPPED")["taskArns"]) == 2
    delete(ecs, "shaky")


def test_a_service_whose_tasks_fail_starts_them_ever_more_rarely(ecs: Any) -> None:
    register(ecs, "crashing", {"command": FAILS})
    ecs.create_service(serviceName="crashing", taskDefinition="crashing", desiredCount=1)
    service = until(
        lambda: service_of(ecs, "crashing"),
        lambda service: "is unable to consistently start tasks" in messages_of(service),
    )
    (deployment,) = service["deployments"]
    assert (deployment["rolloutState"], service["runningCount"]) == ("IN_PROGRESS", 0)
    assert deployment["failedTasks"] >= 3
    delete(ecs, "crashing")


def test_deployments_and_steady_states_are_events(endpoint: Endpoint, ecs: Any) -> None:
    sqs, rules = endpoint.client("sqs"), endpoint.client("events")
    queue = sqs.create_queue(QueueName="services")["QueueUrl"]
    rules.put_rule(
        Name="services",
        EventPattern=json.dumps(
            {"detail-type": ["ECS Deployment State Change", "ECS Service Action"]}
        ),
    )
    target = "arn:aws:sqs:us-east-1:123456789012:services"
    rules.put_targets(Rule="services", Targets=[{"Id": "1", "Arn": target}])
    register(ecs, "eventful", {"command": FOREVER, "stopTimeout": 0})
    service = ecs.create_service(serviceName="eventful", taskDefinition="eventful", desiredCount=1)[
        "service"
    ]
    seen: list[Any] = []

    def receive() -> list[str]:
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
        events = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
        seen.extend(event for event in events if event["resources"] == [service["serviceArn"]])
        return [event["detail"]["eventName"] for event in seen]

    names = until(receive, lambda names: "SERVICE_STEADY_STATE" in names)
    assert sorted(names) == [
        "SERVICE_DEPLOYMENT_COMPLETED",
        "SERVICE_DEPLOYMENT_IN_PROGRESS",
        "SERVICE_STEADY_STATE",
    ]
    details = {event["detail"]["eventName"]: event["detail"] for event in seen}
    deployment = service["deployments"][0]["id"]
    assert details["SERVICE_DEPLOYMENT_COMPLETED"]["deploymentId"] == deployment
    assert details["SERVICE_DEPLOYMENT_COMPLETED"]["updatedAt"].endswith("Z")
    assert details["SERVICE_STEADY_STATE"]["clusterArn"] == service["clusterArn"]
    delete(ecs, "eventful")


def test_a_service_without_room_tells_what_is_missing(ecs: Any) -> None:
    gpus = {"resourceRequirements": [{"type": "GPU", "value": "9"}]}
    register(ecs, "large", {"command": FOREVER, **gpus})
    ecs.create_service(serviceName="large", taskDefinition="large", desiredCount=1)
    service = until(lambda: service_of(ecs, "large"), lambda service: service["events"])
    assert "has insufficient GPU resource available." in messages_of(service)
    delete(ecs, "large")


def test_tasks_move_away_from_a_draining_instance(ecs: Any) -> None:
    ecs.create_cluster(clusterName="moving")
    first = ecs.register_container_instance(cluster="moving")["containerInstance"]
    register(ecs, "moving", {"command": FOREVER, "stopTimeout": 0})
    ecs.create_service(
        cluster="moving", serviceName="moving", taskDefinition="moving", desiredCount=1
    )

    def places() -> list[str]:
        arns = ecs.list_tasks(cluster="moving")["taskArns"]
        tasks = [describe(ecs, arn) for arn in arns]
        return [t["containerInstanceArn"] for t in tasks if t["lastStatus"] == "RUNNING"]

    until(places, lambda arns: arns == [first["containerInstanceArn"]])
    second = ecs.register_container_instance(cluster="moving")["containerInstance"]
    ecs.update_container_instances_state(
        cluster="moving", containerInstances=[first["containerInstanceArn"]], status="DRAINING"
    )
    until(places, lambda arns: arns == [second["containerInstanceArn"]])
    ecs.delete_service(cluster="moving", service="moving", force=True)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"taskDefinition": "unknown"}, "TaskDefinition not found."),
        ({"serviceName": "a b"}, "Service name"),
        ({"desiredCount": -1}, "desired count"),
        ({"deploymentController": {"type": "CODE_DEPLOY"}}, "deployment controller"),
        (
            {"deploymentConfiguration": {"minimumHealthyPercent": 100, "maximumPercent": 100}},
            "will block",
        ),
    ],
)
def test_bad_services_are_refused(ecs: Any, members: dict[str, Any], words: str) -> None:
    register(ecs, "plain", {"command": ["true"]})
    request = {"serviceName": "refused", "taskDefinition": "plain", "desiredCount": 1, **members}
    with pytest.raises(ClientError, match=words):
        ecs.create_service(**request)
    assert ecs.describe_services(services=["refused"])["failures"][0]["reason"] == "MISSING"


def test_tags_of_services_and_tasks(ecs: Any) -> None:
    register(ecs, "tagged", {"command": FOREVER, "stopTimeout": 0})
    service = ecs.create_service(
        serviceName="tagged",
        taskDefinition="tagged",
        desiredCount=1,
        propagateTags="SERVICE",
        enableECSManagedTags=True,
        tags=[{"key": "team", "value": "a"}],
    )["service"]
    (arn,) = until(lambda: tasks_of(ecs, "tagged"), bool)
    task_tags = {tag["key"]: tag["value"] for tag in describe(ecs, arn, include=["TAGS"])["tags"]}
    assert task_tags == {
        "team": "a",
        "aws:ecs:serviceName": "tagged",
        "aws:ecs:clusterName": "default",
    }
    arn = service["serviceArn"]
    ecs.tag_resource(resourceArn=arn, tags=[{"key": "team", "value": "b"}])
    assert ecs.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "team", "value": "b"}]
    ecs.untag_resource(resourceArn=arn, tagKeys=["team"])
    assert ecs.list_tags_for_resource(resourceArn=arn)["tags"] == []
    delete(ecs, "tagged")


def test_a_service_without_instances_starts_nothing(ecs: Any) -> None:
    ecs.create_cluster(clusterName="empty")
    register(ecs, "plain", {"command": ["true"]})
    ecs.create_service(
        cluster="empty", serviceName="lonely", taskDefinition="plain", desiredCount=2
    )

    def lonely() -> Any:
        return ecs.describe_services(cluster="empty", services=["lonely"])["services"][0]

    service = until(lonely, lambda service: service["events"])
    assert "No Container Instances were found in your cluster." in messages_of(service)
    assert "has started" not in messages_of(service)
    ecs.delete_service(cluster="empty", service="lonely", force=True)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (
            {"deploymentConfiguration": {"minimumHealthyPercent": 100, "maximumPercent": 100}},
            "will block",
        ),
        (
            {"capacityProviderStrategy": [{"capacityProvider": "unknown", "weight": 1}]},
            "capacity provider was not found",
        ),
        (
            {"networkConfiguration": {"awsvpcConfiguration": {"subnets": ["subnet-0a"]}}},
            "Network Configuration is not valid",
        ),
    ],
)
def test_a_refused_update_changes_nothing(ecs: Any, members: dict[str, Any], words: str) -> None:
    register(ecs, "plain", {"command": ["true"]})
    ecs.create_service(serviceName="same", taskDefinition="plain", desiredCount=0)
    until(lambda: service_of(ecs, "same"), is_stable)
    before = service_of(ecs, "same")
    with pytest.raises(ClientError, match=words):
        ecs.update_service(service="same", desiredCount=1, **members)
    assert service_of(ecs, "same") == before
    delete(ecs, "same")


def test_a_daemon_shows_a_desired_task_for_each_instance(ecs: Any) -> None:
    register(ecs, "daemon", {"command": FOREVER, "stopTimeout": 0})
    ecs.create_service(serviceName="daemon", taskDefinition="daemon", schedulingStrategy="DAEMON")
    service = wait_stable(ecs, "daemon")
    assert (service["desiredCount"], service["runningCount"]) == (1, 1)
    assert service["deployments"][0]["desiredCount"] == 1
    delete(ecs, "daemon")
    assert service_of(ecs, "daemon")["desiredCount"] == 0
