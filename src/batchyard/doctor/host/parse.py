"""The output of commands -> facts. Pure: text in, values out; what is not understood is left out."""

from __future__ import annotations

import json
import re

from batchyard.doctor.host.facts import Agent, CloudInit, Docker, Gpu, Job, Process, Unit

_GPU = re.compile(r"GPU \d+: (.*?) \(UUID: (GPU-[0-9a-fA-F-]+)\)")
_JOB = re.compile(
    r"^\s*\d+\s+(\S+)\s+(start|restart|stop|try-restart|verify-active|reload)\s+(running|waiting)",
    re.M,
)
_PROCESS = re.compile(r"^\s*(\d+)\s+(\d+)\s+(.+)$", re.M)
#: processes that can hold up a boot
_TELLING = re.compile(r"systemctl|/service\b|^service\b|cloud-init|initctl|part-\d|/cloud/instance")
_XID = re.compile(r".*NVRM: (?:Xid|RmInitAdapter failed).*")


def gpus(text: str) -> tuple[Gpu, ...]:
    return tuple(Gpu(uuid, name) for name, uuid in _GPU.findall(text))


def docker(text: str) -> Docker | None:
    """`docker info --format '{{json .}}'`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not value.get("ServerVersion"):
        return None
    runtimes = value.get("Runtimes")
    return Docker(
        str(value["ServerVersion"]),
        str(value.get("DefaultRuntime") or ""),
        tuple(sorted(map(str, runtimes))) if isinstance(runtimes, dict) else (),
        str(value.get("DockerRootDir") or "/var/lib/docker"),
    )


def agent(text: str) -> Agent:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = {}
    if not isinstance(value, dict):
        value = {}
    return Agent(
        str(value.get("Cluster") or ""),
        str(value.get("ContainerInstanceArn") or ""),
        str(value.get("Version") or ""),
    )


def agent_gpus(text: str) -> tuple[str, ...]:
    """The file's keys have changed over time; what a GPU's id looks like has not."""
    return tuple(dict.fromkeys(re.findall(r"GPU-[0-9a-fA-F-]{8,}", text)))


def jobs(text: str) -> tuple[Job, ...]:
    return tuple(Job(unit, kind, state) for unit, kind, state in _JOB.findall(text))


def units(text: str) -> tuple[Unit, ...]:
    """`systemctl show -p Id,LoadState,ActiveState,After UNIT...`: a block each."""
    found = []
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("Id"):
            after = tuple(values.get("After", "").split())
            found.append(
                Unit(
                    values["Id"], values.get("LoadState", ""), values.get("ActiveState", ""), after
                )
            )
    return tuple(found)


def processes(text: str) -> tuple[Process, ...]:
    """`ps -eo pid,ppid,args`, those that could hold up a boot."""
    every = [
        Process(int(pid), int(parent), command) for pid, parent, command in _PROCESS.findall(text)
    ]
    return tuple(process for process in every if _TELLING.search(process.command))


def cloud_init(text: str, output: str = "") -> CloudInit | None:
    """`cloud-init status --long`."""
    status = re.search(r"^status:\s*(.+)$", text, re.M)
    if not status:
        return None
    detail = re.search(r"^(?:detail|errors):\s*(.*(?:\n(?!\w+:).*)*)", text, re.M)
    extended = re.search(r"^extended_status:\s*(.+)$", text, re.M)
    word = extended[1] if extended and extended[1].startswith(("degraded", "error")) else status[1]
    return CloudInit(word.strip(), " ".join(detail[1].split())[:400] if detail else "", output)


def gpu_errors(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in _XID.findall(text))[-5:]


def setting(text: str | None, name: str) -> str | None:
    """The last NAME=value of an ecs.config."""
    found = re.findall(
        rf"^[ \t]*(?:export[ \t]+)?{re.escape(name)}[ \t]*=[ \t]*(.*?)[ \t]*$", text or "", re.M
    )
    return found[-1].strip("\"'") if found else None
