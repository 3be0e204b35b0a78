"""Where ECS tasks run: instances of EC2, capacity providers, and failures that are ordered."""

from __future__ import annotations

import base64
import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from ecs_tasks_of_tests import (
    describe,
    log_lines,
    logging_to,
    register,
    run,
    shell,
    wait_for,
)
from emulator_endpoint import Endpoint, until

FOREVER = shell("while :; do sleep 1; done")
IMAGE = "ami-0123456789abcdef0"
ONE_GPU = {"resourceRequirements": [{"type": "GPU", "value": "1"}]}


@pytest.fixture(scope="module")
def ecs(endpoint: Endpoint) -> Any:
    return endpoint.client("ecs")


@pytest.fixture
def faults(endpoint: Endpoint) -> Iterator[Any]:
    def use(text: str) -> None:
        body = json.dumps({"faults": text}).encode()
        urllib.request.urlopen(f"{endpoint.url}/_batchyard/faults", body).close()

    yield use
    use("")


def launch(endpoint: Endpoint, cluster: str, type_name: str, count: int = 1) -> list[str]:
    answer = endpoint.client("ec2").run_instances(
        ImageId=IMAGE,
        InstanceType=type_name,
        MinCount=count,
        MaxCount=count,
        UserData=f"#!/bin/bash\necho ECS_CLUSTER={cluster} >> /etc/ecs/ecs.config\n",
    )
    return [instance["InstanceId"] for instance in answer["Instances"]]


def add_provider(endpoint: Endpoint, cluster: str, max_size: int) -> str:
    """Make a cluster with a capacity provider: an Auto Scaling group of g4dn.xlarge."""
    groups, ecs = endpoint.client("autoscaling"), endpoint.client("ecs")
    user_data = f"echo ECS_CLUSTER={cluster} >> /etc/ecs/ecs.config"
    groups.create_launch_configuration(
        LaunchConfigurationName=cluster,
        ImageId=IMAGE,
        InstanceType="g4dn.xlarge",
        UserData=user_data,
    )
    groups.create_auto_scaling_group(
        AutoScalingGroupName=cluster,
        LaunchConfigurationName=cluster,
        MinSize=0,
        MaxSize=max_size,
        AvailabilityZones=["us-east-1a"],
    )
    (group,) = groups.describe_auto_scaling_groups(AutoScalingGroupNames=[cluster])[
        "AutoScalingGroups"
    ]
    ecs.create_capacity_provider(
        name=cluster,
        autoScalingGroupProvider={
            "autoScalingGroupArn": group["AutoScalingGroupARN"],
            "managedScaling": {"status": "ENABLED"},
        },
    )
    strategy = [{"capacityProvider": cluster, "weight": 1}]
    ecs.create_cluster(
        clusterName=cluster, capacityProviders=[cluster], defaultCapacityProviderStrategy=strategy
    )
    return cluster


def instances_of(ecs: Any, cluster: str) -> list[Any]:
    arns = ecs.list_container_instances(cluster=cluster)["containerInstanceArns"]
    if not arns:
        return []
    answer = ecs.describe_container_instances(cluster=cluster, containerInstances=arns)
    return list(answer["containerInstances"])


# -- instances ------------------------------------------------------------------------------------


def test_instances_join_the_cluster_of_their_user_data(endpoint: Endpoint, ecs: Any) -> None:
    ecs.create_cluster(clusterName="joined")
    (instance_id,) = launch(endpoint, "joined", "g4dn.12xlarge")
    (instance,) = until(lambda: instances_of(ecs, "joined"), bool)
    assert instance["ec2InstanceId"] == instance_id
    resources = {entry["name"]: entry for entry in instance["registeredResources"]}
    assert resources["CPU"]["integerValue"] == 48 * 1024
    assert len(resources["GPU"]["stringSetValue"]) == 4
    attributes = {entry["name"]: entry.get("value") for entry in instance["attributes"]}
    assert attributes["ecs.instance-type"] == "g4dn.12xlarge"


