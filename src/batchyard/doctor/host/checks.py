"""The checks of a host, and the table that lists them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable

from batchyard.doctor import catalogue
from batchyard.doctor.facts import CannotSee, Missing, known
from batchyard.doctor.finding import Finding, Kind, Report, Unseen, in_order
from batchyard.doctor.host import deadlock, node
from batchyard.doctor.host.facts import Disk, Docker, HostFacts, Metadata, NodeCheck, Unit
from batchyard.doctor.host.kinds import (
    AGENT_IN_NO_CLUSTER,
    AGENT_MISSED_GPUS,
    AGENT_NOT_ANSWERING,
    BOOT_DEADLOCK,
    CLOCK_NOT_SYNCHRONIZED,
    CLOUD_INIT_FAILED,
    CONTAINER_SEES_NO_GPU,
    DAEMON_JSON_MALFORMED,
    DEVICE_FILES_MISSING,
    DISK_NEARLY_FULL,
    DOCKER_NOT_ANSWERING,
    DRIVER_NOT_ANSWERING,
    FABRIC_MANAGER_NOT_RUNNING,
    GPU_ERRORS,
    GPU_SUPPORT_OFF,
    METADATA_NOT_ANSWERING,
    NODE_GPU_CHECK_FAILED,
    NODE_USER_DATA_UNFINISHED,
    NVIDIA_RUNTIME_MISSING,
    UNIT_FAILED,
)
from batchyard.doctor.host.parse import setting
from batchyard.units import show_duration, show_memory

#: a boot takes no longer
BOOT_S = 15 * 60
MIN_FREE_MIB = 2048
MIN_FREE_SHARE = 0.05
SMALL_DISK_SHARE = 0.25
TRUE = ("true", "1", "yes")

Found = list[Finding] | None


def judge(facts: HostFacts) -> Report:
    findings: list[Finding] = []
    right: list[Kind] = []
    unseen: list[Unseen] = []
    for kind, look in CHECKS:
        try:
            found = look(facts, kind)
        except CannotSee as exc:
            unseen.append(Unseen(kind, exc.missing.why, exc.missing.action))
            continue
        if found is not None:
            findings += found
            right += [] if found else [kind]
    return Report(f"host {facts.name}".rstrip(), in_order(findings), tuple(right), tuple(unseen))


# -- what sort of machine it is -----------------------------------------------------------------------------------


def is_node(facts: HostFacts) -> bool:
    """Whether the machine is meant to be a node of ECS."""
    unit = _unit(facts, "ecs.service")
    return (unit is not None and unit.load != "not-found") or isinstance(facts.ecs_config, str)


def has_gpus(facts: HostFacts) -> bool:
    if isinstance(facts.bus_gpus, int) and facts.bus_gpus:
        return True
    return _instance_gpus(facts) > 0 or (isinstance(facts.gpus, tuple) and bool(facts.gpus))


def _instance_gpus(facts: HostFacts) -> int:
    metadata = facts.metadata
    known_type = (
        catalogue.TYPES.get(metadata.instance_type) if isinstance(metadata, Metadata) else None
    )
    return known_type.gpus if known_type else 0


def _unit(facts: HostFacts, name: str) -> Unit | None:
    return (
        next((u for u in facts.units if u.name == name), None)
        if isinstance(facts.units, tuple)
        else None
    )


def _gpu_count(facts: HostFacts) -> int:
    on_bus = facts.bus_gpus if isinstance(facts.bus_gpus, int) else 0
    return on_bus or _instance_gpus(facts)


# -- boot ---------------------------------------------------------------------------------------------------------


def boot_deadlock(facts: HostFacts, kind: Kind) -> Found:
    circles = deadlock.find(known(facts.jobs), known(facts.units), known(facts.processes))
    return [
        Finding(
            kind,
            f"{circle.unit} waits for {circle.path[-1]}, which runs a script that waits for {circle.unit}",
            (
                " -> ".join((*circle.path, f"process {circle.process.pid}", circle.unit)),
                f"process {circle.process.pid}: {circle.process.command[:120]}",
            ),
            (
                f"kill {circle.process.pid}   # lets this node go on",
                "batchyard doctor userdata FILE   # names the line; write `systemctl ... --no-block`, or leave it out",
            ),
        )
        for circle in circles
    ]


def cloud_init(facts: HostFacts, kind: Kind) -> Found:
    if facts.cloud_init is None:
        return None
    state = known(facts.cloud_init)
    tail = tuple(f"output: {line[:160]}" for line in state.output.splitlines()[-3:] if line.strip())
    if state.status.startswith(("error", "degraded")):
        cause = "cloud-init failed: the user data did not do all it should"
    elif state.status.startswith("running") and (facts.uptime_s or 0) > BOOT_S:
        cause = f"cloud-init has been running for {show_duration(facts.uptime_s or 0)}: the user data does not end"
    else:
        return []
    evidence = (f"status: {state.status}" + (f"; {state.detail}" if state.detail else ""), *tail)
    remedy = (
        "less /var/log/cloud-init-output.log",
        "batchyard doctor userdata /var/lib/cloud/instance/user-data.txt",
    )
    return [Finding(kind, cause, evidence, remedy)]


def failed_units(facts: HostFacts, kind: Kind) -> Found:
    # That a node of ours failed its own check is said with the reason, by that finding.
    said = node.CHECK_UNIT if isinstance(facts.node_check, NodeCheck) else ""
    failed = [
        unit.name for unit in known(facts.units) if unit.active == "failed" and unit.name != said
    ]
    return [
        Finding(
            kind,
            f"{name} has failed",
            ("ActiveState failed",),
            (f"systemctl status {name}", f"journalctl -b -u {name} -n 50 --no-pager"),
        )
        for name in failed
    ]


# -- GPUs ---------------------------------------------------------------------------------------------------------


def driver(facts: HostFacts, kind: Kind) -> Found:
    if not has_gpus(facts):
        return None
    gpus, count = facts.gpus, _gpu_count(facts)
    if isinstance(gpus, Missing):
        cause, evidence = "the NVIDIA driver does not answer", gpus.why
    elif len(gpus) < count:
        cause, evidence = (
            "the NVIDIA driver sees only some of the GPUs",
            f"nvidia-smi lists {len(gpus)} of {count}",
        )
    else:
        return []
    remedy = (
        "nvidia-smi; journalctl -b -k | grep -i nvrm; systemctl status nvidia-kmod-load",
        "use the image type ECS_AL2023_NVIDIA, whose driver fits its kernel",
    )
    return [Finding(kind, cause, (evidence, f"GPUs on this machine: {count}"), remedy)]


def device_files(facts: HostFacts, kind: Kind) -> Found:
    if not has_gpus(facts) or not isinstance(facts.gpus, tuple) or not facts.gpus:
        return None
    there = [d for d in known(facts.devices) if d.removeprefix("/dev/nvidia").isdigit()]
    lacking = [d for d in ("/dev/nvidiactl", "/dev/nvidia-uvm") if d not in known(facts.devices)]
    if len(there) >= len(facts.gpus) and not lacking:
        return []
    evidence: tuple[str, ...] = (f"{len(there)} device files for {len(facts.gpus)} GPUs",)
    evidence += (f"missing: {', '.join(lacking)}",) if lacking else ()
    remedy = (
        "nvidia-modprobe -c 0 -u   # makes them",
        "systemctl restart --no-block ecs   # counts them again",
    )
    return [Finding(kind, "GPUs have no device files: ECS registers none", evidence, remedy)]


def runtime(facts: HostFacts, kind: Kind) -> Found:
    if not has_gpus(facts) or isinstance(facts.docker, Missing):
        return None
    wanted = setting(_text(facts.ecs_config), "ECS_NVIDIA_RUNTIME") or "nvidia"
    if wanted in facts.docker.runtimes:
        return []
    return [
        Finding(
            kind,
            f"Docker has no runtime named {wanted}: GPU containers cannot be started",
            (f"runtimes: {', '.join(facts.docker.runtimes) or 'none'}",),
            (
                "dnf install -y nvidia-container-toolkit && nvidia-ctk runtime configure --runtime=docker",
                "systemctl restart --no-block docker",
            ),
        )
    ]


def gpu_support(facts: HostFacts, kind: Kind) -> Found:
    """/etc wins over what the image wrote."""
    if not has_gpus(facts) or not is_node(facts):
        return None
    own, image = known(facts.ecs_config), known(facts.image_ecs_config)
    name = "ECS_ENABLE_GPU_SUPPORT"
    values = {
        "/etc/ecs/ecs.config": setting(own, name),
        "/var/lib/ecs/ecs.config": setting(image, name),
    }
    value = next((v for v in values.values() if v is not None), None)
    if value is not None and value.lower() in TRUE:
        return []
    evidence = tuple(
        f"{path}: {name}={v if v is not None else ' not set'}" for path, v in values.items()
    )
    remedy = (f"echo {name}=true >> /etc/ecs/ecs.config", "systemctl restart --no-block ecs")
    return [Finding(kind, "the ECS agent is not told to offer its GPUs", evidence, remedy)]


def registered_gpus(facts: HostFacts, kind: Kind) -> Found:
    """The agent counts once, when it starts: a driver that comes later is too late."""
    if (
        not is_node(facts)
        or not isinstance(facts.gpus, tuple)
        or not facts.gpus
        or isinstance(facts.agent, Missing)
    ):
        return None
    there = () if facts.agent_gpus is None else known(facts.agent_gpus)
    lost = [gpu.uuid for gpu in facts.gpus if gpu.uuid not in there]
    if not lost:
        return []
    return [
        Finding(
            kind,
            "the ECS agent knows fewer GPUs than the driver: it registered without them",
            (
                f"nvidia-gpu-info.json has {len(there)} of {len(facts.gpus)}",
                f"not there: {lost[0]}",
            ),
            (
                "grep -i gpu /var/log/ecs/ecs-init.log",
                "systemctl restart --no-block ecs   # counts again",
            ),
        )
    ]


def fabric_manager(facts: HostFacts, kind: Kind) -> Found:
    metadata = facts.metadata
    family = catalogue.family_of(metadata.instance_type) if isinstance(metadata, Metadata) else ""
    if family not in catalogue.NVSWITCH or _gpu_count(facts) < 4:
        return None
    known(facts.units)
    unit = _unit(facts, "nvidia-fabricmanager.service")
    if unit is not None and unit.active == "active":
        return []
    state = unit.active if unit and unit.load == "loaded" else "not installed"
    return [
        Finding(
            kind,
            "fabric manager does not run: CUDA fails to start though nvidia-smi lists the GPUs",
            (
                f"{family} joins its {_gpu_count(facts)} GPUs by a switch",
                f"nvidia-fabricmanager: {state}",
            ),
            ("systemctl enable --now nvidia-fabricmanager",),
        )
    ]


def gpu_errors(facts: HostFacts, kind: Kind) -> Found:
    if not has_gpus(facts):
        return None
    errors = known(facts.gpu_errors)
    if not errors:
        return []
    remedy = (
        "nvidia-smi -q -d ECC,PAGE_RETIREMENT",
        "end the instance: a GPU that reports Xid errors seldom recovers",
    )
    return [
        Finding(
            kind, "the GPU driver has reported errors", tuple(e[:160] for e in errors[-3:]), remedy
        )
    ]


def container(facts: HostFacts, kind: Kind) -> Found:
    """The last word: whatever the rest says, this is what a job meets."""
    run = facts.container
    if run is None:
        return None
    seen = run.output.count("GPU ") if run.exit_code == 0 else 0
    if run.exit_code == 0 and seen:
        return []
    return [
        Finding(
            kind,
            "a container does not see the GPUs",
            (f"{run.image}: exit code {run.exit_code}, {seen} GPUs", *run.output.splitlines()[:2]),
            ("the findings above say why; with none, try an image that is built on nvidia/cuda",),
        )
    ]


# -- Docker, agent, the rest --------------------------------------------------------------------------------------


def docker(facts: HostFacts, kind: Kind) -> Found:
    if isinstance(facts.docker, Docker):
        return []
    unit = _unit(facts, "docker.service")
    if not is_node(facts) and (unit is None or unit.load == "not-found"):
        return None  # a machine that is not meant to run containers
    evidence = (facts.docker.why,) + ((f"docker.service is {unit.active}",) if unit else ())
    remedy = ("systemctl status docker", "journalctl -b -u docker -n 50 --no-pager")
    return [Finding(kind, "Docker does not answer: no container can be started", evidence, remedy)]


def daemon_json(facts: HostFacts, kind: Kind) -> Found:
    text = facts.daemon_json
    if text is None:
        return None
    try:
        json.loads(known(text))
    except (ValueError, RecursionError) as exc:
        remedy = (
            "python3 -m json.tool /etc/docker/daemon.json",
            "systemctl restart --no-block docker",
        )
        return [
            Finding(
                kind,
                "daemon.json is not JSON: Docker does not start with it",
                (str(exc)[:160],),
                remedy,
            )
        ]
    return []


def agent(facts: HostFacts, kind: Kind) -> Found:
    if not is_node(facts):
        return None
    if not isinstance(facts.agent, Missing):
        return []
    unit = _unit(facts, "ecs.service")
    evidence = (facts.agent.why,) + ((f"ecs.service is {unit.active}",) if unit else ())
    remedy = (
        "tail -50 /var/log/ecs/ecs-init.log /var/log/ecs/ecs-agent.log",
        "systemctl start --no-block ecs",
    )
    return [
        Finding(kind, "the ECS agent does not answer: the node has not joined", evidence, remedy)
    ]


def cluster(facts: HostFacts, kind: Kind) -> Found:
    if not is_node(facts):
        return None
    said = known(facts.agent)
    wanted = setting(_text(facts.ecs_config), "ECS_CLUSTER")
    if said.instance_arn and (
        wanted is None or said.cluster in (wanted, wanted.rsplit("/", 1)[-1])
    ):
        return []
    if not said.instance_arn:
        cause = "the ECS agent runs, but has not registered with a cluster"
    else:
        cause = f"the ECS agent joined the cluster {said.cluster}, not the one in ecs.config"
    evidence = (
        f"cluster {said.cluster or 'none'}",
        f"ECS_CLUSTER={wanted if wanted is not None else ' not set'}",
    )
    remedy = (
        "grep -iE 'error|denied|unable' /var/log/ecs/ecs-agent.log | tail",
        "check the instance profile, and the way to the ECS endpoints (batchyard doctor env NAME)",
    )
    return [Finding(kind, cause, evidence, remedy)]


def disks(facts: HostFacts, kind: Kind) -> Found:
    full = [d for d in known(facts.disks) if _is_full(d)]
    return [
        Finding(
            kind,
            f"the disk of {disk.path} is nearly full: images cannot be pulled, logs cannot be written",
            (f"{show_memory(disk.free_mib)} of {show_memory(disk.total_mib)} free",),
            (
                "docker system df; docker image prune -a",
                "give the launch template a larger /dev/xvda",
            ),
        )
        for disk in full[:1]
    ]


def _is_full(disk: Disk) -> bool:
    # A /tmp in memory may be small as a whole; what counts then is its share.
    share = disk.free_mib / max(1, disk.total_mib)
    return share < MIN_FREE_SHARE or (disk.free_mib < MIN_FREE_MIB and share < SMALL_DISK_SHARE)


def clock(facts: HostFacts, kind: Kind) -> Found:
    if known(facts.is_clock_synchronized):
        return []
    remedy = ("chronyc tracking; systemctl status chronyd",)
    cause = "the clock is not synchronized: AWS refuses requests that are signed five minutes off"
    return [Finding(kind, cause, ("NTPSynchronized=no",), remedy)]


def metadata(facts: HostFacts, kind: Kind) -> Found:
    if not is_node(facts):
        return None
    if not isinstance(facts.metadata, Missing):
        return []
    cause = "the metadata service does not answer: the agent gets no credentials"
    remedy = ("aws ec2 modify-instance-metadata-options --instance-id ID --http-endpoint enabled "
              "--http-put-response-hop-limit 2",)  # fmt: skip
    return [Finding(kind, cause, (facts.metadata.why,), remedy)]


def _text(part: str | Missing | None) -> str | None:
    return part if isinstance(part, str) else None


CHECKS: tuple[tuple[Kind, Callable[[HostFacts, Kind], Found]], ...] = (
    (BOOT_DEADLOCK, boot_deadlock),
    (DRIVER_NOT_ANSWERING, driver),
    (DEVICE_FILES_MISSING, device_files),
    (DOCKER_NOT_ANSWERING, docker),
    (NVIDIA_RUNTIME_MISSING, runtime),
    (DAEMON_JSON_MALFORMED, daemon_json),
    (AGENT_NOT_ANSWERING, agent),
    (AGENT_IN_NO_CLUSTER, cluster),
    (GPU_SUPPORT_OFF, gpu_support),
    (AGENT_MISSED_GPUS, registered_gpus),
    (CLOUD_INIT_FAILED, cloud_init),
    (DISK_NEARLY_FULL, disks),
    (CLOCK_NOT_SYNCHRONIZED, clock),
    (METADATA_NOT_ANSWERING, metadata),
    (CONTAINER_SEES_NO_GPU, container),
    (FABRIC_MANAGER_NOT_RUNNING, fabric_manager),
    (UNIT_FAILED, failed_units),
    (GPU_ERRORS, gpu_errors),
    (NODE_GPU_CHECK_FAILED, node.gpu_check),
    (NODE_USER_DATA_UNFINISHED, node.user_data),
)
