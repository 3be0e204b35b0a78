"""Facts about a host, as plain values. A part that could not be read is a ``Missing``."""

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
    """The answer of the ECS agent on port 51678."""

    cluster: str = ""
    #: empty where the agent has not registered
    instance_arn: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit."""

    name: str
    #: loaded, not-found or masked
    load: str = "loaded"
    #: active, activating, inactive or failed
    active: str = "active"
    #: the units that this unit is ordered after
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A systemd job: a line of `systemctl list-jobs`."""

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
class BootScript:
    """A script of the user data that a process runs."""

    pid: int
    path: str
    script: str


@dataclass(frozen=True, slots=True)
class CloudInit:
    #: done, running, error, degraded, disabled or not run
    status: str
    detail: str = ""
    #: the last lines of its log
    output: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    total_mib: int
    free_mib: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """The answer of the instance metadata service."""

    instance_id: str = ""
    instance_type: str = ""
    image_id: str = ""


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """The result of the GPU check that a node of ours runs before ECS starts."""

    is_ok: bool
    #: where the check stopped: user-data, driver, docker, image or container
    stage: str = ""
    reason: str = ""
    time: str = ""


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """The output of `nvidia-smi -L` in a container."""

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
    #: the GPUs that nvidia-smi lists
    gpus: tuple[Gpu, ...] | Missing = NOT_GATHERED
    #: /dev/nvidia0, /dev/nvidiactl ...
    devices: tuple[str, ...] | Missing = NOT_GATHERED
    docker: Docker | Missing = NOT_GATHERED
    #: the text of /etc/docker/daemon.json; None where the file does not exist
    daemon_json: str | Missing | None = None
    #: the text of /etc/ecs/ecs.config; None where the file does not exist
    ecs_config: str | Missing | None = None
    #: the text of /var/lib/ecs/ecs.config, which the image brings
    image_ecs_config: str | Missing | None = None
    agent: Agent | Missing = NOT_GATHERED
    #: the ids in /var/lib/ecs/gpu/nvidia-gpu-info.json; None where the file does not exist
    agent_gpus: tuple[str, ...] | Missing | None = None
    units: tuple[Unit, ...] | Missing = NOT_GATHERED
    jobs: tuple[Job, ...] | Missing = NOT_GATHERED
    processes: tuple[Process, ...] | Missing = NOT_GATHERED
    #: the scripts of cloud-init that still run
    boot_scripts: tuple[BootScript, ...] = ()
    cloud_init: CloudInit | Missing | None = None
    disks: tuple[Disk, ...] | Missing = NOT_GATHERED
    is_clock_synchronized: bool | Missing = NOT_GATHERED
    metadata: Metadata | Missing = NOT_GATHERED
    #: lines of the kernel's log with errors of the GPU driver
    gpu_errors: tuple[str, ...] | Missing = NOT_GATHERED
    #: None where the node did not write the file
    node_check: NodeCheck | Missing | None = None
    #: the last lines of the log of our user data; None where the file does not exist
    node_log: tuple[str, ...] | Missing | None = None
    #: None where no container was requested
    container: ContainerRun | None = None
