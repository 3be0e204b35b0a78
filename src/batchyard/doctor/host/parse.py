"""Parse the output of commands on a host into facts. Lines that are not understood are skipped."""

from __future__ import annotations

import json
import re
from typing import Any

from batchyard.doctor.host.facts import Agent, CloudInit, Docker, Gpu, Job, Process, Unit

_GPU = re.compile(r"GPU \d+: (.*?) \(UUID: (GPU-[0-9a-fA-F-]+)\)")
_JOB = re.compile(
    r"^\s*\d+\s+(\S+)\s+(start|restart|stop|try-restart|verify-active|reload)\s+(running|waiting)",
    re.M,
)
_PROCESS = re.compile(r"^\s*(\d+)\s+(\d+)\s+(.+)$", re.M)
#: command lines of processes that can hold up a boot
_BOOT_PROCESS = re.compile(
    r"systemctl|/service\b|^service\b|cloud-init|initctl|part-\d|/cloud/instance"
)
_GPU_ERROR = re.compile(r".*NVRM: (?:Xid|RmInitAdapter failed).*")
_MAX_GPU_ERRORS = 5
_MAX_DETAIL_LENGTH = 400


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Parse `nvidia-smi -L`."""
    return tuple(Gpu(uuid, name) for name, uuid in _GPU.findall(text))


def parse_docker(text: str) -> Docker | None:
    """Parse `docker info --format '{{json .}}'`; None where the daemon did not answer."""
    info = _parse_object(text)
    if not info.get("ServerVersion"):
        return None
    runtimes = info.get("Runtimes")
    return Docker(
        str(info["ServerVersion"]),
        str(info.get("DefaultRuntime") or ""),
        tuple(sorted(map(str, runtimes))) if isinstance(runtimes, dict) else (),
        str(info.get("DockerRootDir") or "/var/lib/docker"),
    )


def parse_agent(text: str) -> Agent:
    """Parse the answer of the ECS agent's metadata endpoint."""
    metadata = _parse_object(text)
    return Agent(
        str(metadata.get("Cluster") or ""),
        str(metadata.get("ContainerInstanceArn") or ""),
        str(metadata.get("Version") or ""),
    )


def _parse_object(text: str) -> dict[str, Any]:
    """Return a JSON object; empty where the text is something else."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def parse_agent_gpus(text: str) -> tuple[str, ...]:
    """Return the GPU ids in nvidia-gpu-info.json, whose keys differ between agent versions."""
    return tuple(dict.fromkeys(re.findall(r"GPU-[0-9a-fA-F-]{8,}", text)))


def parse_jobs(text: str) -> tuple[Job, ...]:
    """Parse `systemctl list-jobs`."""
    return tuple(Job(unit, kind, state) for unit, kind, state in _JOB.findall(text))


def parse_units(text: str) -> tuple[Unit, ...]:
    """Parse `systemctl show -p Id,LoadState,ActiveState,After UNIT...`: a block for each unit."""
    units = []
    for block in text.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if properties.get("Id"):
            units.append(
                Unit(
                    properties["Id"],
                    properties.get("LoadState", ""),
                    properties.get("ActiveState", ""),
                    tuple(properties.get("After", "").split()),
                )
            )
    return tuple(units)


def parse_processes(text: str) -> tuple[Process, ...]:
    """Parse `ps -eo pid,ppid,args`; return the processes that can hold up a boot."""
    return tuple(
        Process(int(pid), int(parent), command)
        for pid, parent, command in _PROCESS.findall(text)
        if _BOOT_PROCESS.search(command)
    )


def parse_clock(text: str) -> bool:
    """Parse `timedatectl show -p NTPSynchronized --value`."""
    return text.strip() == "yes"


def parse_cloud_init(text: str, output: str = "") -> CloudInit | None:
    """Parse `cloud-init status --long`; None where it has no status. ``output`` is its log."""
    status = re.search(r"^status:\s*(.+)$", text, re.M)
    if not status:
        return None
    detail = re.search(r"^(?:detail|errors):\s*(.*(?:\n(?!\w+:).*)*)", text, re.M)
    extended = re.search(r"^extended_status:\s*(.+)$", text, re.M)
    is_extended = extended and extended[1].startswith(("degraded", "error"))
    return CloudInit(
        (extended[1] if extended and is_extended else status[1]).strip(),
        " ".join(detail[1].split())[:_MAX_DETAIL_LENGTH] if detail else "",
        output,
    )


def parse_gpu_errors(text: str) -> tuple[str, ...]:
    """Return the last lines of `dmesg` in which the GPU driver reports errors."""
    return tuple(line.strip() for line in _GPU_ERROR.findall(text))[-_MAX_GPU_ERRORS:]


def find_setting(text: str | None, name: str) -> str | None:
    """Return the value of the last NAME=value in an ecs.config; None where it is not set."""
    values = re.findall(
        rf"^[ \t]*(?:export[ \t]+)?{re.escape(name)}[ \t]*=[ \t]*(.*?)[ \t]*$", text or "", re.M
    )
    return values[-1].strip("\"'") if values else None