def test_tasks_end_with_their_instance(endpoint: Endpoint, ecs: Any) -> None:
    ecs.create_cluster(clusterName="ended")
    (instance_id,) = launch(endpoint, "ended", "m6i.large")
    register(ecs, "ended", {"command": FOREVER})
    until(lambda: instances_of(ecs, "ended"), bool)
    arn = run(ecs, "ended", cluster="ended")
    wait_for(ecs, arn, "RUNNING")
    endpoint.client("ec2").terminate_instances(InstanceIds=[instance_id])
    task = wait_for(ecs, arn, "STOPPED")
    assert task["stoppedReason"] == f"Host EC2 (instance {instance_id}) terminated."
    assert task["stopCode"] == "TerminationNotice"
    assert "exitCode" not in task["containers"][0]
    assert instances_of(ecs, "ended") == []


def test_a_draining_instance_gets_no_new_tasks(endpoint: Endpoint, ecs: Any) -> None:
    ecs.create_cluster(clusterName="drained")
    first, second = (
        ecs.register_container_instance(cluster="drained")["containerInstance"] for _ in range(2)
    )
    ecs.update_container_instances_state(
        cluster="drained", containerInstances=[first["containerInstanceArn"]], status="DRAINING"
    )
    register(ecs, "drained", {"command": ["true"]})
    answer = ecs.run_task(taskDefinition="drained", cluster="drained", count=3)
    assert {task["containerInstanceArn"] for task in answer["tasks"]} == {
        second["containerInstanceArn"]
    }


# -- capacity providers ---------------------------------------------------------------------------


def test_a_capacity_provider_launches_and_ends_instances(endpoint: Endpoint, ecs: Any) -> None:
    cluster = add_provider(endpoint, "grown", max_size=2)
    register(ecs, "grown", {"command": FOREVER, "stopTimeout": 0, **ONE_GPU})
    answer = ecs.run_task(taskDefinition="grown", cluster=cluster, count=2)
    assert answer["failures"] == []
    assert {task["lastStatus"] for task in answer["tasks"]} == {"PROVISIONING"}
    arns = [task["taskArn"] for task in answer["tasks"]]
    tasks = [wait_for(ecs, arn, "RUNNING") for arn in arns]
    assert len({task["containerInstanceArn"] for task in tasks}) == 2
    assert {task["capacityProviderName"] for task in tasks} == {cluster}
    again = ecs.create_cluster(clusterName=cluster)["cluster"]
    assert (again["capacityProviders"], again["runningTasksCount"]) == ([cluster], 2)
    for arn in arns:
        ecs.stop_task(cluster=cluster, task=arn)
    until(lambda: instances_of(ecs, cluster), lambda instances: instances == [])


def test_capacity_providers_are_described(endpoint: Endpoint, ecs: Any) -> None:
    cluster = add_provider(endpoint, "described", max_size=1)
    pages = ecs.describe_capacity_providers(maxResults=100)["capacityProviders"]
    providers = {provider["name"]: provider for provider in pages}
    assert {"FARGATE", "FARGATE_SPOT", cluster} <= set(providers)
    scaling = providers[cluster]["autoScalingGroupProvider"]["managedScaling"]
    assert scaling["status"] == "ENABLED"
    answer = ecs.describe_capacity_providers(capacityProviders=[cluster, "unknown"])
    assert [provider["status"] for provider in answer["capacityProviders"]] == ["ACTIVE"]
    assert [failure["reason"] for failure in answer["failures"]] == ["MISSING"]
    network = {"networkConfiguration": {"subnets": ["subnet-0a"]}}
    profile = "arn:aws:iam::123456789012:instance-profile/x"
    with pytest.raises(ClientError, match="has no Managed Instances"):
        ecs.create_capacity_provider(
            name="managed",
            managedInstancesProvider={
                "infrastructureRoleArn": "arn:aws:iam::123456789012:role/x",
                "instanceLaunchTemplate": {"ec2InstanceProfileArn": profile, **network},
            },
        )


def test_a_task_that_fits_on_no_instance_stops_without_containers(
    endpoint: Endpoint, ecs: Any
) -> None:
    cluster = add_provider(endpoint, "small", max_size=1)
    two_gpus = {"resourceRequirements": [{"type": "GPU", "value": "2"}]}
    register(ecs, "wide", {"command": ["true"], **two_gpus})
    task = wait_for(ecs, run(ecs, "wide", cluster=cluster), "STOPPED")
    assert (task["stopCode"], task["stoppedReason"]) == (
        "TaskFailedToStart",
        "TaskFailedToStart: RESOURCE:GPU",
    )
    assert task["containers"] == []


