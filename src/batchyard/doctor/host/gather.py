"""Asks a machine for the facts about it. Reads only; a container is run only where one is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchyard.doctor.facts import Missing
from batchyard.doctor.host import node, parse
from batchyard.doctor.host.facts import (
    Agent,
    CloudInit,
    ContainerRun,
    Disk,
    Docker,
    Gpu,
    HostFacts,
    Job,
    Metadata,
    NodeCheck,
    Process,
    Unit,
)
from batchyard.doctor.host.machine import Machine, Output

AGENT_URL = "http://127.0.0.1:51678/v1/metadata"
METADATA_URL = "http://169.254.169.254"
UNITS = (
    "ecs.service",
    "docker.service",
    "containerd.service",
    "cloud-final.service",
    "cloud-init.service",
    "nvidia-kmod-load.service",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    node.CHECK_UNIT,
)
NVIDIA_VENDOR = "0x10de"
MIB = 2**20
#: an image may have to be pulled first
CONTAINER_TIMEOUT_S = 900

T = TypeVar("T")


def gather(
    machine: Machine,
    gpu_container: str = "",
    agent_url: str = AGENT_URL,
    metadata_url: str = METADATA_URL,
) -> HostFacts:
    docker = _docker(machine)
    return HostFacts(
        machine.now_ms(),
        machine.host_name(),
        _uptime(machine),
        bus_gpus=_bus_gpus(machine),
        gpus=_gpus(machine),
        devices=tuple(machine.names("/dev/nvidia*")),
        docker=docker,
        daemon_json=_file(machine, "/etc/docker/daemon.json"),
        ecs_config=_file(machine, "/etc/ecs/ecs.config"),
        image_ecs_config=_file(machine, "/var/lib/ecs/ecs.config"),
        agent=_agent(machine, agent_url),
        agent_gpus=_agent_gpus(machine),
        units=_units(machine),
        jobs=_jobs(machine),
        processes=_processes(machine),
        cloud_init=_cloud_init(machine),
        disks=_disks(machine, docker),
        is_clock_synchronized=_clock(machine),
        metadata=_metadata(machine, metadata_url),
        gpu_errors=_gpu_errors(machine),
        node_check=_node_check(machine),
        node_log=_node_log(machine),
        container=_container(machine, gpu_container) if gpu_container else None,
    )


def _answer(
    machine: Machine, words: list[str], read: Callable[[str], T], timeout_s: float = 10
) -> T | Missing:
    """What a command printed, understood; or why it did not."""
    output = machine.run(words, timeout_s)
    if output is None:
        return Missing(f"{words[0]} is not installed")
    if output.exit_code:
        return Missing(f"{' '.join(words[:2])}: {_complaint(output)}")
    return read(output.stdout)


def _complaint(output: Output) -> str:
    lines = [
        line.strip() for line in (output.stderr + "\n" + output.stdout).splitlines() if line.strip()
    ]
    return lines[0][:200] if lines else f"exit code {output.exit_code}"


def _file(machine: Machine, path: str) -> str | Missing | None:
    try:
        return machine.read(path)
    except OSError as exc:
        return Missing(f"{path}: {exc.strerror or exc}; run as root")


def _uptime(machine: Machine) -> float | None:
    text = _file(machine, "/proc/uptime")
    words = text.split() if isinstance(text, str) else []
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


def _bus_gpus(machine: Machine) -> int | Missing:
    """NVIDIA's display and 3D controllers; its audio and USB functions are no GPUs."""
    devices = machine.names("/sys/bus/pci/devices/*/vendor")
    if not devices:
        return Missing("the PCI bus cannot be seen")
    found = 0
    for path in devices:
        vendor, kind = _file(machine, path), _file(machine, path.removesuffix("vendor") + "class")
        if isinstance(vendor, str) and isinstance(kind, str):
            found += vendor.strip() == NVIDIA_VENDOR and kind.strip().startswith(
                ("0x0300", "0x0302")
            )
    return found


def _gpus(machine: Machine) -> tuple[Gpu, ...] | Missing:
    return _answer(machine, ["nvidia-smi", "-L"], parse.parse_gpus, timeout_s=60)


