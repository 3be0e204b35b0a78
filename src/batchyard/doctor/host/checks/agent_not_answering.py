"""BY307: the ECS agent does not answer."""

from __future__ import annotations

from batchyard.doctor.facts import Missing
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, find_unit, is_ecs_node
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY307", Severity.ERROR, 86, "the ECS agent answers")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not is_ecs_node(facts):
        return None
    if not isinstance(facts.agent, Missing):
        return []
    unit = find_unit(facts, "ecs.service")
    return Finding(
        KIND,
        "the ECS agent does not answer: the node has not joined",
        (facts.agent.reason, *([f"ecs.service is {unit.active}"] if unit else [])),
        (
            "tail -50 /var/log/ecs/ecs-init.log /var/log/ecs/ecs-agent.log",
            "systemctl start --no-block ecs",
        ),
    )