def test_a_task_waits_for_capacity_only_so_long(endpoint: Endpoint, ecs: Any, faults: Any) -> None:
    cluster = add_provider(endpoint, "full", max_size=1)
    register(ecs, "full", {"command": FOREVER, "stopTimeout": 0, **ONE_GPU})
    first = run(ecs, "full", cluster=cluster)
    wait_for(ecs, first, "RUNNING")
    faults("provision-wait=0.1")
    task = wait_for(ecs, run(ecs, "full", cluster=cluster), "STOPPED")
    assert task["stoppedReason"] == "TaskFailedToStart: RESOURCE:GPU"
    ecs.stop_task(cluster=cluster, task=first)


def test_managed_scaling_follows_the_placement_constraints(
    endpoint: Endpoint, ecs: Any, faults: Any
) -> None:
    cluster = add_provider(endpoint, "constrained", max_size=3)
    register(ecs, "constrained", {"command": FOREVER, "stopTimeout": 0})
    on_types = "attribute:ecs.instance-type =~ {}.*".format
    # Two of the tasks would fit on one instance.
    apart = [{"type": "distinctInstance"}]
    answer = ecs.run_task(
        taskDefinition="constrained", cluster=cluster, count=2, placementConstraints=apart
    )
    arns = [task["taskArn"] for task in answer["tasks"]]
    tasks = [wait_for(ecs, arn, "RUNNING") for arn in arns]
    assert len({task["containerInstanceArn"] for task in tasks}) == 2
    faults("provision-wait=0.1")
    on_p3 = [{"type": "memberOf", "expression": on_types("p3")}]
    arn = run(ecs, "constrained", cluster=cluster, placementConstraints=on_p3)
    task = wait_for(ecs, arn, "STOPPED")
    reason = "TaskFailedToStart: MemberOf placement constraint unsatisfied"
    assert (task["stoppedReason"], task["containers"]) == (reason, [])
    assert len(instances_of(ecs, cluster)) == 2
    for arn in arns:
        ecs.stop_task(cluster=cluster, task=arn)


def test_attributes_of_instances_are_constraints(endpoint: Endpoint, ecs: Any) -> None:
    ecs.create_cluster(clusterName="marked")
    first, second = (
        ecs.register_container_instance(cluster="marked")["containerInstance"] for _ in range(2)
    )
    attribute = {"name": "purpose", "value": "training"}
    target = {"targetType": "container-instance", "targetId": second["containerInstanceArn"]}
    ecs.put_attributes(cluster="marked", attributes=[attribute | target])
    listed = ecs.list_attributes(
        cluster="marked", targetType="container-instance", attributeName="purpose"
    )["attributes"]
    assert [entry["targetId"] for entry in listed] == [second["containerInstanceArn"]]
    register(ecs, "marked", {"command": ["true"]})
    expression = "attribute:purpose == training"
    constraints = [{"type": "memberOf", "expression": expression}]
    answer = ecs.run_task(
        taskDefinition="marked", cluster="marked", count=2, placementConstraints=constraints
    )
    places = {task["containerInstanceArn"] for task in answer["tasks"]}
    assert places == {second["containerInstanceArn"]}
    ecs.delete_attributes(cluster="marked", attributes=[{"name": "purpose"} | target])
    answer = ecs.run_task(
        taskDefinition="marked", cluster="marked", placementConstraints=constraints
    )
    assert {failure["reason"] for failure in answer["failures"]} == {
        "MemberOf placement constraint unsatisfied."
    }
    ecs.deregister_container_instance(
        cluster="marked", containerInstance=first["containerInstanceArn"], force=True
    )
    answer = ecs.start_task(
        taskDefinition="marked",
        cluster="marked",
        containerInstances=[first["containerInstanceArn"]],
    )
    assert [failure["reason"] for failure in answer["failures"]] == ["INACTIVE"]


