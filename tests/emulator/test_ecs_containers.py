"""Tasks of ECS as containers: `emulate --runner docker`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ecs_tasks_of_tests import log_lines, logging_to, register, run, shell, wait_for
from emulator_endpoint import Endpoint, until

pytestmark = pytest.mark.docker
#: Made by .ci/docker-engine.
IMAGE = "batchyard-test:latest"
GROUP = "/ecs/boxed"


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory, docker_engine: None) -> Iterator[Endpoint]:
    flags = ("--runner", "docker", "--cpus", "4", "--memory", "4GiB")
    endpoint = Endpoint(tmp_path_factory.mktemp("boxes"), *flags)
    try:
        endpoint.client("ecs").create_cluster()
        endpoint.client("ecs").register_container_instance()
        yield endpoint
    finally:
        endpoint.stop()


@pytest.fixture(scope="module")
def ecs(boxes: Endpoint) -> Any:
    return boxes.client("ecs")


def box(**members: Any) -> dict[str, Any]:
    return {"image": IMAGE, "logConfiguration": logging_to(GROUP), **members}


def test_entry_point_and_working_directory(boxes: Endpoint, ecs: Any) -> None:
    command = ["-c", 'echo "$0 $PWD"', "zero"]
    register(ecs, "boxed", box(entryPoint=["sh"], command=command, workingDirectory="/tmp"))
    arn = run(ecs, "boxed")
    task = wait_for(ecs, arn, "STOPPED")
    assert task["containers"][0]["exitCode"] == 0, task
    assert log_lines(boxes, GROUP, arn) == ["zero /tmp"]


def test_an_image_that_does_not_exist(ecs: Any) -> None:
    register(ecs, "unknown", box(image="127.0.0.1:9/no/such:image", command=["true"]))
    task = wait_for(ecs, run(ecs, "unknown"), "STOPPED")
    assert (task["stopCode"], task["stoppedReason"]) == (
        "TaskFailedToStart",
        "Task failed to start",
    )
    (container,) = task["containers"]
    assert container["reason"].startswith("CannotPullContainerError")
    assert "exitCode" not in container


def test_a_container_is_stopped_with_sigterm(boxes: Endpoint, ecs: Any) -> None:
    command = shell("trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.2; done")
    register(ecs, "polite", box(command=command))
    arn = run(ecs, "polite")
    until(lambda: log_lines(boxes, GROUP, arn), lambda lines: lines == ["ready"])
    ecs.stop_task(task=arn, reason="enough")
    task = wait_for(ecs, arn, "STOPPED")
    assert task["containers"][0]["exitCode"] == 3
    assert log_lines(boxes, GROUP, arn) == ["ready", "term"]
