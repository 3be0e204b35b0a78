"""Services as values: files and their mistakes, templates, states, nodes that are too small."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import batchyard
from batchyard.errors import InputError, OperationalError, PipelineFileError
from batchyard.pipeline_file import key_reference
from batchyard.services import forwarding, reading, service_keys, states
from batchyard.services.operations import find_misfit
from batchyard.services.service import HealthCheck, Service
from batchyard.services.service_template import make_template

DOCS = Path(__file__).parents[2] / "docs"
EXITED = "Essential container in task exited"
GENERATOR = "run: python docs/generate_pipeline_reference.py"
FULL = """\
name: notebook
image: jupyter
command: jupyter lab --port 8888
count: 2
cpus: 3
memory: 12GiB
gpus: 1
ports: [8888, 6006]
env: {MODEL: "${Env}"}
secrets: {TOKEN: "arn:aws:ssm:us-east-1:123456789012:parameter/lab/token"}
shm: 1GiB
volumes:
  - {path: /work, efs: fs-0123abcd, access_point: fsap-0123abcd}
  - {path: /scratch, instance_store: true}
health: {command: curl -f localhost:8888, interval: 1m, start: 2m}
network: awsvpc
cluster: spotfleet
"""


def load(folder: Path, text: str) -> Service:
    path = folder / "service.yaml"
    path.write_text(text)
    return reading.load(path)


def container_of(service: Service, cluster: str = "ecs") -> Any:
    document = json.loads(make_template(service, "lab", cluster, "address").text)
    (container,) = document["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    return container


# -- the file --------------------------------------------------------------------------------------


def test_a_file_with_every_key(tmp_path: Path) -> None:
    service = load(tmp_path, FULL)
    assert set(yaml.safe_load(FULL)) == set(service_keys.SERVICE_KEYS)
    assert service.command == ("sh", "-c", "jupyter lab --port 8888")
    assert (service.memory_mib, service.shm_mib, service.ports) == (12288, 1024, (8888, 6006))
    expected = HealthCheck("curl -f localhost:8888", interval_s=60, start_s=120)
    assert service.health == expected
    jsonschema.Draft202012Validator.check_schema(service_keys.service_schema())
    jsonschema.validate(yaml.safe_load(FULL), service_keys.service_schema())


def test_two_lines_are_enough(tmp_path: Path) -> None:
    service = load(tmp_path, "name: web\nimage: nginx\n")
    assert service == Service("web", "nginx")
    assert load(tmp_path, "name: web\nimage: x\ncommand: [a, b c]\n").command == ("a", "b c")
    assert load(tmp_path, "name: web\nimage: x\nhealth: 'true'\n").health == HealthCheck("true")


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        (
            "nam: web\nimage: a b\ngpus: 99\nport: [1]\n",
            [
                '1:1: unknown key "nam" in the file; did you mean "name"?',
                '2:8: image is "a b"',
                "3:7: gpus is 99; write a whole number from 0 to 16",
                '4:1: unknown key "port" in the file; did you mean "ports"?',
            ],
        ),
        ("", ["the file is no service; write name: and image:"]),
        ("image: x\n", ["1:1: the file has no name; write name: service"]),
        ("name: web\n", ["1:1: the file has no image"]),
        ("name: x\nsteps: []\n", ["2:1: this is a pipeline file, no service"]),
        (
            "name: x\nimage: x\nenv: {A: 1}\nsecrets: {A: 'arn:x'}\n",
            ['4:11: "A" is both in env and in secrets'],
        ),
        ("name: x\nimage: x\nports: [1, 1]\n", ["3:8: a port is listed twice"]),
        (
            "name: x\nimage: x\nhealth: {interval: 1s}\n",
            ["3:9: health has no command", "3:20: interval is 1s; write a time from 5s to 300s"],
        ),
        ("name: x\nimage: x\nnetwork: bridged\n", ["network is", "one of bridge, host, awsvpc"]),
    ],
)
def test_all_mistakes_are_reported_with_their_places(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    with pytest.raises(PipelineFileError) as error:
        load(tmp_path, text)
    assert not [mistake for mistake in mistakes if mistake not in error.value.message]


def test_the_schema_and_the_key_tables_are_generated() -> None:
    path = Path(batchyard.__file__).with_name("service.schema.json")
    assert path.read_text(encoding="utf-8") == service_keys.schema_text(), GENERATOR
    page = (DOCS / "ecs.md").read_text(encoding="utf-8")
    assert page == key_reference.with_key_tables(page, service_keys.TABLES), GENERATOR
    assert key_reference.key_table(service_keys.SERVICE_KEYS) in page


# -- the template ----------------------------------------------------------------------------------


def test_the_template_of_a_service(tmp_path: Path) -> None:
    service = load(tmp_path, FULL)
    template = make_template(service, "lab", "spotfleet", "address@sha256:1")
    resources = json.loads(template.text)["Resources"]
    assert set(resources) == {"Logs", "Task", "Service", "SecurityGroup"}
    container = container_of(service)
    assert container["Cpu"] == 3 * 1024
    assert container["LinuxParameters"]["SharedMemorySize"] == 1024
    # A value of the user is not a reference.
    assert {"Name": "MODEL", "Value": "${Env}"} in container["Environment"]
    properties = resources["Service"]["Properties"]
    assert properties["LaunchType"] == "EC2"
    rules = resources["SecurityGroup"]["Properties"]["SecurityGroupIngress"]
    assert all("SourceSecurityGroupId" in rule and "CidrIp" not in rule for rule in rules)
    assert template.imports_of("lab") == {
        *("lab-spotfleet-cluster", "lab-job-role", "lab-execution-role"),
        *("lab-vpc", "lab-security-group"),
    }


def test_a_service_with_gpus_gives_its_gpu_up_before_it_is_replaced() -> None:
    def percentages(service: Service) -> Any:
        document = json.loads(make_template(service, "lab", "ecs", "x").text)
        properties = document["Resources"]["Service"]["Properties"]
        assert properties["DeploymentConfiguration"]["DeploymentCircuitBreaker"]["Rollback"]
        return properties["DeploymentConfiguration"]["MaximumPercent"]

    web = Service("web", "x")
    assert percentages(web) == 200
    assert percentages(replace(web, gpus=1)) == percentages(replace(web, network="host")) == 100
    # As a step with GPUs, half of its memory is shared.
    assert "SharedMemorySize" not in container_of(web)["LinuxParameters"]
    assert container_of(replace(web, gpus=1))["LinuxParameters"]["SharedMemorySize"] == 1024


def test_a_service_that_is_larger_than_its_nodes() -> None:
    small = Service("web", "x", gpus=1, memory_mib=14 * 1024)
    types = ["g4dn.xlarge", "g5.12xlarge"]
    assert find_misfit(small, types, fits_every=True) == ""
    large = replace(small, gpus=4, places={"gpus": "web.yaml:3:7"})
    problem = "web.yaml:3:7: gpus is 4, and a node of type g4dn.xlarge has 1"
    assert find_misfit(large, types, fits_every=True) == problem
    assert find_misfit(large, types, fits_every=False) == ""
    much = replace(small, memory_mib=16 * 1024)
    assert "memory is 16GiB" in find_misfit(much, ["g4dn.xlarge"], fits_every=False)
    assert "cpus is 5" in find_misfit(replace(small, cpus=5), types, fits_every=True)
    assert find_misfit(large, ["g99.xlarge"], fits_every=True) == "", "nobody knows that type"


# -- states ----------------------------------------------------------------------------------------


def make_task(**members: Any) -> dict[str, Any]:
    return {
        "taskArn": "arn:aws:ecs:us-east-1:1:task/lab-ecs/0123456789abcdef",
        "taskDefinitionArn": "arn:aws:ecs:us-east-1:1:task-definition/lab-web-service:7",
        "lastStatus": "STOPPED",
        "containers": [{"name": "main"}],
        **members,
    }


@pytest.mark.parametrize(
    ("members", "failure", "hint"),
    [
        ({"stopCode": "ServiceSchedulerInitiated"}, "", ""),
        ({"lastStatus": "RUNNING"}, "", ""),
        (
            {
                "stoppedReason": EXITED,
                "containers": [{"exitCode": 1}],
            },
            "exit code 1 (Essential container in task exited)",
            "the output of the task",
        ),
        (
            {
                "stoppedReason": EXITED,
                "containers": [{"exitCode": 137, "reason": "OutOfMemoryError: Container killed"}],
            },
            "exit code 137 (OutOfMemoryError: Container killed)",
            "raise `memory:`",
        ),
        (
            {
                "stoppedReason": "Task failed to start",
                "containers": [{"reason": "CannotPullContainerError: pull access denied"}],
            },
            "it did not start: CannotPullContainerError: pull access denied",
            "image push",
        ),
        (
            {
                "stopCode": "ServiceSchedulerInitiated",
                "stoppedReason": "Task failed container health checks",
                "containers": [{"exitCode": 143}],
            },
            "Task failed container health checks",
            "the command of `health:` fails",
        ),
        (
            {"stoppedReason": "TaskFailedToStart: RESOURCE:GPU", "containers": []},
            "TaskFailedToStart: RESOURCE:GPU",
            "lower `gpus:`",
        ),
    ],
)
def test_why_a_task_failed(members: dict[str, Any], failure: str, hint: str) -> None:
    assert states.describe_failure(make_task(**members)) == failure
    assert hint in states.find_hint(failure)


def test_events_are_without_the_name_of_the_service_and_long_ids() -> None:
    message = "(service web) has started 1 tasks: (task 0123456789abcdef0123456789abcdef)."
    event = {"id": "1", "createdAt": datetime.now(UTC), "message": message}
    done = {**event, "message": "(service web) (deployment ecs-svc/12) deployment completed."}
    texts = [entry.text for entry in states.to_events([event, done])]
    assert texts == ["has started 1 tasks: 01234567.", "deployment completed."]


# -- tunnels ---------------------------------------------------------------------------------------


def make_state(*tasks: states.TaskState) -> states.ServiceState:
    numbers = {"desired": 1, "running": len(tasks), "pending": 0}
    return states.ServiceState(
        *("web", "lab", "lab-ecs", "ACTIVE"), **numbers, rollout="COMPLETED", tasks=tasks,
        events=(), failures=(),
    )  # fmt: skip


def test_the_tunnel_goes_to_the_port_of_the_newest_task() -> None:
    binding = {"containerPort": 8888, "hostPort": 32768}
    task = states.to_task_state(
        make_task(
            lastStatus="RUNNING",
            containerInstanceArn="instance",
            startedAt=datetime.fromtimestamp(100, UTC),
            containers=[{"networkBindings": [binding, dict(binding)]}],
        ),
        {"instance": "i-1"},
    )
    assert (task.ports, task.revision) == ((states.PortBinding(8888, 32768),), 7)
    newer = replace(task, id="newer", node="i-2", started_s=200.0)
    tunnel = forwarding.find_tunnel(make_state(newer, task), 8888, 9000)
    assert tunnel.command() == [
        *("aws", "ssm", "start-session", "--target", "i-2"),
        *("--document-name", "AWS-StartPortForwardingSession"),
        *("--parameters", '{"portNumber": ["32768"], "localPortNumber": ["9000"]}'),
    ]
    own = replace(task, ports=(), address="10.0.0.7")
    words = forwarding.find_tunnel(make_state(own), 8888).command()
    assert "AWS-StartPortForwardingSessionToRemoteHost" in words
    assert json.loads(words[-1])["host"] == ["10.0.0.7"]
    with pytest.raises(InputError, match="web has no port 80"):
        forwarding.find_tunnel(make_state(task), 80)
    with pytest.raises(InputError, match="no task of web runs"):
        forwarding.find_tunnel(make_state(), 80)


def test_what_to_install_for_a_tunnel(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    with pytest.raises(OperationalError, match="needs the AWS CLI"):
        forwarding.require_programs(environ)
    for name in ("aws", "session-manager-plugin"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 3\n")
        (tmp_path / name).chmod(0o755)
        if name == "aws":
            with pytest.raises(OperationalError, match="needs the session-manager-plugin"):
                forwarding.require_programs(environ)
    tunnel = forwarding.Tunnel("i-1", "task", 1, 2)
    with pytest.raises(OperationalError, match="exited with 3"):
        forwarding.open_tunnel(tunnel, forwarding.require_programs(environ), environ)
