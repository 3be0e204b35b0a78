"""Airflow from PyPI with its EcsRunTaskOperator: each task of ECS is a process.

The operator is executed as a worker of Airflow does, without Airflow's scheduler and database.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from ecs_tasks_of_tests import logging_to, register, shell
from peer_clients import HERE, Peer, said

GROUP = "/ecs/airflow"


def prepare(begin: Callable[..., Peer], **container: Any) -> tuple[Peer, Any]:
    """Start an endpoint that has a cluster with one instance; return a client of ECS too."""
    peer = begin("airflow", "process")
    ecs = peer.endpoint.client("ecs")
    ecs.create_cluster(clusterName="peers")
    ecs.register_container_instance(cluster="peers")
    log = {"logConfiguration": logging_to(GROUP)}
    register(ecs, "airflow", {"command": ["true"], **log, **container})
    return peer, ecs


def run_operator(peer: Peer, **override: Any) -> subprocess.CompletedProcess[str]:
    shutil.copy(HERE / "workflows" / "airflow_ecs_task.py", peer.folder)
    overrides = {"containerOverrides": [{"name": "main", **override}]}
    home = str(peer.folder / "airflow")
    words = ("python", "airflow_ecs_task.py", "airflow", json.dumps(overrides))
    return peer.run(*words, AIRFLOW_HOME=home)


def stopped_tasks(ecs: Any) -> list[Any]:
    arns = ecs.list_tasks(cluster="peers", desiredStatus="STOPPED")["taskArns"]
    return list(ecs.describe_tasks(cluster="peers", tasks=arns)["tasks"]) if arns else []


def test_a_task_with_overrides_and_its_log(begin: Callable[..., Peer]) -> None:
    peer, ecs = prepare(begin)
    environment = [{"name": "EPOCHS", "value": "3"}]
    command = shell('echo first; echo "epochs $EPOCHS"')
    done = run_operator(peer, command=command, environment=environment)
    assert done.returncode == 0, said(done)
    (task,) = stopped_tasks(ecs)
    assert f"ecs_task_arn {task['taskArn']}" in done.stdout
    # The operator returns the last line of the log, which is whole when the task is STOPPED.
    assert "finished epochs 3" in done.stdout


def test_a_task_that_fails(begin: Callable[..., Peer]) -> None:
    peer, ecs = prepare(begin)
    done = run_operator(peer, command=shell("echo broken; exit 3"))
    assert done.returncode == 1, said(done)
    assert [task["containers"][0]["exitCode"] for task in stopped_tasks(ecs)] == [3]
    output = done.stdout + done.stderr
    assert "This task is not in success state" in output and "broken" in output


def test_a_task_that_cannot_start_is_no_success(begin: Callable[..., Peer]) -> None:
    """As in apache/airflow#52943 and #15000: without exit code and log stream, with a reason."""
    missing = logging_to("/ecs/missing", create=False)
    peer, ecs = prepare(begin, logConfiguration=missing)
    done = run_operator(peer, command=["true"])
    assert done.returncode == 1, said(done)
    (task,) = stopped_tasks(ecs)
    assert (task["stopCode"], "exitCode" in task["containers"][0]) == ("TaskFailedToStart", False)
    assert "CannotStartContainerError" in done.stdout + done.stderr


def test_a_task_without_room_names_what_is_missing(begin: Callable[..., Peer]) -> None:
    """As in apache/airflow#48001: RunTask answers 200 with a failure, and no task starts."""
    peer, ecs = prepare(begin)
    requirements = [{"type": "GPU", "value": "1"}]
    done = run_operator(peer, resourceRequirements=requirements)
    assert done.returncode == 1, said(done)
    assert "RESOURCE:GPU" in done.stdout + done.stderr
    assert stopped_tasks(ecs) == []