@pytest.mark.slow
def test_a_cluster_has_at_most_500_tasks_in_provisioning(endpoint: Endpoint, ecs: Any) -> None:
    cluster = add_provider(endpoint, "crowded", max_size=0)
    register(ecs, "crowded", {"command": ["true"]})
    for _ in range(50):
        ecs.run_task(taskDefinition="crowded", cluster=cluster, count=10)
    with pytest.raises(ClientError, match="PROVISIONING state") as caught:
        ecs.run_task(taskDefinition="crowded", cluster=cluster)
    assert caught.value.response["Error"]["Code"] == "ClientException"


# -- Fargate --------------------------------------------------------------------------------------


def test_a_task_on_fargate_has_a_network_interface(endpoint: Endpoint, ecs: Any) -> None:
    ec2 = endpoint.client("ec2")
    (subnet, *_) = ec2.describe_subnets()["Subnets"]
    ecs.create_cluster(clusterName="fargate")
    register(
        ecs,
        "fargate",
        {"command": FOREVER, "stopTimeout": 0},
        requiresCompatibilities=["FARGATE"],
        networkMode="awsvpc",
        cpu="256",
        memory="512",
    )
    arn = run(
        ecs,
        "fargate",
        cluster="fargate",
        launchType="FARGATE",
        networkConfiguration={
            "awsvpcConfiguration": {"subnets": [subnet["SubnetId"]], "assignPublicIp": "ENABLED"}
        },
    )
    task = wait_for(ecs, arn, "RUNNING")
    (attachment,) = task["attachments"]
    assert attachment["type"] == "ElasticNetworkInterface"
    details = {entry["name"]: entry["value"] for entry in attachment["details"]}
    (interface,) = ec2.describe_network_interfaces(
        NetworkInterfaceIds=[details["networkInterfaceId"]]
    )["NetworkInterfaces"]
    assert interface["PrivateIpAddress"] == details["privateIPv4Address"]
    assert interface["Association"]["PublicIp"]
    ecs.stop_task(cluster="fargate", task=arn)
    wait_for(ecs, arn, "STOPPED")


def test_a_task_on_fargate_that_is_larger_than_this_machine_has_no_capacity(ecs: Any) -> None:
    ecs.create_cluster(clusterName="fargate")
    network = {"awsvpcConfiguration": {"subnets": ["subnet-0123456789abcdef0"]}}
    size = {"requiresCompatibilities": ["FARGATE"], "cpu": "16 vCPU", "memory": "32 GB"}
    register(ecs, "huge", {"command": ["true"]}, networkMode="awsvpc", **size)
    answer = ecs.run_task(
        taskDefinition="huge",
        cluster="fargate",
        launchType="FARGATE",
        networkConfiguration=network,
    )
    assert answer["tasks"] == []
    (failure,) = answer["failures"]
    assert failure["reason"].startswith("Capacity is unavailable at this time.")


# -- ordered failures -----------------------------------------------------------------------------


def test_failures_can_be_ordered(ecs: Any, faults: Any) -> None:
    ecs.create_cluster(clusterName="unlucky")
    ecs.register_container_instance(cluster="unlucky")
    register(ecs, "unlucky", {"command": ["true"], **ONE_GPU})
    register(ecs, "lucky", {"command": ["true"], **ONE_GPU})

    def reasons(family: str) -> list[str]:
        answer = ecs.run_task(taskDefinition=family, cluster="unlucky")
        return [failure["reason"] for failure in answer["failures"]]

    faults("no-gpu@unlucky=1x")
    assert (reasons("lucky"), reasons("unlucky"), reasons("unlucky")) == ([], ["RESOURCE:GPU"], [])
    faults("no-agent=1x")
    assert (reasons("lucky"), reasons("lucky")) == (["AGENT"], [])
    faults("no-image=1x")
    task = wait_for(ecs, run(ecs, "lucky", cluster="unlucky"), "STOPPED")
    assert (task["stopCode"], task["stoppedReason"]) == (
        "TaskFailedToStart",
        "Task failed to start",
    )
    (container,) = task["containers"]
    assert container["reason"].startswith("CannotPullContainerError: ")
    assert "exitCode" not in container
    assert describe(ecs, task["taskArn"])["desiredStatus"] == "STOPPED"


