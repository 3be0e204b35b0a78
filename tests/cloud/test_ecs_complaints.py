"""What users of other clients of ECS complain about, by the numbers of their issues.

The names are those of facts/ecs.md, 1.3. Other tests show the rest: a start that failed is no
success (test_ecs_outcomes, test_ecs_runs), no orphan and no second task after a kill
(test_ecs_faults), containers of tasks without capacity (test_ecs_capacity).
"""

from __future__ import annotations

from typing import Any

import pytest
from cloud_lab import ENVIRONMENTS, TASKS, Lab, add_cluster, run_of, set_faults, until
from emulator_endpoint import Endpoint

pytestmark = pytest.mark.slow
STEP = "name: told\nimage: busybox\nsteps:\n  - {name: a, memory: 64MiB, %s}\n"
EDGE = "  edge: {region: us-east-1, bucket: lab-runs, prefix: team, cluster: edge}\n"


@pytest.fixture(scope="module", autouse=True)
def cluster(endpoint: Endpoint) -> None:
    add_cluster(endpoint)


@pytest.fixture(autouse=True)
def environment(lab: Lab) -> None:
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + TASKS + EDGE)


def test_the_log_of_a_task_that_timed_out_is_shown(lab: Lab) -> None:
    """apache/airflow#39026: no logs on timeout."""
    lab.write("pipeline.yaml", STEP % "timeout: 1s, command: echo so far; sleep 100")
    done = lab("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks", code=1)
    assert "exceeded timeout" in done.stdout
    assert lab("logs", run_of(done)).stdout == "so far\n"


def test_a_missing_log_does_not_hide_why_a_task_failed(lab: Lab, calm: None) -> None:
    """apache/airflow#15000: ResourceNotFound of GetLogEvents instead of the reason."""
    lab.write("pipeline.yaml", STEP % "command: echo never")
    set_faults(lab.endpoint, "no-image=1x")
    done = lab("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks", code=1)
    assert "CannotPullContainerError" in done.stdout
    shown = lab("logs", run_of(done), code=None)
    assert shown.stdout == "" and "ResourceNotFound" not in shown.stderr


def test_memory_that_runs_out_is_named(lab: Lab) -> None:
    """dagster-io/dagster#17448: an end for memory is not seen."""
    python = 'python -c "import time; text = 2**20 * 300 * chr(120); time.sleep(100)"'
    lab.write("pipeline.yaml", STEP % f"command: '{python}'")
    done = lab("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks", code=1)
    assert "OutOfMemoryError: Container killed due to memory usage" in done.stdout


def launch(endpoint: Endpoint) -> str:
    """Launch an instance that joins the cluster `edge`; return its id."""
    ecs = endpoint.client("ecs")
    count = len(ecs.list_container_instances(cluster="edge")["containerInstanceArns"])
    (instance,) = endpoint.client("ec2").run_instances(
        ImageId="ami-12c6146b",
        InstanceType="m5.xlarge",
        MinCount=1,
        MaxCount=1,
        UserData="#!/bin/bash\necho ECS_CLUSTER=edge >> /etc/ecs/ecs.config\n",
    )["Instances"]
    until(
        lambda: ecs.list_container_instances(cluster="edge")["containerInstanceArns"],
        lambda arns: len(arns) > count,
    )
    return str(instance["InstanceId"])


def test_a_task_that_never_leaves_pending_is_started_again(lab: Lab, calm: None) -> None:
    """dagster-io/dagster#17212, #6708 and #11628: tasks stay in PENDING, and none replaces them.

    The host of the task is lost while the task waits on it.
    """
    endpoint = lab.endpoint
    ecs, ec2 = endpoint.client("ecs"), endpoint.client("ec2")
    ecs.create_cluster(clusterName="edge")
    hog: dict[str, Any] = {"name": "main", "image": "x", "cpu": 8 * 1024, "memory": 64}
    ecs.register_task_definition(
        family="hog", containerDefinitions=[{**hog, "command": ["sleep", "600"]}]
    )
    (task,) = ecs.run_task(taskDefinition="hog")["tasks"]
    first = launch(endpoint)
    lab.write("pipeline.yaml", STEP % "retries: 1, retry_on: [spot], command: echo ran")
    process = lab.start("run", "pipeline.yaml", "--engine", "ecs", "--env", "edge")
    (arn,) = until(lambda: ecs.list_tasks(cluster="edge")["taskArns"])
    assert ecs.describe_tasks(cluster="edge", tasks=[arn])["tasks"][0]["lastStatus"] == "PENDING"
    ec2.terminate_instances(InstanceIds=[first])
    launch(endpoint)
    ecs.stop_task(task=task["taskArn"])
    assert process.wait() == 0
    report = lab.status("last")
    assert (report["state"], report["steps"][0]["attempts"]) == ("SUCCEEDED", 2)
