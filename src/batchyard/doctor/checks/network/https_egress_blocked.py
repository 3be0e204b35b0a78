"""BY033: no security group of the environment allows HTTPS out."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments, join_names
from batchyard.doctor.facts import Environment, Facts, Rule, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY033", Severity.ERROR, 76, "the security groups allow outgoing HTTPS")
_HTTPS_PORT = 443


@check_environments(KIND)
def check(environment: Environment, facts: Facts) -> Findings:
    by_id = {group.id: group for group in require(facts.security_groups)}
    groups = [by_id[group_id] for group_id in environment.security_groups if group_id in by_id]
    if not groups or any(_allows_https(rule) for group in groups for rule in group.egress):
        return
    yield Finding(
        KIND,
        f"no security group of {environment.name} allows outgoing HTTPS: no way to ECS",
        (f"{join_names(group.id for group in groups)}: no rule for TCP 443 out",),
        (
            f"aws ec2 authorize-security-group-egress --group-id {groups[0].id} "
            "--protocol tcp --port 443 --cidr 0.0.0.0/0",
        ),
    )


def _allows_https(rule: Rule) -> bool:
    is_tcp = rule.protocol in ("tcp", "6")
    return rule.protocol == "-1" or (is_tcp and rule.from_port <= _HTTPS_PORT <= rule.to_port)
