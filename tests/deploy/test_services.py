"""`batchyard service` by the real command, on the clusters of the stacks `ecs` and `spotfleet`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import Endpoint, until
from site_of_stacks import Site

import prestarted

pytestmark = pytest.mark.slow
WEB = """\
name: web
image: python:3.12
command: echo hello from $GREETING; exec {python} -m http.server {port} --bind 127.0.0.1
memory: 256MiB
gpus: 1
ports: [{port}]
env: {{GREETING: the service}}
"""
#: A command that writes its process id and fails.
BROKEN = "command: echo about to fail; exit 7"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    flags = ("--cpus", "8", "--memory", "32GiB", "--gpus", "2")
    endpoint = Endpoint(tmp_path_factory.mktemp("endpoint"), *flags)
    try:
        site = Site(endpoint, tmp_path_factory.mktemp("site"))
        site.about("deploy", "network", "storage", "registry", "iam", "ecs", "--yes")
        yield site
    finally:
        endpoint.stop()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def write(site: Site, text: str, name: str = "web.yaml") -> Path:
    path = site.folder / name
    path.write_text(text)
    return path


def service(site: Site, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return site("service", *words, "--env", site.env, **more)


def state_of(site: Site, name: str) -> Any:
    return json.loads(service(site, "status", name, "--json", code=None).stdout)


def test_a_service_from_up_to_down(site: Site, unused_port: int) -> None:
    text = WEB.format(python=sys.executable, port=unused_port)
    write(site, text)
    stack = f"{site.env}-web-service"
    declined = service(site, "up", "web.yaml", answers="n\n", code=130)
    assert f"{stack}: 3 added" in declined.stderr
    assert stack not in site.stacks(), "nothing is left of a change that was declined"

    up = service(site, "up", "web.yaml", "--yes")
    assert up.stdout == "web is up\n"
    assert "web: has reached a steady state." in up.stderr
    assert f"service forward web {unused_port} --env {site.env}" in up.stderr
    assert urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/").status == 200
    assert "web is up to date" in service(site, "up", "web.yaml", "--yes").stdout

    # What a person sees of it.
    shown = service(site, "status", "web").stdout
    assert shown.startswith(f"web on {site.env}-ecs: 1 of 1 task running; up\n")
    assert "RUNNING" in shown and "events, newest first" in shown
    assert "1 of 1  up" in service(site, "status").stdout
    state = state_of(site, "web")
    assert state["is_steady"] and state["tasks"][0]["node"].startswith("i-")
    until(lambda: service(site, "logs", "web").stdout, lambda out: "hello from the service" in out)
    near = service(site, "status", "wbe", code=2).stderr
    assert "there is no service 'wbe'" in near and "did you mean 'web'?" in near

    # New tasks, then none.
    (task,) = state["tasks"]
    assert service(site, "restart", "web").stdout == "web runs new tasks\n"
    assert task["id"] not in {entry["id"] for entry in state_of(site, "web")["tasks"]}
    scaled = service(site, "scale", "web", "0")
    assert "Count: 1 -> 0" in scaled.stderr and scaled.stdout == "web has 0 tasks\n"
    assert state_of(site, "web")["tasks"] == []
    assert "nothing to do" in service(site, "scale", "web", "0").stdout
    # The file has no count, so that `up` keeps the number.
    write(site, text.replace("the service", "version two"))
    service(site, "up", "web.yaml", "--yes")
    assert state_of(site, "web")["desired"] == 0

    listed = service(site, "down", "web", answers="n\n", code=130).stderr
    assert f"log group /batchyard/{site.env}/service/web" in listed
    assert service(site, "down", "web", "--yes").stdout == "web: deleted\n"
    assert stack not in site.stacks()
    assert "has no service" in service(site, "status").stdout


def test_a_version_that_fails_is_rolled_back_and_up_says_why(site: Site) -> None:
    write(site, "name: rolled\nimage: x\ncommand: exec sleep 600\n", "rolled.yaml")
    service(site, "up", "rolled.yaml", "--yes")
    write(site, f"name: rolled\nimage: x\n{BROKEN}\n", "rolled.yaml")
    failed = service(site, "up", "rolled.yaml", "--yes", code=3).stderr
    assert "rolled: deployment failed: tasks failed to start." in failed
    assert "  | about to fail" in failed, "the last output of the task"
    assert "rolled: its tasks do not stay up: exit code 7" in failed
    state = until(lambda: state_of(site, "rolled"), lambda state: state["is_steady"])
    assert [task["revision"] for task in state["tasks"]] == [1]
    assert "exit code 7" in state["failures"][0]
    service(site, "down", "rolled", "--yes")


def test_a_new_service_that_fails_leaves_nothing(site: Site) -> None:
    write(site, f"name: first\nimage: x\n{BROKEN}\n", "first.yaml")
    failed = service(site, "up", "first.yaml", "--yes", code=3).stderr
    assert "first: its tasks do not stay up: exit code 7" in failed
    listed = service(site, "status", code=1).stdout
    assert "first" in listed and "ROLLBACK_COMPLETE" in listed
    # The same command makes it anew.
    write(site, "name: first\nimage: x\ncommand: exec sleep 600\n", "first.yaml")
    assert "an earlier attempt failed" in service(site, "up", "first.yaml", "--yes").stderr
    service(site, "down", "first", "--yes")


def test_tasks_that_fail_their_health_check_are_replaced(site: Site) -> None:
    flag = site.folder / "works"
    flag.touch()
    text = (
        "name: well\nimage: x\ncommand: exec sleep 600\n"
        f"health: {{command: test -e {flag}, interval: 5s, retries: 1}}\n"
    )
    write(site, text, "well.yaml")
    service(site, "up", "well.yaml", "--yes")
    (task,) = state_of(site, "well")["tasks"]
    assert task["health"] == "HEALTHY"
    flag.unlink()
    until(lambda: state_of(site, "well"), lambda state: "health checks" in str(state["failures"]))
    flag.touch()
    state = until(lambda: state_of(site, "well"), lambda state: state["is_steady"])
    assert [entry["id"] for entry in state["tasks"]] != [task["id"]]
    # A version that never becomes healthy does not stay.
    write(site, text.replace("works", "fails"), "well.yaml")
    failed = service(site, "up", "well.yaml", "--yes", code=3).stderr
    assert "Task failed container health checks" in failed
    assert "the command of `health:` fails in the container" in failed
    state = until(lambda: state_of(site, "well"), lambda state: state["is_steady"])
    assert [entry["revision"] for entry in state["tasks"]] == [1]
    service(site, "down", "well", "--yes")


def test_an_image_that_cannot_be_pulled(tmp_path: Path) -> None:
    flags = ("--cpus", "8", "--memory", "32GiB", "--gpus", "1", "--faults", "no-image=1")
    endpoint = Endpoint(tmp_path, *flags)
    try:
        site = Site(endpoint, tmp_path)
        site.about("deploy", "network", "storage", "registry", "iam", "ecs", "--yes")
        write(site, "name: web\nimage: nobody/nothing\ncommand: sleep 9\n")
        failed = service(site, "up", "web.yaml", "--yes", code=3).stderr
        assert "it did not start: CannotPullContainerError" in failed
        assert "check `image:`" in failed
    finally:
        endpoint.stop()


@pytest.mark.docker
def test_a_service_is_a_container_and_a_broken_image_is_rolled_back(
    tmp_path: Path, docker_engine: None
) -> None:
    endpoint = Endpoint(tmp_path, *("--runner", "docker", "--cpus", "8", "--memory", "32GiB"))
    try:
        site = Site(endpoint, tmp_path)
        site.about("deploy", "network", "storage", "registry", "iam", "spotfleet", "--yes")
        site.about("deploy", "spotfleet", "--yes", "--set", "Nodes=1")
        (tmp_path / "data").mkdir()
        text = f"""\
