"""Gather the facts about a machine. Only reads; runs a container only where one was requested."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from batchyard.doctor.facts import Missing
from batchyard.doctor.host import node, parse
from batchyard.doctor.host.facts import (
    Agent,
    BootScript,
    CloudInit,
    ContainerRun,
    Disk,
    Docker,
    HostFacts,
    Metadata,
    NodeCheck,
    Process,
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
_SHOW_UNITS = ["systemctl", "show", "-p", "Id,LoadState,ActiveState,After"]
_LIST_JOBS = ["systemctl", "list-jobs", "--no-pager", "--no-legend"]
#: a script of the user data, as cloud-init stores it
_BOOT_SCRIPT = re.compile(r"/var/lib/cloud/\S*(?:scripts|boothooks)/\S+")
_LIST_PROCESSES = ["ps", "-eo", "pid,ppid,args", "--no-headers"]
_SHOW_CLOCK = ["timedatectl", "show", "-p", "NTPSynchronized", "--value"]
_NVIDIA_VENDOR = "0x10de"
#: the PCI classes of display and 3D controllers; NVIDIA's audio and USB functions are no GPUs
_GPU_CLASSES = ("0x0300", "0x0302")
_MIB = 2**20
#: includes the time to pull the image
_CONTAINER_TIMEOUT_S = 900
_CLOUD_INIT_TIMEOUT_S = 15
_GPU_TIMEOUT_S = 60
_CLOUD_INIT_LOG_LINES = 8
_MAX_ERROR_LENGTH = 200
_MAX_CONTAINER_OUTPUT = 1000
#: the exit code of a shell for a program that does not exist
_NOT_FOUND = 127

T = TypeVar("T")


def gather(
    machine: Machine,
    gpu_container: str = "",
    agent_url: str = AGENT_URL,
    metadata_url: str = METADATA_URL,
) -> HostFacts:
    """Return the facts about a machine.

    ``gpu_container`` is the image of a container that runs nvidia-smi; empty for none.
    """
    docker = _docker(machine)
    processes = _parse_output(machine, _LIST_PROCESSES, parse.parse_processes)
    return HostFacts(
        machine.now_ms(),
        machine.host_name(),
        _uptime_s(machine),
        bus_gpus=_bus_gpus(machine),
        gpus=_parse_output(machine, ["nvidia-smi", "-L"], parse.parse_gpus, _GPU_TIMEOUT_S),
        devices=tuple(machine.names("/dev/nvidia*")),
        docker=docker,
        daemon_json=_file(machine, "/etc/docker/daemon.json"),
        ecs_config=_file(machine, "/etc/ecs/ecs.config"),
        image_ecs_config=_file(machine, "/var/lib/ecs/ecs.config"),
        agent=_ecs_agent(machine, agent_url),
        agent_gpus=_agent_gpus(machine),
        units=_parse_output(machine, [*_SHOW_UNITS, *UNITS], parse.parse_units),
        jobs=_parse_output(machine, _LIST_JOBS, parse.parse_jobs),
        processes=processes,
        boot_scripts=() if isinstance(processes, Missing) else _boot_scripts(machine, processes),
        cloud_init=_cloud_init(machine),
        disks=_disks(machine, docker),
        is_clock_synchronized=_parse_output(machine, _SHOW_CLOCK, parse.parse_clock),
        metadata=_metadata(machine, metadata_url),
        gpu_errors=_parse_output(machine, ["dmesg"], parse.parse_gpu_errors),
        node_check=_node_check(machine),
        node_log=_node_log(machine),
        container=_container(machine, gpu_container) if gpu_container else None,
    )


def _parse_output(
    machine: Machine, words: list[str], parse_text: Callable[[str], T], timeout_s: float = 10
) -> T | Missing:
    """Run a command and parse what it prints; Missing where it does not exist or fails."""
    output = machine.run(words, timeout_s)
    if output is None:
        return Missing(f"{words[0]} is not installed")
    if output.exit_code:
        return Missing(f"{' '.join(words[:2])}: {_error_of(output)}")
    return parse_text(output.stdout)


def _error_of(output: Output) -> str:
    """Return the first line that the command printed, or its exit code."""
    text = f"{output.stderr}\n{output.stdout}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_MAX_ERROR_LENGTH] if lines else f"exit code {output.exit_code}"


def _file(machine: Machine, path: str) -> str | Missing | None:
    """Return the text of a file; None where it does not exist, Missing where it is denied."""
    try:
        return machine.read(path)
    except OSError as exc:
        return Missing(f"{path}: {exc.strerror or exc}; run as root")


def _uptime_s(machine: Machine) -> float | None:
    text = _file(machine, "/proc/uptime")
    words = text.split() if isinstance(text, str) else []
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


def _bus_gpus(machine: Machine) -> int | Missing:
    vendor_files = machine.names("/sys/bus/pci/devices/*/vendor")
    if not vendor_files:
        return Missing("the PCI bus cannot be seen")
    return sum(_is_nvidia_gpu(machine, path) for path in vendor_files)


def _is_nvidia_gpu(machine: Machine, vendor_file: str) -> bool:
    vendor = _file(machine, vendor_file)
    pci_class = _file(machine, vendor_file.removesuffix("vendor") + "class")
    if not isinstance(vendor, str) or not isinstance(pci_class, str):
        return False
    return vendor.strip() == _NVIDIA_VENDOR and pci_class.strip().startswith(_GPU_CLASSES)


def _docker(machine: Machine) -> Docker | Missing:
    words = ["docker", "info", "--format", "{{json .}}"]
    docker = _parse_output(machine, words, parse.parse_docker)
    return Missing("docker info: the daemon does not answer") if docker is None else docker


def _ecs_agent(machine: Machine, url: str) -> Agent | Missing:
    text = machine.ask(url)
    return Missing(f"nobody answers at {url}") if text is None else parse.parse_agent(text)


def _agent_gpus(machine: Machine) -> tuple[str, ...] | Missing | None:
    text = _file(machine, "/var/lib/ecs/gpu/nvidia-gpu-info.json")
    return parse.parse_agent_gpus(text) if isinstance(text, str) else text


def _boot_scripts(machine: Machine, processes: tuple[Process, ...]) -> tuple[BootScript, ...]:
    """Return the scripts of cloud-init that processes run; none where they cannot be read."""
    paths = ((process.pid, _BOOT_SCRIPT.search(process.command)) for process in processes)
    texts = ((pid, path[0], _file(machine, path[0])) for pid, path in paths if path)
    return tuple(BootScript(pid, path, text) for pid, path, text in texts if isinstance(text, str))


def _cloud_init(machine: Machine) -> CloudInit | Missing | None:
    # The exit code repeats the status: 1 for errors, 2 for warnings.
    output = machine.run(["cloud-init", "status", "--long"], _CLOUD_INIT_TIMEOUT_S)
    if output is None:
        return None
    log = _file(machine, "/var/log/cloud-init-output.log")
    lines = log.splitlines() if isinstance(log, str) else []
    status = parse.parse_cloud_init(output.stdout, "\n".join(lines[-_CLOUD_INIT_LOG_LINES:]))
    return status or Missing(f"cloud-init status: {_error_of(output)}")


def _disks(machine: Machine, docker: Docker | Missing) -> tuple[Disk, ...] | Missing:
    paths = ["/", docker.root if isinstance(docker, Docker) else "/var/lib/docker", "/tmp"]
    sizes = [(path, machine.disk(path)) for path in dict.fromkeys(paths)]
    disks = tuple(Disk(path, size[0] // _MIB, size[1] // _MIB) for path, size in sizes if size)
    return disks or Missing("no disk can be seen")


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


def _node_check(machine: Machine) -> NodeCheck | Missing | None:
    text = _file(machine, node.CHECK_FILE)
    return node.parse_check(text) if isinstance(text, str) else text


def _node_log(machine: Machine) -> tuple[str, ...] | Missing | None:
    text = _file(machine, node.LOG_FILE)
    return tuple(text.splitlines()[-node.LOG_LINES :]) if isinstance(text, str) else text


def _container(machine: Machine, image: str) -> ContainerRun:
    options = ["--rm", "--network", "none", "--gpus", "all", "--entrypoint", "nvidia-smi"]
    output = machine.run(["docker", "run", *options, image, "-L"], _CONTAINER_TIMEOUT_S)
    if output is None:
        return ContainerRun(image, _NOT_FOUND, "docker is not installed")
    text = (output.stdout + output.stderr).strip()
    return ContainerRun(image, output.exit_code, text[:_MAX_CONTAINER_OUTPUT])
