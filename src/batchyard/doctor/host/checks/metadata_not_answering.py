"""BY314: the instance metadata service does not answer."""

from __future__ import annotations

from batchyard.doctor.facts import Missing
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, is_ecs_node
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY314", Severity.WARNING, 55, "the metadata service answers")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not is_ecs_node(facts):
        return None
    if not isinstance(facts.metadata, Missing):
        return []
    return Finding(
        KIND,
        "the metadata service does not answer: the agent gets no credentials",
        (facts.metadata.reason,),
        (
            "aws ec2 modify-instance-metadata-options "
            "--instance-id $(cat /var/lib/cloud/data/instance-id) "
            "--http-endpoint enabled --http-put-response-hop-limit 2",
        ),
    )
