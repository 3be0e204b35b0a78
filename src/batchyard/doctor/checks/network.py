"""Whether an instance can reach ECS, ECR and the logs from where it stands. Pure."""

from __future__ import annotations

from collections.abc import Callable

from batchyard.doctor.checks.common import (
    Found,
    Setting,
    each,
    environments,
    hosted,
    is_over,
    named,
    waiting_job,
)
from batchyard.doctor.checks.kinds import (
    FARGATE_IMAGE_UNREACHABLE,
    HTTPS_EGRESS_BLOCKED,
    NETWORK_ACL_BLOCKS,
    NO_PUBLIC_ADDRESS,
    NO_ROUTE_TO_AWS,
    SUBNETS_FULL,
)
from batchyard.doctor.facts import Environment, Facts, Missing, Rule, Subnet, known
from batchyard.doctor.finding import Finding

#: what a host without a way to the internet needs, by the name of its endpoint
NEEDED = ("ecs", "ecs-agent", "ecs-telemetry", "ecr.api", "ecr.dkr", "logs", "s3")
#: a Fargate task has no agent of ours to talk to
NEEDED_FARGATE = ("ecr.api", "ecr.dkr", "logs", "s3")
#: AWS keeps 5 of a subnet's addresses; below so many free ones a fleet cannot grow
FEW_ADDRESSES = 3


def routes(facts: Facts, setting: Setting) -> Found:
    return _over_subnets(facts, lambda e, s: _no_way_out(facts, e, s, NEEDED))


def _no_way_out(
    facts: Facts, environment: Environment, subnet: Subnet, needed: tuple[str, ...]
) -> list[Finding]:
    if known(subnet.default_route):
        return []
    there = {e.service for e in known(facts.endpoints) if e.vpc == subnet.vpc}
    lacking = [service for service in needed if service not in there]
    if not lacking:
        return []
    return [
        Finding(
            NO_ROUTE_TO_AWS,
            f"instances in {subnet.id} cannot reach AWS: no route out, and endpoints are missing",
            (
                f"no route for 0.0.0.0/0; {len(lacking)} of {len(needed)} endpoints missing: {', '.join(lacking)}",
            ),
            (
                "aws ec2 create-route --route-table-id TABLE --destination-cidr-block 0.0.0.0/0 --nat-gateway-id NAT",
                f"or, for each: aws ec2 create-vpc-endpoint --vpc-id {subnet.vpc or 'VPC'} --subnet-ids {subnet.id} "
                "--vpc-endpoint-type Interface "
                f"--service-name com.amazonaws.{facts.subject.region or 'REGION'}.{lacking[0]}",
            ),
            f"compute environment {environment.name}",
        )
    ]


def public_addresses(facts: Facts, setting: Setting) -> Found:
    def look(environment: Environment, subnet: Subnet) -> list[Finding]:
        route = known(subnet.default_route)
        if not route.startswith("igw-") or subnet.gives_public_address:
            return []
        return [
            Finding(
                NO_PUBLIC_ADDRESS,
                f"{subnet.id} routes to an internet gateway, but its instances get no public address",
                (f"0.0.0.0/0 goes to {route}; MapPublicIpOnLaunch is false",),
                (
                    f"aws ec2 modify-subnet-attribute --subnet-id {subnet.id} --map-public-ip-on-launch",
                    "or use subnets behind a NAT gateway",
                ),
                f"compute environment {environment.name}",
            )
        ]

    return _over_subnets(facts, look)


def acls(facts: Facts, setting: Setting) -> Found:
    def look(environment: Environment, subnet: Subnet) -> list[Finding]:
        rules = known(subnet.blocked_by)
        if not rules:
            return []
        return [
            Finding(
                NETWORK_ACL_BLOCKS,
                f"the network ACL of {subnet.id} keeps its instances from AWS",
                rules,
                ("allow TCP 443 out and TCP 1024-65535 in",),
                f"compute environment {environment.name}",
            )
        ]

    return _over_subnets(facts, look)


