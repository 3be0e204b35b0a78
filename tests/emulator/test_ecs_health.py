"""Health checks of containers run beside them, and services replace tasks that fail theirs."""

from __future__ import annotations

import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from ecs_tasks_of_tests import describe, register, run, shell, wait_for
from emulator_endpoint import Endpoint, until

pytestmark = pytest.mark.slow
FOREVER = shell("while :; do sleep 1; done")


def check(command: str, **members: int) -> dict[str, Any]:
    """A check at the shortest interval, whose first failure counts."""
    return {
        "healthCheck": {
            "command": ["CMD-SHELL", command],
            **{"interval": 5, "retries": 1, **members},
        },
        "stopTimeout": 0,
    }


@pytest.fixture(scope="module")
def ecs(endpoint: Endpoint) -> Any:
    client = endpoint.client("ecs")
    client.create_cluster()
    client.register_container_instance()
    return client


def service_of(ecs: Any, name: str) -> Any:
    (service,) = ecs.describe_services(services=[name])["services"]
    return service


def test_a_service_replaces_a_task_that_fails_its_check(ecs: Any, tmp_path: Path) -> None:
    flag = tmp_path / "works"
    flag.touch()
    environment = [{"name": "FLAG", "value": str(flag)}]
    container = {"command": FOREVER, "environment": environment, **check('test -e "$FLAG"')}
    register(ecs, "checked", container)
    ecs.create_service(serviceName="checked", taskDefinition="checked", desiredCount=1)
    (arn,) = until(lambda: ecs.list_tasks(serviceName="checked")["taskArns"], bool)
    wait_for(ecs, arn, "RUNNING")
    # It runs, and is not complete before it is healthy.
    (deployment,) = service_of(ecs, "checked")["deployments"]
    assert deployment["rolloutState"] == "IN_PROGRESS" and deployment["runningCount"] == 1
    task = until(lambda: describe(ecs, arn), lambda task: task["healthStatus"] == "HEALTHY")
    assert task["containers"][0]["healthStatus"] == "HEALTHY"
    until(
        lambda: service_of(ecs, "checked")["deployments"],
        lambda deployments: deployments[0]["rolloutState"] == "COMPLETED",
    )
    flag.unlink()
    old = wait_for(ecs, arn, "STOPPED")
    assert (old["stopCode"], old["stoppedReason"]) == (
        "ServiceSchedulerInitiated",
        "Task failed container health checks",
    )
    assert old["healthStatus"] == "UNHEALTHY"
    flag.touch()
    (new,) = until(lambda: ecs.list_tasks(serviceName="checked")["taskArns"], bool)
    assert new != arn
    messages = [event["message"] for event in service_of(ecs, "checked")["events"]]
    task_id = arn.rpartition("/")[2]
    assert f"(service checked) (task {task_id}) failed container health checks." in messages
    ecs.delete_service(service="checked", force=True)


def test_tasks_of_run_task_only_show_their_health(ecs: Any) -> None:
    """A check that is too slow has failed. A container can wait for the health of another one."""
    register(ecs, "unwell", {"command": FOREVER, **check("sleep 60", timeout=2)})
    register(
        ecs,
        "ordered",
        {"name": "first", "command": FOREVER, **check("exit 0")},
        {
            "name": "then",
            "command": shell("exit 0"),
            "dependsOn": [{"containerName": "first", "condition": "HEALTHY"}],
        },
    )
    unwell, ordered = run(ecs, "unwell"), run(ecs, "ordered")
    assert describe(ecs, ordered)["containers"][1]["lastStatus"] == "PENDING"
    task = until(lambda: describe(ecs, unwell), lambda task: task["healthStatus"] == "UNHEALTHY")
    assert task["lastStatus"] == "RUNNING"
    ecs.stop_task(task=unwell)
    first, then = wait_for(ecs, ordered, "STOPPED")["containers"]
    assert first["healthStatus"] == "HEALTHY" and then["exitCode"] == 0


def test_a_check_ends_with_its_container(tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path)
    try:
        ecs = endpoint.client("ecs")
        for is_reset in (False, True):
            ecs.create_cluster()
            ecs.register_container_instance()
            file = tmp_path / f"pid-{is_reset}"
            slow = check(f"echo $$ > {file}; exec sleep 600", timeout=60)
            register(ecs, "slow", {"command": FOREVER, **slow})
            arn = run(ecs, "slow")
            until(lambda file=file: file.exists() and file.read_text(), bool)
            if is_reset:
                urllib.request.urlopen(f"{endpoint.url}/moto-api/reset", b"").close()
            else:
                ecs.stop_task(task=arn)
            process = Path("/proc") / file.read_text().strip()
            until(lambda process=process: process.exists(), lambda is_there: not is_there)
    finally:
        endpoint.stop()


def find_processes(*argv: str) -> set[str]:
    """The processes with these arguments, also in containers."""
    wanted = b"".join(word.encode() + b"\0" for word in argv)
    pids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "cmdline").read_bytes() == wanted:
                pids.add(folder.name)
    return pids


@pytest.mark.docker
def test_a_check_runs_in_the_container(tmp_path: Path, docker_engine: None) -> None:
    endpoint = Endpoint(tmp_path, "--runner", "docker")
    try:
        ecs = endpoint.client("ecs")
        ecs.create_cluster()
        ecs.register_container_instance()
        command = shell("touch /inside; exec sleep 600")
        image = {"image": "batchyard-test:latest"}
        register(ecs, "boxed", {"command": command, **image, **check("test -e /inside")})
        arn = run(ecs, "boxed")
        until(lambda: describe(ecs, arn)["healthStatus"], lambda status: status == "HEALTHY")
        assert not Path("/inside").exists()
        # A check that is late ends, also in the container.
        slow = check("sleep 4711", timeout=2)
        register(ecs, "slow", {"command": shell("exec sleep 600"), **image, **slow})
        arn = run(ecs, "slow")
        first = until(lambda: find_processes("sleep", "4711"), bool)
        until(lambda: describe(ecs, arn)["healthStatus"], lambda status: status == "UNHEALTHY")
        until(lambda: find_processes("sleep", "4711"), lambda pids: not pids & first)
    finally:
        endpoint.stop()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"command": ["curl", "localhost"]}, "'command' must begin with CMD or CMD-SHELL"),
        ({"command": ["CMD", "true"], "interval": 1}, "'interval' must be between 5 and 300"),
        ({"command": ["CMD", "true"], "retries": 11}, "'retries' must be between 1 and 10"),
    ],
)
def test_checks_that_ecs_refuses(ecs: Any, members: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        register(ecs, "wrong", {"command": FOREVER, "healthCheck": members})


def test_the_health_of_a_container_without_a_check_cannot_be_waited_for(ecs: Any) -> None:
    with pytest.raises(ClientError, match="HEALTHY needs a health check of container 'first'"):
        register(
            ecs,
            "wrong",
            {"name": "first", "command": FOREVER},
            {"dependsOn": [{"containerName": "first", "condition": "HEALTHY"}]},
        )