# -- reclaims and events --------------------------------------------------------------------------


def reclaim(endpoint: Endpoint, arn: str, notice_s: float) -> Any:
    body = json.dumps({"jobId": arn, "notice": notice_s}).encode()
    with urllib.request.urlopen(f"{endpoint.url}/_batchyard/reclaim", body) as answer:
        return json.load(answer)


def test_a_task_sees_the_notice_and_ends_with_its_instance(endpoint: Endpoint, ecs: Any) -> None:
    ecs.create_cluster(clusterName="reclaimed")
    launch(endpoint, "reclaimed", "g4dn.xlarge")
    command = shell(
        "here=$AWS_EC2_METADATA_SERVICE_ENDPOINT/latest; "
        "header='X-aws-ec2-metadata-token-ttl-seconds: 600'; "
        'header="X-aws-ec2-metadata-token: $(curl -s -X PUT -H "$header" $here/api/token)"; '
        'until curl -sf -H "$header" $here/meta-data/spot/instance-action; do sleep 0.1; done; '
        'curl -s -H "$header" $here/meta-data/instance-type; echo; sleep 600'
    )
    group = "/ecs/reclaimed"
    register(ecs, "reclaimed", {"command": command, "logConfiguration": logging_to(group)})
    until(lambda: instances_of(ecs, "reclaimed"), bool)
    arn = run(ecs, "reclaimed", cluster="reclaimed")
    wait_for(ecs, arn, "RUNNING")
    instance_id = reclaim(endpoint, arn, 600)["instanceId"]
    assert [entry["status"] for entry in instances_of(ecs, "reclaimed")] == ["DRAINING"]
    until(
        lambda: "".join(log_lines(endpoint, group, arn)),
        lambda text: '"terminate"' in text and "g4dn.xlarge" in text,
    )
    reclaim(endpoint, arn, 0)
    task = wait_for(ecs, arn, "STOPPED")
    assert task["stoppedReason"] == f"Host EC2 (instance {instance_id}) terminated."
    assert "exitCode" not in task["containers"][0]


def test_a_fleet_that_was_cancelled_replaces_no_instance(endpoint: Endpoint, ecs: Any) -> None:
    ec2, name = endpoint.client("ec2"), "fleet"
    ecs.create_cluster(clusterName=name)
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    user_data = base64.b64encode(b"echo ECS_CLUSTER=fleet >> /etc/ecs/ecs.config").decode()
    specification = {
        "ImageId": IMAGE,
        "InstanceType": "g4dn.xlarge",
        "SubnetId": subnet,
        "UserData": user_data,
    }
    fleet = ec2.request_spot_fleet(
        SpotFleetRequestConfig={
            "TargetCapacity": 1,
            "IamFleetRole": "arn:aws:iam::123456789012:role/fleet",
            "AllocationStrategy": "lowestPrice",
            "LaunchSpecifications": [specification],
        }
    )["SpotFleetRequestId"]
    register(ecs, name, {"command": FOREVER})

    def lose_instance() -> str:
        until(lambda: instances_of(ecs, name), bool)
        arn = run(ecs, name, cluster=name)
        wait_for(ecs, arn, "RUNNING")
        instance_id = reclaim(endpoint, arn, 0)["instanceId"]
        wait_for(ecs, arn, "STOPPED")
        return str(instance_id)

    first = lose_instance()
    ec2.cancel_spot_fleet_requests(SpotFleetRequestIds=[fleet], TerminateInstances=False)
    assert lose_instance() != first
    assert not instances_of(ecs, name)


