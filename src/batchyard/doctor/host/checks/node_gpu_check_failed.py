"""BY319: the GPU check that a node of ours runs before ECS starts has failed."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.host.node import (
    CHECK_FILE,
    CHECK_UNIT,
    LINES_SHOWN,
    LOG_FILE,
    MAX_LOG_LINE_LENGTH,
    find_trouble,
)

KIND = Kind("BY319", Severity.ERROR, 97, "the node's own check of its GPUs passed")
#: the stage at which the check stopped -> what it means, and a command that shows more
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
_OTHER_STAGE = ("the check of its GPUs failed", f"less {LOG_FILE}")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if facts.node_check is None:
        return None
    node_check = require(facts.node_check)
    if node_check.is_ok:
        return []
    meaning, command = _STAGES.get(node_check.stage, _OTHER_STAGE)
    reasons = [line.strip() for line in node_check.reason.splitlines() if line.strip()]
    return Finding(
        KIND,
        f"the node does not join ECS: {meaning}",
        (
            f"{CHECK_FILE}: stage {node_check.stage or 'not said'}, "
            f"at {node_check.time or 'a time not said'}",
            *(line[:MAX_LOG_LINE_LENGTH] for line in reasons[:LINES_SHOWN]),
            *(f"{LOG_FILE}: {line}" for line in find_trouble(facts)),
        ),
        (
            command,
            f"systemctl restart --no-block {CHECK_UNIT} ecs"
            "   # checks again; fails again: the node may power off",
            "end the instance: its group launches another",
        ),
    )
