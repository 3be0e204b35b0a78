"""BY308: the ECS agent has joined no cluster, or another one than ecs.config names."""

from __future__ import annotations

import re

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, is_ecs_node
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.host.parse import find_setting

KIND = Kind("BY308", Severity.ERROR, 84, "the agent is in a cluster")
#: AWS Batch names a cluster after its compute environment, in an old and in a new form.
_CLUSTER = re.compile(r"AWSBatch-(.+)-[0-9a-f-]{36}|(.+)_Batch_.*")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not is_ecs_node(facts):
        return None
    agent = require(facts.agent)
    ecs_config = facts.ecs_config if isinstance(facts.ecs_config, str) else None
    cluster = find_setting(ecs_config, "ECS_CLUSTER")
    if not agent.instance_arn:
        cause = "the ECS agent runs, but has not registered with a cluster"
    elif cluster is not None and agent.cluster not in (cluster, cluster.rsplit("/", 1)[-1]):
        cause = f"the ECS agent joined the cluster {agent.cluster}, not the one in ecs.config"
    else:
        return []
    name = (cluster or agent.cluster).rpartition("/")[2]
    environment = _CLUSTER.sub(r"\1\2", name) or "NAME"
    return Finding(
        KIND,
        cause,
        (
            f"cluster {agent.cluster or 'none'}",
            f"ECS_CLUSTER={cluster if cluster is not None else ' not set'}",
        ),
        (
            "grep -iE 'error|denied|unable' /var/log/ecs/ecs-agent.log | tail",
            "check the instance profile, and the way to the ECS endpoints "
            f"(batchyard doctor env {environment})",
        ),
    )