def test_the_states_of_a_task_are_events(endpoint: Endpoint, ecs: Any) -> None:
    queue = endpoint.client("sqs").create_queue(QueueName="states")["QueueUrl"]
    events = endpoint.client("events")
    events.put_rule(
        Name="states",
        EventPattern=json.dumps({"source": ["aws.ecs"], "detail": {"group": ["family:told"]}}),
    )
    target = "arn:aws:sqs:us-east-1:123456789012:states"
    events.put_targets(Rule="states", Targets=[{"Id": "1", "Arn": target}])
    ecs.create_cluster(clusterName="told")
    ecs.register_container_instance(cluster="told")
    register(ecs, "told", {"command": shell("exit 4")})
    arn = run(ecs, "told", cluster="told")
    seen: list[Any] = []

    def receive() -> list[Any]:
        answer = endpoint.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
        seen.extend(json.loads(message["Body"]) for message in answer.get("Messages", []))
        return seen

    until(receive, lambda seen: any(e["detail"]["lastStatus"] == "STOPPED" for e in seen))
    details = [event["detail"] for event in seen]
    states = [detail["lastStatus"] for detail in details if detail["lastStatus"] != "STOPPING"]
    assert states == ["PENDING", "RUNNING", "STOPPED"]
    versions = [detail["version"] for detail in details]
    assert versions == sorted(set(versions))
    assert {detail["taskArn"] for detail in details} == {arn}
    assert details[-1]["containers"][0]["exitCode"] == 4
    assert details[-1]["stopCode"] == "EssentialContainerExited"
    assert "stopCode" not in details[0]


def test_the_life_of_a_container_instance_is_events(endpoint: Endpoint, ecs: Any) -> None:
    sqs, events = endpoint.client("sqs"), endpoint.client("events")
    queue = sqs.create_queue(QueueName="instances")["QueueUrl"]
    kind = "ECS Container Instance State Change"
    events.put_rule(Name="instances", EventPattern=json.dumps({"detail-type": [kind]}))
    target = "arn:aws:sqs:us-east-1:123456789012:instances"
    events.put_targets(Rule="instances", Targets=[{"Id": "1", "Arn": target}])
    cluster = ecs.create_cluster(clusterName="watched")["cluster"]["clusterArn"]
    added = ecs.register_container_instance(cluster="watched")["containerInstance"]
    arn = added["containerInstanceArn"]
    seen: list[Any] = []

    def receive() -> list[Any]:
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
        bodies = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
        # Other tests have instances, too.
        seen.extend(body["detail"] for body in bodies if body["resources"] == [arn])
        return seen

    until(receive, bool)
    register(ecs, "watched", {"command": shell("exit 0")})
    wait_for(ecs, run(ecs, "watched", cluster="watched"), "STOPPED")
    ecs.update_container_instances_state(
        cluster="watched", containerInstances=[arn], status="DRAINING"
    )
    until(receive, lambda seen: seen[-1]["status"] == "DRAINING")
    ecs.deregister_container_instance(cluster="watched", containerInstance=arn)
    until(receive, lambda seen: seen[-1]["status"] == "INACTIVE")
    assert (seen[0]["status"], seen[0]["agentConnected"]) == ("ACTIVE", True)
    assert not seen[-1]["agentConnected"] and seen[-1]["clusterArn"] == cluster
    memory = [
        resource["integerValue"]
        for detail in seen
        for resource in detail["remainingResources"]
        if resource["name"] == "MEMORY"
    ]
    assert max(memory) - min(memory) in (0, 64) and memory[0] == memory[-1]
    versions = [detail["version"] for detail in seen]
    assert versions == sorted(set(versions))
    assert isinstance(seen[0]["registeredAt"], str)


def test_a_gpu_is_given_to_the_container_that_asks_for_it(endpoint: Endpoint, ecs: Any) -> None:
    ecs.create_cluster(clusterName="gpus")
    ecs.register_container_instance(cluster="gpus")
    say = shell("echo gpu=$NVIDIA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES=")
    log = {"command": say, "logConfiguration": logging_to("/gpus")}
    register(
        ecs,
        "gpus",
        {"name": "with", **log, **ONE_GPU},
        {"name": "without", **log, "essential": False},
    )
    arn = run(ecs, "gpus", cluster="gpus")
    containers = {c["name"]: c for c in wait_for(ecs, arn, "STOPPED")["containers"]}
    assert len(containers["with"]["gpuIds"]) == 1 and "gpuIds" not in containers["without"]
    (with_gpu,) = log_lines(endpoint, "/gpus", arn, "with")
    assert re.fullmatch(r"gpu=(\d)=\1=", with_gpu)
    assert log_lines(endpoint, "/gpus", arn, "without") == ["gpu==="]
