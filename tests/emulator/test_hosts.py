"""Instances of compute environments, as EC2, ECS, AWS Batch and the jobs themselves see them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from emulator_endpoint import Endpoint, until

#: Prints instance id, type and life cycle, as the metadata service of the host has them.
LOOK = """
import os, time, urllib.request
base = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
def ask(path, method="GET", **headers):
    request = urllib.request.Request(base + path, method=method, headers=headers)
    return urllib.request.urlopen(request).read().decode()
token = ask("/latest/api/token", "PUT", **ttl)
names = ("instance-id", "instance-type", "instance-life-cycle", "placement/availability-zone")
for name in names:
    print(ask("/latest/meta-data/" + name, **{"X-aws-ec2-metadata-token": token}), flush=True)
time.sleep(600)
"""


def desired_vcpus(endpoint: Endpoint, name: str) -> int:
    answer = endpoint.batch.describe_compute_environments(computeEnvironments=[name])
    return int(answer["computeEnvironments"][0]["computeResources"]["desiredvCpus"])


def cluster_of(endpoint: Endpoint, name: str) -> str:
    answer = endpoint.batch.describe_compute_environments(computeEnvironments=[name])
    return str(answer["computeEnvironments"][0]["ecsClusterArn"])


def container_instances(endpoint: Endpoint, name: str) -> list[Any]:
    ecs, cluster = endpoint.client("ecs"), cluster_of(endpoint, name)
    arns = ecs.list_container_instances(cluster=cluster)["containerInstanceArns"]
    if not arns:
        return []
    answer = ecs.describe_container_instances(cluster=cluster, containerInstances=arns)
    return list(answer["containerInstances"])


def instances(endpoint: Endpoint, **filters: str) -> list[Any]:
    criteria = [
        {"Name": name.replace("_", "-"), "Values": [value]} for name, value in filters.items()
    ]
    answer = endpoint.client("ec2").describe_instances(Filters=criteria)
    return [instance for group in answer["Reservations"] for instance in group["Instances"]]


def spot_environment(endpoint: Endpoint, name: str) -> str:
    strategy = "SPOT_PRICE_CAPACITY_OPTIMIZED"
    types = ("m6i.large",)
    return endpoint.environment(name, types=types, type="SPOT", allocationStrategy=strategy)


def end(endpoint: Endpoint, *job_ids: str) -> None:
    for job_id in job_ids:
        endpoint.batch.terminate_job(jobId=job_id, reason="the test is over")
    for job_id in job_ids:
        endpoint.wait(job_id)


# -- scaling --------------------------------------------------------------------------------------


def test_a_maximum_below_the_smallest_instance_never_starts_a_job(endpoint: Endpoint) -> None:
    """9.1: COMPUTE_ENVIRONMENT_MAX_RESOURCE, although the job asks for one vCPU only."""
    endpoint.queue("narrow", endpoint.environment("narrow", vcpus=2, types=("c5.4xlarge",)))
    job_id = endpoint.run("true", queue="narrow")
    job = until(lambda: endpoint.job(job_id), lambda job: job.get("statusReason"))
    assert job["status"] == "RUNNABLE"
    assert "COMPUTE_ENVIRONMENT_MAX_RESOURCE" in job["statusReason"]
    end(endpoint, job_id)


def test_desired_vcpus_follow_the_jobs(endpoint: Endpoint) -> None:
    """8.1: in whole instances, up with the jobs and down some time after them."""
    endpoint.queue("scaling", endpoint.environment("scaling", types=("m6i.large",)))
    assert desired_vcpus(endpoint, "scaling") == 0
    array = endpoint.run("sleep", "600", queue="scaling", arrayProperties={"size": 3})
    until(lambda: desired_vcpus(endpoint, "scaling"), lambda vcpus: vcpus == 4)
    end(endpoint, array)
    until(lambda: desired_vcpus(endpoint, "scaling"), lambda vcpus: vcpus == 0)


def test_the_minimum_is_always_there(endpoint: Endpoint) -> None:
    endpoint.environment("ready", types=("m6i.large",), minvCpus=4)
    assert desired_vcpus(endpoint, "ready") == 4
    assert len(container_instances(endpoint, "ready")) == 2
    ids = [registered["ec2InstanceId"] for registered in container_instances(endpoint, "ready")]
    assert [instances(endpoint, instance_id=id)[0]["State"]["Name"] for id in ids] == [
        "running"
    ] * 2
    endpoint.batch.update_compute_environment(computeEnvironment="ready", state="DISABLED")
    endpoint.batch.delete_compute_environment(computeEnvironment="ready")
    states = [instances(endpoint, instance_id=id)[0]["State"]["Name"] for id in ids]
    assert states == ["terminated"] * 2, "they end with their environment"


def test_vcpus_can_be_requested_and_not_given_back(endpoint: Endpoint) -> None:
    for name, policy in (("lowered", {}), ("raised", {"minScaleDownDelayMinutes": 20})):
        endpoint.environment(name, types=("m6i.large",), scalingPolicy=policy)
        endpoint.batch.update_compute_environment(
            computeEnvironment=name, computeResources={"desiredvCpus": 4}
        )
    with pytest.raises(endpoint.batch.exceptions.ClientException, match="scaling down"):
        endpoint.batch.update_compute_environment(
            computeEnvironment="raised", computeResources={"desiredvCpus": 2}
        )
    until(lambda: desired_vcpus(endpoint, "lowered"), lambda vcpus: vcpus == 0)


def test_jobs_wait_for_an_instance_that_boots(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "2", "--launch-delay", "1")
    endpoint.queue("slow", endpoint.environment("slow", types=("m6i.large",)))
    job = endpoint.wait(endpoint.run("true", queue="slow"))
    assert job["status"] == "SUCCEEDED"
    assert job["startedAt"] - job["createdAt"] >= 900


def test_an_instance_that_boots_has_not_joined_its_cluster(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "2", "--launch-delay", "3600")
    endpoint.queue("slow", endpoint.environment("slow", types=("m6i.large",)))
    job_id = endpoint.run("true", queue="slow")
    until(lambda: desired_vcpus(endpoint, "slow"), lambda vcpus: vcpus == 2)
    assert endpoint.job(job_id)["status"] == "RUNNABLE"
    assert container_instances(endpoint, "slow") == []


# -- what EC2, ECS and the metadata service show ---------------------------------------------------


@pytest.mark.parametrize(("kind", "life_cycle"), [("EC2", "on-demand"), ("SPOT", "spot")])
def test_a_job_and_its_instance(endpoint: Endpoint, kind: str, life_cycle: str) -> None:
    name = f"shown-{life_cycle}"
    strategy = "SPOT_PRICE_CAPACITY_OPTIMIZED" if kind == "SPOT" else "BEST_FIT_PROGRESSIVE"
    endpoint.environment(name, types=("c6i.large",), type=kind, allocationStrategy=strategy)
    endpoint.queue(name, name)
    job_id = endpoint.run("python3", "-c", LOOK, queue=name)
    endpoint.wait(job_id, "RUNNING")
    lines = until(lambda: endpoint.output(job_id), lambda lines: len(lines) == 4)
    container = endpoint.job(job_id)["container"]
    (registered,) = container_instances(endpoint, name)
    assert lines[:3] == [registered["ec2InstanceId"], "c6i.large", life_cycle]
    assert registered["containerInstanceArn"] == container["containerInstanceArn"]
    assert registered["runningTasksCount"] == 1
    cpu = {r["name"]: r.get("integerValue") for r in registered["registeredResources"]}["CPU"]
    left = {r["name"]: r.get("integerValue") for r in registered["remainingResources"]}["CPU"]
    assert (cpu, left) == (2048, 1024)
    (instance,) = instances(endpoint, instance_id=registered["ec2InstanceId"])
    assert instance["InstanceType"] == "c6i.large"
    assert instance["State"]["Name"] == "running"
    assert instance.get("InstanceLifecycle") == ("spot" if kind == "SPOT" else None)
    assert instance["Placement"]["AvailabilityZone"] == lines[3]
    end(endpoint, job_id)
    ended = until(
        lambda: instances(endpoint, instance_id=registered["ec2InstanceId"])[0]["State"]["Name"],
        lambda state: state == "terminated",
    )
    assert ended and container_instances(endpoint, name) == []


@pytest.mark.slow
def test_clients_that_look_at_once_see_each_instance_once(endpoint: Endpoint) -> None:
    endpoint.queue("busy", endpoint.environment("busy", types=("m3.medium",)))
    array = endpoint.run("sleep", "0.1", queue="busy", arrayProperties={"size": 40})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: instances(endpoint), range(20)))
    shown = Counter(instance["InstanceId"] for instance in instances(endpoint))
    assert {instance_id for instance_id, count in shown.items() if count > 1} == set()
    endpoint.wait(array)


def test_a_task_behind_its_arn(endpoint: Endpoint) -> None:
    endpoint.queue("tasks", endpoint.environment("tasks", types=("m6i.large",)))
    job_id = endpoint.run("sh", "-c", "exit 3", queue="tasks")
    container = endpoint.wait(job_id)["container"]
    cluster = cluster_of(endpoint, "tasks")
    answer = endpoint.aws(
        "ecs", "describe-tasks", "--cluster", cluster, "--tasks", container["taskArn"], "x"
    )
    (task,) = answer["tasks"]
    assert (task["lastStatus"], task["stopCode"]) == ("STOPPED", "EssentialContainerExited")
    assert task["containers"][0]["exitCode"] == 3
    assert task["containerInstanceArn"] == container["containerInstanceArn"]
    assert [failure["reason"] for failure in answer["failures"]] == ["MISSING"]
    ecs = endpoint.client("ecs")
    assert ecs.list_tasks(cluster=cluster)["taskArns"] == []
    stopped = ecs.list_tasks(cluster=cluster, desiredStatus="STOPPED")["taskArns"]
    assert stopped == [container["taskArn"]]
    for name in (container["containerInstanceArn"], "0" * 32):
        for host in (name, name.rpartition("/")[2]):
            answer = ecs.list_tasks(
                cluster=cluster, desiredStatus="STOPPED", containerInstance=host
            )
            assert answer["taskArns"] == (stopped if name.startswith("arn:") else [])
    running = endpoint.run("sleep", "600", queue="tasks")
    endpoint.wait(running, "RUNNING")
    (arn,) = ecs.list_tasks(cluster=cluster)["taskArns"]
    (task,) = ecs.describe_tasks(cluster=cluster, tasks=[arn])["tasks"]
    assert (task["lastStatus"], task["launchType"]) == ("RUNNING", "EC2")
    end(endpoint, running)


def test_clusters_of_compute_environments(endpoint: Endpoint) -> None:
    endpoint.environment("clustered", types=("m6i.large",), minvCpus=2)
    ecs, cluster = endpoint.client("ecs"), cluster_of(endpoint, "clustered")
    ecs.create_cluster(clusterName="mine")
    assert {cluster, *ecs.list_clusters()["clusterArns"]} == {*ecs.list_clusters()["clusterArns"]}
    answer = ecs.describe_clusters(clusters=[cluster, "mine", "nobody's"])
    counts = {
        description["clusterName"]: description["registeredContainerInstancesCount"]
        for description in answer["clusters"]
    }
    assert counts == {cluster.rpartition("/")[2]: 1, "mine": 0}
    assert [failure["arn"].rpartition("/")[2] for failure in answer["failures"]] == ["nobody's"]


def make_serverless(endpoint: Endpoint, name: str, *command: str) -> tuple[str, str]:
    """Make a queue on Fargate, and a job definition for it."""
    endpoint.batch.create_compute_environment(
        computeEnvironmentName=name,
        type="MANAGED",
        computeResources={
            "type": "FARGATE_SPOT",
            "maxvCpus": 4,
            "subnets": ["subnet-0a"],
            "securityGroupIds": ["sg-0a"],
        },
    )
    definition = endpoint.batch.register_job_definition(
        jobDefinitionName=name,
        type="container",
        platformCapabilities=["FARGATE"],
        containerProperties={
            "image": "busybox",
            "command": list(command),
            "executionRoleArn": "arn:aws:iam::123456789012:role/execution",
            "resourceRequirements": [
                {"type": "VCPU", "value": "1"},
                {"type": "MEMORY", "value": "2048"},
            ],
        },
    )["jobDefinitionArn"]
    return endpoint.queue(name, name), definition


def test_a_fargate_job_has_no_instance(endpoint: Endpoint) -> None:
    _, definition = make_serverless(endpoint, "serverless", "true")
    job_id = endpoint.submit(definition, "serverless")
    container = endpoint.wait(job_id)["container"]
    assert "containerInstanceArn" not in container
    ecs = endpoint.client("ecs")
    cluster = cluster_of(endpoint, "serverless")
    (task,) = ecs.describe_tasks(cluster=cluster, tasks=[container["taskArn"]])["tasks"]
    assert task["launchType"] == "FARGATE"


# -- losses ---------------------------------------------------------------------------------------


def test_fargate_spot_takes_a_task_in_its_own_words(
    endpoint: Endpoint, reclaim: Callable[..., Any]
) -> None:
    queue, definition = make_serverless(endpoint, "reclaimed", "sleep", "600")
    job_id = endpoint.submit(definition, queue)
    endpoint.wait(job_id, "RUNNING")
    answer = reclaim(endpoint, job_id, "--notice", "0")
    assert answer["instanceId"] == ""
    job = endpoint.wait(job_id)
    assert (job["status"], job["statusReason"]) == ("FAILED", "Your Spot Task was interrupted.")


def test_a_reclaim_takes_all_jobs_of_the_instance_and_no_others(
    endpoint: Endpoint, reclaim: Callable[..., Any]
) -> None:
    endpoint.queue("shared", spot_environment(endpoint, "shared"))
    array = endpoint.run("sleep", "600", queue="shared", arrayProperties={"size": 3})
    children = [f"{array}:{index}" for index in range(3)]
    for child in children:
        endpoint.wait(child, "RUNNING")
    places = [endpoint.job(child)["container"]["containerInstanceArn"] for child in children]
    assert places[0] == places[1] != places[2]
    answer = reclaim(endpoint, children[0], "--notice", "0")
    reason = f"Host EC2 (instance {answer['instanceId']}) terminated."
    for child in children[:2]:
        job = endpoint.wait(child)
        assert (job["status"], job["statusReason"]) == ("FAILED", reason)
    assert endpoint.job(children[2])["status"] == "RUNNING"
    end(endpoint, array)


def test_a_user_who_terminates_an_instance_ends_its_jobs(endpoint: Endpoint) -> None:
    endpoint.queue("cut", endpoint.environment("cut", types=("m6i.large",)))
    job_id = endpoint.run("sleep", "600", queue="cut")
    endpoint.wait(job_id, "RUNNING")
    (registered,) = container_instances(endpoint, "cut")
    endpoint.client("ec2").terminate_instances(InstanceIds=[registered["ec2InstanceId"]])
    job = endpoint.wait(job_id)
    assert job["statusReason"] == f"Host EC2 (instance {registered['ec2InstanceId']}) terminated."


def test_reclaims_at_random_spare_instances_on_demand(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "2", "--reclaims", "600", "--reclaim-notice", "0")
    endpoint.queue("spot", spot_environment(endpoint, "spot"))
    endpoint.queue("fixed", endpoint.environment("fixed", types=("m6i.large",)))
    fixed = endpoint.run("sleep", "600", queue="fixed")
    endpoint.wait(fixed, "RUNNING")
    lost = endpoint.wait(endpoint.run("sleep", "600", queue="spot"))
    assert lost["statusReason"].startswith("Host EC2 (instance i-")
    assert endpoint.job(fixed)["status"] == "RUNNING"


@pytest.fixture
def reclaim() -> Callable[..., Any]:
    def call(endpoint: Endpoint, job_id: str, *arguments: str) -> Any:
        from emulator_endpoint import BATCHYARD

        import prestarted

        done = prestarted.run(
            [BATCHYARD, "emulate", "reclaim", job_id, *arguments],
            env=endpoint.environ,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def test_an_infrastructure_update_ends_jobs_if_its_policy_says_so(endpoint: Endpoint) -> None:
    strategy = {"allocationStrategy": "BEST_FIT_PROGRESSIVE"}
    endpoint.queue("rolled", endpoint.environment("rolled", types=("m6i.large",), **strategy))
    again = endpoint.run("sleep", "600", queue="rolled", retryStrategy={"attempts": 2})
    once = endpoint.run("sleep", "600", queue="rolled")
    for job_id in (again, once):
        endpoint.wait(job_id, "RUNNING")
    old = endpoint.job(once)["container"]["containerInstanceArn"]

    def update(is_terminating: bool) -> None:
        endpoint.batch.update_compute_environment(
            computeEnvironment="rolled",
            computeResources={"updateToLatestImageVersion": True},
            updatePolicy={"terminateJobsOnUpdate": is_terminating},
        )

    update(is_terminating=False)
    beside = endpoint.run("sleep", "600", queue="rolled")
    new = endpoint.wait(beside, "RUNNING")["container"]["containerInstanceArn"]
    assert new != old, "the old instance takes no more jobs"
    assert [endpoint.job(job_id)["status"] for job_id in (again, once)] == ["RUNNING"] * 2

    update(is_terminating=True)
    failed = endpoint.wait(once)
    assert failed["status"] == "FAILED" and failed["statusReason"].startswith("Host EC2 (instance")
    job = until(lambda: endpoint.job(again), lambda job: len(job["attempts"]) == 1)
    assert job["status"] != "FAILED"
    endpoint.wait(again, "RUNNING")
    endpoint.batch.terminate_job(jobId=again, reason="the end of the test")
    endpoint.wait(again)
    endpoint.wait(beside)
