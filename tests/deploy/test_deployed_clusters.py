"""The clusters of the stacks `ecs` and `spotfleet` run tasks and services on the endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import Endpoint, until
from site_of_stacks import Site

COMMAND = "TaskCommand=sh,-c,exec sleep 600"


@pytest.fixture(scope="module")
def gpu_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    flags = ("--cpus", "8", "--memory", "32GiB", "--gpus", "2")
    endpoint = Endpoint(tmp_path_factory.mktemp("endpoint"), *flags)
    try:
        yield endpoint
    finally:
        endpoint.stop()


@pytest.fixture
def site(gpu_endpoint: Endpoint, tmp_path: Path) -> Site:
    return Site(gpu_endpoint, tmp_path)


def running(ecs: Any, cluster: str) -> list[Any]:
    arns = ecs.list_tasks(cluster=cluster)["taskArns"]
    tasks = ecs.describe_tasks(cluster=cluster, tasks=arns)["tasks"] if arns else []
    return [task for task in tasks if task["lastStatus"] == "RUNNING"]


@pytest.mark.slow
def test_a_task_on_the_ecs_stack(site: Site) -> None:
    site.about("deploy", "--yes")
    site.about("deploy", "ecs", "spotfleet", "--yes", "--set", "TaskCommand=sh,-c,exit 3")
    ecs, cluster = site.endpoint.client("ecs"), f"{site.env}-ecs"
    # As docs/deploy.md shows it.
    answer = site.endpoint.aws(
        *("ecs", "run-task", "--cluster", cluster, "--task-definition", f"{site.env}-gpu-task"),
        "--capacity-provider-strategy",
        f"capacityProvider={site.env}-gpu-nodes,weight=1",
    )
    arn = answer["tasks"][0]["taskArn"]
    task = until(
        lambda: ecs.describe_tasks(cluster=cluster, tasks=[arn])["tasks"][0],
        lambda task: task["lastStatus"] == "STOPPED",
    )
    (container,) = task["containers"]
    assert (container["exitCode"], len(container["gpuIds"])) == (3, 1), task
    # The environment is found by the names of its stacks.
    done = site(
        *("run", "--engine", "ecs", "--env", site.env, "--image", "busybox", "--gpus", "1"),
        *("--set-env", "EPOCHS=3", "--", "sh", "-c", "echo $EPOCHS $BATCHYARD_DEVICE; exit 5"),
        code=5,
    )
    assert done.stdout == "3 gpu\n"

    # The same definition on the instances of a spot fleet.
    fleet = f"{site.env}-spotfleet"
    site.about("deploy", "spotfleet", "--yes", "--set", "Nodes=1")
    until(
        lambda: ecs.list_container_instances(cluster=fleet)["containerInstanceArns"],
        lambda arns: len(arns) == 1,
    )
    answer = ecs.run_task(cluster=fleet, taskDefinition=f"{site.env}-gpu-task", launchType="EC2")
    assert answer["failures"] == []


@pytest.mark.slow
def test_a_service_of_the_ecs_stack_runs_until_it_is_destroyed(site: Site) -> None:
    site.about("deploy", "--yes")
    site.about("deploy", "ecs", "--yes", "--set", "ServiceTasks=1", "--set", COMMAND)
    ecs, cluster = site.endpoint.client("ecs"), f"{site.env}-ecs"
    (task,) = until(lambda: running(ecs, cluster), bool)
    assert task["group"] == f"service:{site.env}-gpu-service"
    # Somebody's own service and task, on nodes that are protected from scale-in.
    family = f"{site.env}-gpu-task"
    provider = [{"capacityProvider": f"{site.env}-gpu-nodes", "weight": 1}]
    ecs.create_service(
        cluster=cluster,
        serviceName="own",
        taskDefinition=family,
        desiredCount=0,
        capacityProviderStrategy=provider,
    )
    ecs.run_task(cluster=cluster, taskDefinition=family, capacityProviderStrategy=provider)
    until(lambda: running(ecs, cluster), lambda tasks: len(tasks) == 2)
    declined = site.about("destroy", "ecs", answers="n\n", code=130).stderr
    assert f"cluster {cluster}" in declined and "1 task that runs" in declined
    assert "service own" in declined and f"service {site.env}-gpu-service" in declined
    done = site.about("destroy", "ecs", "--yes").stderr
    assert f"deleted the service own on {cluster}" in done
    assert "2 nodes no longer protected, and ending" in done
    assert running(ecs, cluster) == []
    assert ecs.list_container_instances(cluster=cluster)["containerInstanceArns"] == []
