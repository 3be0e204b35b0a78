"""Arguments for docker and the meaning of its output, without docker, on recorded output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchyard.batch.jobs import Resources
from batchyard.embedded import docker
from batchyard.embedded.docker import ContainerDefaults, User
from batchyard.embedded.runner import Task
from batchyard.pipeline import Mount
from batchyard.shard import Turn

DEFAULTS = ContainerDefaults(
    "p-20261116-0123ab", "by00", Path("/data/a, b"), Path("/data/a, b/.batchyard/runs/p/lists")
)
ROOT = User((), "root")
ANN = User(("--user", "1000:100"), "ann")


def task(**fields: Any) -> Task:
    variables = fields.pop("engine_environ", {"AWS_BATCH_JOB_ID": "x"})
    environ = {name.encode(): value.encode() for name, value in variables.items()}
    members: dict[str, Any] = {
        "engine_variables": tuple(environ),
        "resources": Resources(2, 512),
        **fields,
    }
    return Task(0, "x", "s", 0, 0, 1, Turn(range(1)), str, environ, image="im:1", **members)


def argv(attempt: Task, defaults: ContainerDefaults = DEFAULTS, user: User = ROOT) -> list[str]:
    return docker.create_argv(attempt, "n", defaults, user, docker.environ_of(attempt, user))


def after(words: list[str], flag: str) -> list[str]:
    return [words[n + 1] for n, word in enumerate(words) if word == flag]


def test_limits() -> None:
    words = argv(task(shm_mib=64))
    assert words[0] == "create"
    assert words[-1] == "im:1"
    assert after(words, "--cpu-shares") == ["2048"]
    assert after(words, "--memory") == after(words, "--memory-swap") == ["512m"]
    assert after(words, "--shm-size") == ["64m"]
    assert after(words, "--network") == ["host"]
    assert "--gpus" not in words
    assert "--interactive" not in words
    assert "--interactive" in argv(task(has_several_commands=True))
    assert after(argv(task(resources=Resources(1000, 512))), "--cpu-shares") == ["262144"]


def test_mounts_limits_and_user_of_a_step() -> None:
    mounts = (
        Mount("/data", host="/mnt/a, b", read_only=True),
        Mount("/scratch", instance_store=True),
    )
    attempt = task(mounts=mounts, ulimits={"nofile": "64:128", "core": "0:0"}, user="nobody")
    words = argv(attempt, user=ANN)
    assert after(words, "--mount")[1:] == [
        'type=bind,"source=/mnt/a, b",target=/data,readonly',
        "type=volume,target=/scratch",
    ]
    assert after(words, "--ulimit") == ["core=0:0", "nofile=64:128"]
    # The step's user replaces the caller, whose HOME and USER would be wrong.
    assert after(words, "--user") == ["nobody"]
    assert not {"HOME", "USER"} & set(docker.environ_of(attempt, ANN))


def test_gpus_are_the_drivers_outside_and_counted_from_0_inside() -> None:
    variables = {"CUDA_VISIBLE_DEVICES": "2,5", "NVIDIA_VISIBLE_DEVICES": "2,5"}
    attempt = task(engine_environ=variables, resources=Resources(1, 512, 2), gpus=(0, 1))
    assert after(argv(attempt), "--gpus") == ['"device=2,5"']
    assert docker.environ_of(attempt, ROOT) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NVIDIA_VISIBLE_DEVICES": "2,5",
    }


def test_mounts() -> None:
    (workspace,) = after(argv(task()), "--mount")
    assert workspace == 'type=bind,"source=/data/a, b","target=/data/a, b"'
    elsewhere = ContainerDefaults("p", "by00", Path("/w"), Path("/home/lists"))
    assert after(argv(task(), elsewhere), "--mount") == [
        "type=bind,source=/w,target=/w",
        "type=bind,source=/home/lists,target=/home/lists,readonly",
    ]


def test_values_go_by_the_clients_environment_unless_they_would_change_the_client() -> None:
    variables = {"SECRET": "s", "PATH": "/opt/bin", "DOCKER_HOST": "tcp://x", "LD_PRELOAD": "y.so"}
    attempt = task(engine_environ=variables)
    env_flags = after(argv(attempt), "--env")
    assert env_flags[1:] == ["SECRET", "PATH=/opt/bin", "DOCKER_HOST=tcp://x", "LD_PRELOAD=y.so"]
    base = {b"PATH": b"/bin"}
    assert docker.client_environ(base, variables) == {b"PATH": b"/bin", b"SECRET": b"s"}


def test_the_user_of_a_container() -> None:
    assert docker.user_flags(0, 0, [0, 4], is_rootless=False) == ()
    assert docker.user_flags(1000, 100, [100, 27], is_rootless=False) == (
        "--user",
        "1000:100",
        "--group-add=27",
    )
    assert docker.user_flags(1000, 100, [100, 27], is_rootless=True) == ()
    assert docker.environ_of(task(), ROOT) == {"AWS_BATCH_JOB_ID": "x"}
    assert docker.environ_of(task(), ANN) == {
        "HOME": "/tmp",
        "USER": "ann",
        "AWS_BATCH_JOB_ID": "x",
    }
    assert docker.environ_of(task(engine_environ={"HOME": "/h"}), ANN)["HOME"] == "/h"


PULL_28 = """\
Unable to find image 'nobody/nothing:1' locally
1: Pulling from nobody/nothing
docker: Error response from daemon: pull access denied for nobody/nothing, \
repository does not exist or may require \
'docker login': denied: requested access to the resource is denied

Run 'docker create --help' for more information
"""
PULLED_THEN_REFUSED = """\
Unable to find image 'debian:12' locally
12: Pulling from library/debian
Digest: sha256:0123
Status: Downloaded newer image for debian:12
Error response from daemon: Minimum memory limit allowed is 6MB
"""


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            PULL_28,
            "CannotPullContainerError: Error response from daemon: pull access denied for "
            "nobody/nothing, repository does not exist or may require 'docker login': denied: "
            "requested access to the resource is denied",
        ),
        (
            PULLED_THEN_REFUSED,
            "CannotCreateContainerError: Error response from daemon: "
            "Minimum memory limit allowed is 6MB",
        ),
        ("invalid reference format\n", "CannotCreateContainerError: invalid reference format"),
        ("", "CannotCreateContainerError: "),
    ],
)
def test_the_reason_of_a_failed_creation(output: str, reason: str) -> None:
    assert docker.creation_failure_reason(output) == reason


def test_a_reason_is_no_longer_than_aws_allows() -> None:
    assert len(docker.format_reason("CannotStartContainerError", "x" * 1000)) == 255


def test_states() -> None:
    text = '{"Status":"%s","Running":false,"OOMKilled":%s,"ExitCode":%d,"Error":"%s"}'
    refused = docker.parse_state(text % ("created", "false", 128, "could not select device driver"))
    assert refused.never_started
    assert refused.error == "could not select device driver"
    killed = docker.parse_state(text % ("exited", "true", 137, ""))
    assert (killed.is_over, killed.never_started, killed.was_out_of_memory) == (True, False, True)
    assert not docker.parse_state(text % ("running", "false", 0, "")).is_over