def addresses(facts: Facts, setting: Setting) -> Found:
    """An environment may use any of its subnets: it is stuck when none has room."""
    if is_over(facts) or not environments(facts):
        return None
    subnets = {s.id: s for s in known(facts.subnets)}

    def look(environment: Environment) -> list[Finding]:
        these = [subnets[s] for s in environment.subnets if s in subnets]
        if not these or any(s.free_addresses >= FEW_ADDRESSES for s in these):
            return []
        return [
            Finding(
                SUBNETS_FULL,
                f"the subnets of {environment.name} have no addresses left for new instances",
                tuple(f"{s.id}: {s.free_addresses} free" for s in these[:4]),
                ("add larger subnets to the environment, or end what holds the addresses",),
                f"compute environment {environment.name}",
            )
        ]

    return each(environments(facts), look)


def egress(facts: Facts, setting: Setting) -> Found:
    if is_over(facts) or not hosted(facts):
        return None
    groups = {g.id: g for g in known(facts.security_groups)}

    def look(environment: Environment) -> list[Finding]:
        these = [groups[g] for g in environment.security_groups if g in groups]
        if not these or any(_lets_https_out(rule) for group in these for rule in group.egress):
            return []
        return [
            Finding(
                HTTPS_EGRESS_BLOCKED,
                f"no security group of {environment.name} lets HTTPS out: instances cannot reach ECS",
                (f"{named(g.id for g in these)}: no rule for TCP 443 out",),
                (
                    f"aws ec2 authorize-security-group-egress --group-id {these[0].id} --protocol tcp --port 443 "
                    "--cidr 0.0.0.0/0",
                ),
                f"compute environment {environment.name}",
            )
        ]

    return each(hosted(facts), look)


def _lets_https_out(rule: Rule) -> bool:
    return rule.protocol == "-1" or (
        rule.protocol in ("tcp", "6") and rule.from_port <= 443 <= rule.to_port
    )


def fargate(facts: Facts, setting: Setting) -> Found:
    """A Fargate task pulls its image itself, through its own address."""
    job = waiting_job(facts)
    if job is None or job.platform != "FARGATE":
        return None
    subnets = {s.id: s for s in known(facts.subnets)}

    def look(environment: Environment) -> list[Finding]:
        these = [subnets[s] for s in environment.subnets if s in subnets]
        return [
            finding
            for s in these
            for finding in _fargate_way(facts, environment, s, job.assigns_public_ip)
        ]

    return each([e for e in environments(facts) if e.is_fargate], look)


def _fargate_way(
    facts: Facts, environment: Environment, subnet: Subnet, has_address: bool
) -> list[Finding]:
    route = known(subnet.default_route)
    if route and (not route.startswith("igw-") or has_address):
        return []
    there = (
        {e.service for e in facts.endpoints if e.vpc == subnet.vpc}
        if isinstance(facts.endpoints, tuple)
        else set()
    )
    if not (lacking := [s for s in NEEDED_FARGATE if s not in there]):
        return []
    return [
        Finding(
            FARGATE_IMAGE_UNREACHABLE,
            f"a Fargate job in {subnet.id} cannot reach its image: it has no public address, and no other way out",
            (
                f"assignPublicIp {'ENABLED' if has_address else 'DISABLED'}; 0.0.0.0/0 goes to {route or 'nowhere'}",
                f"endpoints missing: {', '.join(lacking)}",
            ),
            (
                "set assignPublicIp=ENABLED in the job definition, or use subnets behind a NAT gateway",
            ),
            f"compute environment {environment.name}",
        )
    ]


def _over_subnets(facts: Facts, look: Callable[[Environment, Subnet], list[Finding]]) -> Found:
    if is_over(facts) or not hosted(facts):
        return None
    subnets = {s.id: s for s in known(facts.subnets)}
    unknown = [s for e in hosted(facts) for s in e.subnets if s not in subnets]
    found = each(
        hosted(facts), lambda e: [f for s in e.subnets if s in subnets for f in look(e, subnets[s])]
    )
    if unknown and not found:
        known(_absent(unknown))
    return found


def _absent(subnets: list[str]) -> Missing:
    return Missing(f"{named(subnets)} could not be described", "ec2:DescribeSubnets")
