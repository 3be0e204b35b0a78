"""What a node of ours wrote down about itself: its GPU check, and the log of its user data. Pure.

The user data of our templates checks, before ECS may start, that a container sees the node's GPUs, and leaves the
verdict in gpu-check.json. A node without these files is not one of ours, and is not asked about them.
"""

from __future__ import annotations

import json

from batchyard.doctor.facts import Missing, known
from batchyard.doctor.finding import Finding, Kind
from batchyard.doctor.host.facts import HostFacts, NodeCheck

CHECK_FILE = "/var/lib/batchyard/gpu-check.json"
LOG_FILE = "/var/log/batchyard-node.log"
CHECK_UNIT = "batchyard-gpu-check.service"
#: lines of the log that are kept, and that are shown
LOG_LINES = 40
_SHOWN = 4
_BEGINS, _ENDS = "user data begins", "user data ends"
#: how the user data speaks of what it could not do
_TROUBLE = ("nvidia-smi still fails", "left as it is", "no cluster is known")
#: a boot takes no longer
_BOOT_S = 15 * 60

#: where the check stopped -> what that means, and where to look
_STAGES = {
    "user-data": ("its user data could not finish", f"less {LOG_FILE}"),
    "driver": ("its NVIDIA driver does not answer", "nvidia-smi; journalctl -b -k | grep -i nvrm"),
    "docker": (
        "its Docker does not answer",
        "systemctl status docker; journalctl -b -u docker -n 50 --no-pager",
    ),
    "image": ("the image for the check could not be made", "docker info; df -h /var/lib/docker"),
    "container": (
        "a container on it does not see its GPUs",
        "docker info | grep -i runtime; cat /etc/docker/daemon.json",
    ),
}


def parse_check(text: str) -> NodeCheck | Missing:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("ok"), bool):
        return Missing(f"{CHECK_FILE} holds no verdict")
    return NodeCheck(
        value["ok"], *(str(value.get(name, "")) for name in ("stage", "reason", "time"))
    )


def gpu_check(facts: HostFacts, kind: Kind) -> list[Finding] | None:
    if facts.node_check is None:
        return None
    check = known(facts.node_check)
    if check.is_ok:
        return []
    meaning, look = _STAGES.get(check.stage, ("the check of its GPUs failed", f"less {LOG_FILE}"))
    reason = [line.strip() for line in check.reason.splitlines() if line.strip()]
    return [
        Finding(
            kind,
            f"the node keeps itself from ECS: {meaning}",
            (
                f"{CHECK_FILE}: stage {check.stage or 'not said'}, at {check.time or 'a time not said'}",
                *(line[:300] for line in reason[:_SHOWN]),
                *(f"{LOG_FILE}: {line[:300]}" for line in _troubles(facts)),
            ),
            (
                look,
                f"systemctl restart --no-block {CHECK_UNIT} ecs   # checks again; fails again: the node may power off",
                "end the instance: its group launches another",
            ),
        )
    ]


def user_data(facts: HostFacts, kind: Kind) -> list[Finding] | None:
    """It began and did not end, or met trouble and no check has spoken since."""
    if facts.node_log is None:
        return None
    lines = known(facts.node_log)
    if _is_unfinished(facts, lines):
        cause, evidence = "the node's user data began and did not end", lines[-_SHOWN:]
    elif facts.node_check is None and _troubles(facts):
        cause, evidence = "the node's user data could not do all it should", _troubles(facts)
    else:
        return []
    remedy = (f"less {LOG_FILE} /var/log/cloud-init-output.log", "cloud-init status --long")
    return [Finding(kind, cause, tuple(f"{LOG_FILE}: {line[:300]}" for line in evidence), remedy)]


def _troubles(facts: HostFacts) -> tuple[str, ...]:
    lines = facts.node_log if isinstance(facts.node_log, tuple) else ()
    return tuple(line for line in lines if any(words in line for words in _TROUBLE))[-_SHOWN:]


def _is_unfinished(facts: HostFacts, lines: tuple[str, ...]) -> bool:
    has_ended = any(line.endswith(_ENDS) for line in lines)
    is_late = facts.uptime_s is not None and facts.uptime_s > _BOOT_S
    return not has_ended and is_late and any(line.endswith(_BEGINS) for line in lines)
