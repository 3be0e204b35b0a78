"""BY202: a security group admits the whole internet."""

from __future__ import annotations

import ipaddress

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import check_template
from batchyard.doctor.template.launch_templates import terraform_references_of
from batchyard.doctor.template.resources import NOTHING, Resource, Template
from batchyard.doctor.template.terraform_references import remove_indexes
from batchyard.yaml_positions import Node

KIND = Kind("BY202", Severity.WARNING, 60, "no security group is open to the world")

_GROUP = "AWS::EC2::SecurityGroup"
_RULE = "AWS::EC2::SecurityGroupIngress"
_BALANCERS = (
    "AWS::ElasticLoadBalancingV2::LoadBalancer",
    "AWS::ElasticLoadBalancing::LoadBalancer",
)
#: Ports that a web server opens on purpose.
_WEB_PORTS = (80, 443)
_ALL_PROTOCOLS = ("-1", "all")
#: ICMP: no program listens for it.
_PING_PROTOCOLS = ("icmp", "icmpv6", "1", "58")


@check_template(
    KIND,
    properties=(
        (_GROUP, "SecurityGroupIngress"),
        (_GROUP, "SecurityGroupIngress.*.CidrIp"),
        (_GROUP, "SecurityGroupIngress.*.CidrIpv6"),
        (_GROUP, "SecurityGroupIngress.*.FromPort"),
        (_RULE, "CidrIp"),
        (_RULE, "CidrIpv6"),
        (_RULE, "FromPort"),
        (_RULE, "SecurityGroupIngress.*.CidrIp"),
    ),
)
def check(template: Template) -> Findings:
    balancer_groups = _find_balancer_groups(template)
    for resource in template.of_type(_GROUP, _RULE):
        if balancer_groups & _group_names(template, resource):
            continue
        for rule in _find_rules(resource):
            cidr = _find_world_cidr(template, rule)
            ports = _describe_ports(template, rule) if cidr else ""
            if ports:
                yield Finding(
                    KIND,
                    "a security group admits the whole internet; a batch host needs no access from"
                    " outside",
                    (f"{cidr} may reach {ports}",),
                    ("delete the rule; use Session Manager in place of SSH",),
                    template.place(resource, rule),
                )


def _group_names(template: Template, resource: Resource) -> set[str]:
    if resource.type == _GROUP:
        return {remove_indexes(resource.name)}
    return {template.target_name(resource.get("GroupId")), *terraform_references_of(resource)}


def _find_rules(resource: Resource) -> list[Node]:
    """Return the rules of a group. A rule can be a resource; Terraform's has several CIDRs."""
    rules = resource.get("SecurityGroupIngress").items
    return rules or ([] if resource.type == _GROUP else [resource.properties])


def _find_world_cidr(template: Template, rule: Node) -> str:
    cidrs = (template.text_of(rule, key) or "" for key in ("CidrIp", "CidrIpv6"))
    return next(filter(_is_world, cidrs), "")


def _is_world(cidr: str) -> bool:
    """Return whether the CIDR is the whole internet, also if written ::0/0 or 1.2.3.4/0."""
    try:
        return ipaddress.ip_network(cidr.strip(), strict=False).prefixlen == 0
    except ValueError:
        return False


def _describe_ports(template: Template, rule: Node) -> str:
    """Return the ports that the rule opens; empty if it may open only web ports or ping."""
    protocol = template.text_of(rule, "IpProtocol") or "-1"
    if protocol.lower() in _PING_PROTOCOLS:
        return ""
    if protocol.lower() in _ALL_PROTOCOLS or rule.get("FromPort") is None:
        return "all ports"
    low, high = (template.number(rule.get(key) or NOTHING) for key in ("FromPort", "ToPort"))
    # An unknown port may be one of a web server.
    if None in (low, high) or (low == high and low in _WEB_PORTS):
        return ""
    return f"{protocol} {low} to {high}"


def _find_balancer_groups(template: Template) -> set[str]:
    """Return the groups of load balancers, whose clients may come from anywhere."""
    balancers = template.of_type(*_BALANCERS)
    names = {
        template.target_name(group)
        for balancer in balancers
        for group in balancer.get("SecurityGroups").items
    }
    return names.union(*map(terraform_references_of, balancers)) - {""}
