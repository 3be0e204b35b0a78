"""User data at a real boot: systemd, cloud-init, and units ordered as on Amazon Linux. See
booting.py.
"""

from __future__ import annotations

import json
import os

import booting
import pytest
from booting import ALL_UP, Booted, Scene, booted

from batchyard.infra import inline

# Read here, since the fixtures that every test has clean the environment.
REQUIRED = os.environ.get("BATCHYARD_REQUIRE_BOOT") == "1"

VALUES = {
    "GpuFailureAction": "poweroff",
    "Cluster": "dev-ecs",
    "ComputeEnvironment": "dev-unmanaged-gpu",
    "AWS::Region": "us-east-1",
}
#: what the nodes of AWS Batch are told by AWS Batch's own part; its last line may lack an end
FROM_BATCH = {"etc/ecs/ecs.config": "ECS_RESERVED_MEMORY=32\nECS_CLUSTER=from-batch"}
#: how the GPU image of Amazon Linux 2023 gives dockerd the runtime
REGISTERED = {
    "etc/docker-runtimes.d/nvidia": '#!/bin/sh\nexec /usr/bin/nvidia-container-runtime "$@"\n'
}
UP_AND_CHECKED = {**ALL_UP, "batchyard-gpu-check.service": "active"}

pytestmark = [pytest.mark.boot, pytest.mark.usefixtures("a_tree_to_boot")]


@pytest.fixture
def a_tree_to_boot() -> None:
    if (why := booting.missing()) is not None:
        (pytest.fail if REQUIRED else pytest.skip)(why)


def user_data(name: str, **values: str) -> str:
    return inline.render_for_host(name, {**VALUES, **values})


def mistake(*commands: str) -> str:
    return inline.to_mime("\n".join(("#!/bin/bash", *commands, "exit 0")))


def came_up(node: Booted) -> None:
    log = node.read("var/log/cloud-init-output.log")
    assert node.report["ended"] == "as expected", f"{json.dumps(node.report, indent=1)}\n{log}"
    assert node.report["deadlock"] is None
    assert json.loads(node.read("var/lib/cloud/data/result.json"))["v1"]["errors"] == []


def settings(node: Booted) -> dict[str, str]:
    """What the agent was told when it started."""
    return dict(
        line.split("=", 1) for line in node.read("var/lib/observer/ecs-environment").splitlines()
    )


def check(node: Booted) -> dict[str, object]:
    found: dict[str, object] = json.loads(node.read("var/lib/batchyard/gpu-check.json"))
    return found


# -- nodes that come up --------------------------------------------------------------------------


def test_a_gpu_node_of_batch_comes_up_on_the_image_that_registers_the_runtime() -> None:
    before = {"log-driver": "local", "storage-opts": ["size=20G"]}
    files = {**FROM_BATCH, **REGISTERED, "etc/docker/daemon.json": json.dumps(before)}
    with booted(Scene(user_data("batch-gpu"), gpus=4, files=files, until=UP_AND_CHECKED)) as node:
        came_up(node)
        # Merged, and without a second registration, which the stand-in refuses as dockerd does.
        assert json.loads(node.read("etc/docker/daemon.json")) == {
            **before,
            "default-runtime": "nvidia",
        }
        assert node.read("var/lib/observer/docker-starts").split() == ["nvidia"]
        assert settings(node) == {
            "ECS_CLUSTER": "from-batch",
            "ECS_RESERVED_MEMORY": "32",
            "ECS_ENABLE_GPU_SUPPORT": "true",
            "ECS_ENABLE_SPOT_INSTANCE_DRAINING": "true",
        }
        assert node.read("etc/ecs/ecs.config").startswith(FROM_BATCH["etc/ecs/ecs.config"] + "\n")
        assert check(node)["ok"] is True
        assert "sees 4 of 4 GPUs" in str(check(node)["reason"])
        assert not node.exists(
            "var/lib/observer/modprobe"
        )  # the driver answered: nothing to load anew
        assert not node.exists("var/lib/stand-in-image")  # the check leaves no image behind


def test_the_runtime_is_registered_and_the_modules_are_loaded_anew_once() -> None:
    with booted(
        Scene(user_data("batch-gpu"), driver_sleeps=True, files=FROM_BATCH, until=UP_AND_CHECKED)
    ) as node:
        came_up(node)
        config = json.loads(node.read("etc/docker/daemon.json"))
        assert config["default-runtime"] == "nvidia"
        assert list(config["runtimes"]) == ["nvidia"]
        assert node.read("var/lib/observer/modprobe").splitlines() == [
            "modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia",
            "modprobe nvidia",
            "modprobe nvidia_uvm",
        ]


def test_the_runtime_joins_others_that_the_image_registers() -> None:
    files = {**FROM_BATCH, "etc/docker-runtimes.d/other": "#!/bin/sh\n"}
    with booted(Scene(user_data("batch-gpu"), files=files, until=UP_AND_CHECKED)) as node:
        came_up(node)
        assert json.loads(node.read("etc/docker/daemon.json")) == {"default-runtime": "nvidia"}
        assert "exec nvidia-container-runtime" in node.read("etc/docker-runtimes.d/nvidia")