name: boxed
image: batchyard-test:latest
command: df -m /dev/shm | tail -1; echo from the container > /data/file; exec sleep 600
memory: 64MiB
shm: 37MiB
volumes: [{{path: /data, host: "{tmp_path}/data"}}]
"""
        write(site, text, "boxed.yaml")
        service(site, "up", "boxed.yaml", "--yes")
        until(lambda: [*(tmp_path / "data").iterdir()], bool)
        assert (tmp_path / "data/file").read_text() == "from the container\n"
        until(lambda: service(site, "logs", "boxed").stdout, lambda out: " 37 " in out)
        write(site, text.replace("batchyard-test:latest", "127.0.0.1:9/no/such:1"), "boxed.yaml")
        failed = service(site, "up", "boxed.yaml", "--yes", code=3).stderr
        assert "it did not start: CannotPullContainerError" in failed
        state = until(lambda: state_of(site, "boxed"), lambda state: state["is_steady"])
        assert [task["revision"] for task in state["tasks"]] == [1]
        service(site, "down", "boxed", "--yes")
    finally:
        endpoint.stop()


def test_what_cannot_work_is_refused_before_anything_is_sent(site: Site) -> None:
    before = site.stacks()
    write(site, "name: big\nimage: x\ngpus: 4\n", "big.yaml")
    refused = service(site, "up", "big.yaml", "--yes", code=2).stderr
    assert "big.yaml:3:7: gpus is 4, and a node of type g4dn.xlarge has 1" in refused
    write(site, "nam: big\nimage: x y\n", "wrong.yaml")
    refused = service(site, "up", "wrong.yaml", "--yes", code=2).stderr
    assert 'wrong.yaml:1:1: unknown key "nam" in the file; did you mean "name"?' in refused
    assert "wrong.yaml:2:8: image is" in refused
    write(site, "name: x\nimage: x\ncluster: spotfleet\n", "fleet.yaml")
    refused = service(site, "up", "fleet.yaml", "--yes", code=2).stderr
    assert f"batchyard deploy spotfleet --env {site.env}" in refused
    assert site.stacks() == before


def test_a_service_that_no_node_has_room_for_can_be_taken_down(site: Site) -> None:
    """On a fleet without nodes: `up` waits and says why, and `down` gives it up."""
    site.about("deploy", "spotfleet", "--yes")
    write(site, "name: wait\nimage: x\ncommand: sleep 9\ncluster: spotfleet\n", "wait.yaml")
    command = [sys.executable, "-m", "batchyard", "service", "up", "wait.yaml", "--yes"]
    with prestarted.Popen(
        [*command, "--env", site.env],
        cwd=site.folder,
        env=site.endpoint.environ,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "unable to place" in line)
        assert "No Container Instances were found in your cluster" in said
        assert "deploy spotfleet --set Nodes=1" in process.stderr.readline()
        process.kill()
    assert "not up" in service(site, "status", "wait", code=3).stderr
    assert service(site, "down", "wait", "--yes").stdout == "wait: deleted\n"


def test_up_goes_on_with_a_service_that_waited_for_a_node(site: Site) -> None:
    """On a Spot Fleet: killed while it waits; a node comes; the same command finds it again."""
    site.about("deploy", "spotfleet", "--yes")
    text = "name: fleet\nimage: x\ncommand: echo hi; exec sleep 600\ngpus: 1\ncluster: spotfleet\n"
    write(site, text, "fleet.yaml")
    up = ("service", "up", "fleet.yaml", "--yes")
    site.killed(*up, at="unable to place")
    site.about("deploy", "spotfleet", "--yes", "--set", "Nodes=1")
    done = site.about(*up)
    assert done.stdout == "fleet is up to date\n"
    state = state_of(site, "fleet")
    assert (state["cluster"], state["running"]) == (f"{site.env}-spotfleet", 1)
    write(site, text.replace("spotfleet", "ecs"), "fleet.yaml")
    moved = site.about(*up, code=2).stderr
    assert f"is on the cluster {site.env}-spotfleet, and cannot move" in moved
    # Lines are followed until somebody ends it.
    command = [sys.executable, "-m", "batchyard", "service", "logs", "fleet", "-f"]
    with prestarted.Popen(
        [*command, "--env", site.env],
        cwd=site.folder,
        env=site.endpoint.environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("  hi\n")
        process.kill()
    service(site, "down", "fleet", "--yes")
    site.about("deploy", "spotfleet", "--yes", "--set", "Nodes=0")


def test_a_tunnel_is_opened_by_the_aws_command(site: Site, tmp_path: Path) -> None:
    text = "name: port\nimage: x\ncommand: exec sleep 600\nports: [8888]\n"
    write(site, text, "port.yaml")
    service(site, "up", "port.yaml", "--yes")
    called = tmp_path / "called"
    (tmp_path / "aws").write_text(f'#!/bin/sh\necho "$@" > {called}\n')
    (tmp_path / "session-manager-plugin").write_text("#!/bin/sh\n")
    for path in tmp_path.glob("*"):
        path.chmod(0o755)
    environ = {**site.endpoint.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = service(site, "forward", "port", "8888", "--local-port", "9000", environ=environ)
    assert "http://localhost:9000 is port 8888 of task" in done.stderr
    (task,) = state_of(site, "port")["tasks"]
    assert f"ssm start-session --target {task['node']}" in called.read_text()
    assert '"portNumber": ["8888"]' in called.read_text()
    assert "it has 8888" in service(site, "forward", "port", "80", code=2).stderr
    service(site, "down", "port", "--yes")


PYTHON = """
import sys, time
from batchyard import BatchyardError, Service

env, lines = sys.argv[1], []
py = Service.up("py.yaml", env, report=lines.append)
assert "py: has reached a steady state." in lines, lines
assert Service.names(env) == ["py"] and py.status()["running"] == 1
while [line for _, line in py.logs()] != ["hi"]:
    time.sleep(0.1)
py.restart()
py.scale(0)
assert py.status()["desired"] == 0
py.down()
try:
    Service("py", env)
except BatchyardError as error:
    print(error)
"""


def test_the_same_from_python(site: Site) -> None:
    write(site, "name: py\nimage: x\ncommand: echo hi; exec sleep 600\n", "py.yaml")
    done = subprocess.run(
        [sys.executable, "-c", PYTHON, site.env],
        cwd=site.folder,
        env=site.endpoint.environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "there is no service 'py'" in done.stdout, done.stderr