def _docker(machine: Machine) -> Docker | Missing:
    found = _answer(machine, ["docker", "info", "--format", "{{json .}}"], parse.parse_docker)
    return Missing("docker info: the daemon does not answer") if found is None else found


def _agent(machine: Machine, url: str) -> Agent | Missing:
    text = machine.ask(url)
    return Missing(f"nobody answers at {url}") if text is None else parse.parse_agent(text)


def _agent_gpus(machine: Machine) -> tuple[str, ...] | Missing | None:
    text = _file(machine, "/var/lib/ecs/gpu/nvidia-gpu-info.json")
    return parse.parse_agent_gpus(text) if isinstance(text, str) else text


def _units(machine: Machine) -> tuple[Unit, ...] | Missing:
    return _answer(
        machine,
        ["systemctl", "show", "-p", "Id,LoadState,ActiveState,After", *UNITS],
        parse.parse_units,
    )


def _jobs(machine: Machine) -> tuple[Job, ...] | Missing:
    return _answer(
        machine, ["systemctl", "list-jobs", "--no-pager", "--no-legend"], parse.parse_jobs
    )


def _processes(machine: Machine) -> tuple[Process, ...] | Missing:
    return _answer(machine, ["ps", "-eo", "pid,ppid,args", "--no-headers"], parse.parse_processes)


def _cloud_init(machine: Machine) -> CloudInit | Missing | None:
    # Its exit code says what the status says: 1 for errors, 2 for warnings.
    output = machine.run(["cloud-init", "status", "--long"], 15)
    if output is None:
        return None
    log = _file(machine, "/var/log/cloud-init-output.log")
    tail = "\n".join(log.splitlines()[-8:]) if isinstance(log, str) else ""
    return parse.parse_cloud_init(output.stdout, tail) or Missing(
        f"cloud-init status: {_complaint(output)}"
    )


def _disks(machine: Machine, docker: Docker | Missing) -> tuple[Disk, ...] | Missing:
    paths = ["/", docker.root if isinstance(docker, Docker) else "/var/lib/docker", "/tmp"]
    found = [(path, machine.disk(path)) for path in dict.fromkeys(paths)]
    disks = tuple(Disk(path, size[0] // MIB, size[1] // MIB) for path, size in found if size)
    return disks or Missing("no disk can be seen")


def _clock(machine: Machine) -> bool | Missing:
    return _answer(
        machine,
        ["timedatectl", "show", "-p", "NTPSynchronized", "--value"],
        lambda text: text.strip() == "yes",
    )


def _metadata(machine: Machine, url: str) -> Metadata | Missing:
    token = machine.ask(
        f"{url}/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    if token is None:
        return Missing(f"nobody answers at {url}")
    headers = {"X-aws-ec2-metadata-token": token.strip()}
    names = ("instance-id", "instance-type", "ami-id")
    return Metadata(
        *(machine.ask(f"{url}/latest/meta-data/{name}", headers=headers) or "" for name in names)
    )


def _gpu_errors(machine: Machine) -> tuple[str, ...] | Missing:
    return _answer(machine, ["dmesg"], parse.parse_gpu_errors)


def _node_check(machine: Machine) -> NodeCheck | Missing | None:
    text = _file(machine, node.CHECK_FILE)
    return node.parse_check(text) if isinstance(text, str) else text


def _node_log(machine: Machine) -> tuple[str, ...] | Missing | None:
    text = _file(machine, node.LOG_FILE)
    return tuple(text.splitlines()[-node.LOG_LINES :]) if isinstance(text, str) else text


def _container(machine: Machine, image: str) -> ContainerRun:
    words = [
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "--gpus",
        "all",
        "--entrypoint",
        "nvidia-smi",
        image,
        "-L",
    ]
    output = machine.run(words, CONTAINER_TIMEOUT_S)
    if output is None:
        return ContainerRun(image, 127, "docker is not installed")
    return ContainerRun(image, output.exit_code, (output.stdout + output.stderr).strip()[:1000])
