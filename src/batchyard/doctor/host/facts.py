"""What is known about a host: values, nothing else. A part that could not be read is a ``Missing``."""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.doctor.facts import NOT_GATHERED, Missing


@dataclass(frozen=True, slots=True)
class Gpu:
    uuid: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Docker:
    version: str
    default_runtime: str = ""
    runtimes: tuple[str, ...] = ()
    root: str = "/var/lib/docker"


@dataclass(frozen=True, slots=True)
class Agent:
    """What the ECS agent says of itself on port 51678."""

    cluster: str = ""
    #: empty where it has not registered
    instance_arn: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    #: loaded, not-found, masked
    load: str = "loaded"
    #: active, activating, inactive, failed
    active: str = "active"
    #: what it is ordered after
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A line of `systemctl list-jobs`."""

    unit: str
    type: str = "start"
    #: running or waiting
    state: str = "waiting"


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    command: str


@dataclass(frozen=True, slots=True)
class CloudInit:
    #: done, running, error, degraded, disabled, not run
    status: str
    detail: str = ""
    #: the last lines of its output, where it failed
    output: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    total_mib: int
    free_mib: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the metadata service answered."""

    instance_id: str = ""
    instance_type: str = ""
    image_id: str = ""


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What the check of a node of ours found, before ECS may start."""

    is_ok: bool
    #: where it stopped: user-data, driver, docker, image, container
    stage: str = ""
    reason: str = ""
    time: str = ""


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """`nvidia-smi -L` in a container."""

    image: str
    exit_code: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class HostFacts:
    taken_ms: int
    name: str = ""
    uptime_s: float | None = None
    #: NVIDIA devices on the PCI bus
    bus_gpus: int | Missing = NOT_GATHERED
    #: what nvidia-smi lists
    gpus: tuple[Gpu, ...] | Missing = NOT_GATHERED
    #: /dev/nvidia0, /dev/nvidiactl ...
    devices: tuple[str, ...] | Missing = NOT_GATHERED
    docker: Docker | Missing = NOT_GATHERED
    #: the text of /etc/docker/daemon.json; None where there is none
    daemon_json: str | Missing | None = None
    #: the texts of /etc/ecs/ecs.config and /var/lib/ecs/ecs.config
    ecs_config: str | Missing | None = None
    image_ecs_config: str | Missing | None = None
    agent: Agent | Missing = NOT_GATHERED
    #: the ids in /var/lib/ecs/gpu/nvidia-gpu-info.json; None where there is no such file
    agent_gpus: tuple[str, ...] | Missing | None = None
    units: tuple[Unit, ...] | Missing = NOT_GATHERED
    jobs: tuple[Job, ...] | Missing = NOT_GATHERED
    processes: tuple[Process, ...] | Missing = NOT_GATHERED
    cloud_init: CloudInit | Missing | None = None
    disks: tuple[Disk, ...] | Missing = NOT_GATHERED
    is_clock_synchronized: bool | Missing = NOT_GATHERED
    metadata: Metadata | Missing = NOT_GATHERED
    #: lines of the kernel's log in which the GPU driver complains
    gpu_errors: tuple[str, ...] | Missing = NOT_GATHERED
    #: what our own nodes write down; None where there is no such file
    node_check: NodeCheck | Missing | None = None
    #: the last lines
    node_log: tuple[str, ...] | Missing | None = None
    container: ContainerRun | None = None
