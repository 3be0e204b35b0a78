"""BY310: the ECS agent knows fewer GPUs than the driver.

The agent counts the GPUs once, when it starts: a driver that is ready later is too late.
"""

from __future__ import annotations

from batchyard.doctor.facts import Missing, require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, is_ecs_node
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY310", Severity.ERROR, 82, "the agent knows the host's GPUs")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not isinstance(facts.gpus, tuple) or not facts.gpus:
        return None
    if not is_ecs_node(facts) or isinstance(facts.agent, Missing):
        return None
    registered = () if facts.agent_gpus is None else require(facts.agent_gpus)
    missed = [gpu.uuid for gpu in facts.gpus if gpu.uuid not in registered]
    if not missed:
        return []
    return Finding(
        KIND,
        "the ECS agent knows fewer GPUs than the driver: it registered without them",
        (
            f"nvidia-gpu-info.json has {len(registered)} of {len(facts.gpus)}",
            f"not there: {missed[0]}",
        ),
        (
            "grep -i gpu /var/log/ecs/ecs-init.log",
            "systemctl restart --no-block ecs   # counts again",
        ),
    )