def test_a_cpu_node_of_batch_comes_up() -> None:
    with booted(Scene(user_data("batch-cpu"), gpus=0, files=FROM_BATCH)) as node:
        came_up(node)
        assert settings(node) == {
            "ECS_CLUSTER": "from-batch",
            "ECS_RESERVED_MEMORY": "32",
            "ECS_ENABLE_SPOT_INSTANCE_DRAINING": "true",
        }
        assert not node.exists("etc/docker/daemon.json")
        assert not node.exists("etc/systemd/system/batchyard-gpu-check.service")


def test_a_node_of_an_ecs_cluster_joins_that_cluster() -> None:
    with booted(Scene(user_data("ecs-gpu"), files=REGISTERED, until=UP_AND_CHECKED)) as node:
        came_up(node)
        assert settings(node)["ECS_CLUSTER"] == "dev-ecs"
        assert settings(node)["ECS_ENABLE_GPU_SUPPORT"] == "true"


def test_a_self_managed_node_joins_the_cluster_that_batch_has_made() -> None:
    with booted(Scene(user_data("unmanaged-gpu"), files=REGISTERED, until=UP_AND_CHECKED)) as node:
        came_up(node)
        assert settings(node)["ECS_CLUSTER"] == "dev-unmanaged-gpu_Batch_0f1e"
        assert len(node.read("var/lib/observer/aws").splitlines()) == 1


def test_a_self_managed_node_installs_the_aws_client_where_the_image_has_none() -> None:
    scene = Scene(
        user_data("unmanaged-gpu"), lacks_aws_client=True, files=REGISTERED, until=UP_AND_CHECKED
    )
    with booted(scene) as node:
        came_up(node)
        assert settings(node)["ECS_CLUSTER"] == "dev-unmanaged-gpu_Batch_0f1e"
        assert node.read("var/lib/observer/dnf") == "dnf install -y -q awscli-2\n"


# -- nodes that must not join --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scene", "stage", "words"),
    [
        (
            Scene(user_data("batch-gpu"), gpus=4, container_gpus=3, files=REGISTERED),
            "container",
            "3 of 4 GPUs",
        ),
        (
            Scene(user_data("batch-gpu"), driver_stays_asleep=True, files=REGISTERED),
            "driver",
            "NVIDIA driver",
        ),
        (
            # Somebody's daemon.json that dockerd refuses: it is left alone, and the reason is told.
            Scene(
                user_data("batch-gpu"), files={**REGISTERED, "etc/docker/daemon.json": "{not json"}
            ),
            "docker",
            "Docker does not answer",
        ),
        (
            Scene(user_data("unmanaged-gpu", ComputeEnvironment="no-such"), files=REGISTERED),
            "user-data",
            "no cluster is known for no-such",
        ),
    ],
    ids=["fewer GPUs in a container", "no driver", "no docker", "no cluster"],
)
def test_a_node_that_cannot_serve_says_why_and_powers_off_before_ecs_starts(
    scene: Scene, stage: str, words: str
) -> None:
    with booted(scene) as node:
        assert node.report["ended"] is None, "the node went by itself, not by the observer"
        assert not node.exists("var/lib/observer/ecs-environment"), "the agent never started"
        assert (check(node)["ok"], check(node)["stage"]) == (False, stage)
        assert words in str(check(node)["reason"])
        assert f"gpu check: ok=false, {stage}: " in node.read("var/log/batchyard-node.log")


def test_a_node_can_be_told_to_stay_for_somebody_to_look_at() -> None:
    until = {
        "cloud-final.service": "active",
        "docker.service": "active",
        "batchyard-gpu-check.service": "failed",
    }
    data = user_data("batch-gpu", GpuFailureAction="none")
    with booted(Scene(data, container_gpus=0, files=REGISTERED, until=until)) as node:
        assert node.report["ended"] == "as expected"
        assert node.last["ecs.service"] == "inactive"
        assert not node.exists("var/lib/observer/ecs-environment")


# -- what these boots would catch ----------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["systemctl start ecs", "systemctl restart ecs", "systemctl restart docker"]
)
def test_waiting_for_ecs_or_docker_deadlocks(command: str) -> None:
    with booted(Scene(mistake(command), gpus=0, stuck_s=5)) as node:
        assert node.report["deadlock"]["commands"] == [command]
        jobs = {
            unit: state
            for _, unit, _, state in map(str.split, node.report["deadlock"]["jobs"].splitlines())
        }
        assert jobs["cloud-final.service"] == "running"
        assert jobs["ecs.service"] == jobs["docker.service"] == "waiting"
        # Nothing else was in the way: the command ended, all comes up.
        assert node.report["ended"] == "as expected"


def test_registering_the_runtime_twice_stops_docker() -> None:
    twice = (
        'echo \'{"runtimes": {"nvidia": {"path": "x"}}, "default-runtime": "nvidia"}\' '
        ">/etc/docker/daemon.json"
    )
    until = {"cloud-final.service": "active", "docker.service": "failed"}
    with booted(
        Scene(mistake("mkdir -p /etc/docker", twice), files=REGISTERED, until=until)
    ) as node:
        assert node.report["ended"] == "as expected"
        assert not node.exists("var/lib/observer/docker-starts")
