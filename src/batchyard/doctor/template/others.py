"""Checks of everything in a template that is no compute environment. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from batchyard.doctor.checks.environments import amazon_linux_2, metadata_hop_limit
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding
from batchyard.doctor.template.kinds import (
    LAUNCH_CONFIGURATION,
    MARKET_OPTIONS_IGNORED,
    OPEN_SECURITY_GROUP,
    RETRY_RULE_REFUSED,
    ROLE_ALLOWS_EVERYTHING,
    SPOT_FLEET,
    SPOT_NEVER_BOUGHT,
    TAGS_AS_LIST,
    TERMINATION_PROTECTION_ON_ONE_SIDE,
)
from batchyard.doctor.template.references import bare
from batchyard.doctor.template.resources import NOTHING, Resource, Template
from batchyard.yaml_positions import Mapping, Node

#: what a web server opens on purpose
WEB_PORTS = (80, 443)
ALL_PROTOCOLS = ("-1", "all")
#: nothing listens there
PINGS = ("icmp", "icmpv6", "1", "58")
MAX_RULES = 5
#: what groups of instances are started from
LAUNCHES = (
    "AWS::EC2::LaunchTemplate",
    "AWS::AutoScaling::LaunchConfiguration",
    "AWS::EC2::SpotFleet",
)
_NAMES = ("LaunchTemplateName", "LaunchTemplateId")
GREAT_POLICIES = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess")
#: services of which nobody needs every action on every resource
TELLING_SERVICES = frozenset(
    {"iam", "sts", "s3", "ec2", "kms", "secretsmanager", "ssm", "lambda", "organizations"}
)
_OF_STATEMENT = ("Action", "NotAction", "Resource")
#: what has policies
POWERFUL = (
    *(f"AWS::IAM::{kind}" for kind in ("Role", "User", "Group", "Policy", "ManagedPolicy")),
    *(f"AWS::IAM::{kind}" for kind in ("RolePolicy", "UserPolicy", "GroupPolicy")),
    "AWS::Serverless::Function",
    "AWS::Serverless::StateMachine",
)
_AMAZON_LINUX_2 = re.compile(r"/amazon-linux-2(?!\d)|/amzn2-ami-")
_REASON = re.compile(r"[0-9A-Za-z.:\s]*\*?")
_EXIT_CODE = re.compile(r"[0-9]*\*?")


def launch_configurations(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::AutoScaling::LaunchConfiguration"):
        yield Finding(
            LAUNCH_CONFIGURATION,
            "launch configurations cannot be made in accounts of since 2024-10, and know no instance type since 2023",
            (f"{resource.name} is a launch configuration",),
            ("use a launch template: AWS::EC2::LaunchTemplate, aws_launch_template",),
            template.place(resource),
        )


def spot_fleets(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::EC2::SpotFleet"):
        yield Finding(
            SPOT_FLEET,
            "Spot Fleet is a legacy interface, which AWS advises against",
            (f"{resource.name} is a Spot Fleet",),
            ("use an Auto Scaling group with a MixedInstancesPolicy, or AWS Batch",),
            template.place(resource),
        )


def open_groups(template: Template) -> Iterator[Finding]:
    balanced = _groups_of_balancers(template)
    for resource in template.of_type("AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupIngress"):
        is_group = resource.type == "AWS::EC2::SecurityGroup"
        named = {template.referred(resource.get("GroupId")), *_references(resource)}
        if balanced & ({bare(resource.name)} if is_group else named):
            continue
        # A rule of its own is a resource; of Terraform it has several CIDRs.
        rules = resource.get("SecurityGroupIngress").items or (
            [] if is_group else [resource.properties]
        )
        for rule in rules:
            cidrs = [_text(template, rule, key) or "" for key in ("CidrIp", "CidrIpv6")]
            cidr = next(filter(_is_world, cidrs), "")
            if not cidr:
                continue
            protocol = _text(template, rule, "IpProtocol") or "-1"
            low, high = (
                template.number(rule.get(key) or NOTHING) for key in ("FromPort", "ToPort")
            )
            is_all = protocol.lower() in ALL_PROTOCOLS or rule.get("FromPort") is None
            # A port that is open to choice may be one of a web server.
            is_choice = not is_all and None in (low, high)
            if (
                protocol.lower() in PINGS
                or is_choice
                or (not is_all and low == high and low in WEB_PORTS)
            ):
                continue
            ports = "all ports" if is_all else f"{protocol} {low} to {high}"
            yield Finding(
                OPEN_SECURITY_GROUP,
                "a security group lets the whole world in; a batch node needs nobody to reach it",
                (f"{cidr} may reach {ports}",),
                ("delete the rule; use Session Manager in place of SSH",),
                template.place(resource, rule),
            )


def _is_world(cidr: str) -> bool:
    """Also as ::0/0, or 1.2.3.4/0."""
    try:
        return ipaddress.ip_network(cidr.strip(), strict=False).prefixlen == 0
    except ValueError:
        return False


def _groups_of_balancers(template: Template) -> set[str]:
    """Those that are open because a load balancer's clients come from anywhere."""
    balancers = template.of_type(
        "AWS::ElasticLoadBalancingV2::LoadBalancer", "AWS::ElasticLoadBalancing::LoadBalancer"
    )
    named = {
        template.referred(group) for one in balancers for group in one.get("SecurityGroups").items
    }
    return named.union(*map(_references, balancers)) - {""}


def great_roles(template: Template) -> Iterator[Finding]:
    for resource in template.of_type(*POWERFUL):
        policies = resource.get("Policies")
        for arn in (*resource.get("ManagedPolicyArns").items, *(policies.items or [policies])):
            name = (template.text(arn) or template.lines(arn).text).rsplit("/", 1)[-1]
            if name in GREAT_POLICIES:
                yield _too_great(template, resource, arn, f"the policy {name} is attached")
        for statement in statements(template, resource):
            actions, rest, places = (
                template.known(statement.get(key) or NOTHING) for key in _OF_STATEMENT
            )
            great = (
                [f"everything but {', '.join(rest[:4])}"]
                if rest
                else list(filter(is_great, actions))[:4]
            )
            if great and ("*" in places or statement.get("NotResource") is not None):
                yield _too_great(
                    template, resource, statement, f"allows {', '.join(great)} on every resource"
                )


def statements(template: Template, resource: Resource) -> Iterator[Node]:
    """Those of its policies that allow something."""
    policies = resource.get("Policies")
    # Of SAM, a policy in the list is the document itself.
    documents = [policy.get("PolicyDocument") or policy for policy in policies.items or [policies]]
    for document in (*documents, resource.get("PolicyDocument")):
        listed = document.get("Statement") or NOTHING
        for statement in listed.items or [listed]:
            if (
                isinstance(statement, Mapping)
                and (_text(template, statement, "Effect") or "Allow") == "Allow"
            ):
                yield statement


def is_great(action: str) -> bool:
    service, _, what = action.lower().partition(":")
    return action == "*" or (what == "*" and (service == "*" or service in TELLING_SERVICES))


def _too_great(template: Template, resource: Resource, node: Node, what: str) -> Finding:
    return Finding(
        ROLE_ALLOWS_EVERYTHING,
        f"{resource.name} may do far more than a batch job needs",
        (what,),
        ("name the actions and the resources that are needed",),
        template.place(resource, node),
    )


def _text(template: Template, node: Node, key: str) -> str | None:
    inner = node.get(key)
    return None if inner is None else template.text(inner)


def spot_share(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::AutoScaling::AutoScalingGroup"):
        spread = resource.get("MixedInstancesPolicy", "InstancesDistribution")
        wants_spot = any(
            spread.get(key)
            for key in ("SpotAllocationStrategy", "SpotMaxPrice", "SpotInstancePools")
        )
        share = spread.get("OnDemandPercentageAboveBaseCapacity")
        # A parameter is a choice that is left to whoever makes the stack.
        is_all = share is None or share.text == "100"
        if wants_spot and is_all:
            yield Finding(
                SPOT_NEVER_BOUGHT,
                "the group names a Spot strategy and buys no Spot instance",
                (
                    "OnDemandPercentageAboveBaseCapacity is 100"
                    + ("" if share else ", its default"),
                ),
                ("OnDemandPercentageAboveBaseCapacity: 0",),
                template.place(resource, spread),
            )


def tags(template: Template) -> Iterator[Finding]:
    for resource in template.resources:
        if not resource.type.startswith("AWS::Batch::") or template.kind == "Terraform":
            continue
        for node in (resource.get("Tags"), resource.get("ComputeResources", "Tags")):
            if node.items:
                yield Finding(
                    TAGS_AS_LIST,
                    "tags of AWS Batch are a map, not a list of Key and Value",
                    (f"Tags of {resource.name} is a list of {len(node.items)}",),
                    ("Tags: {Name: value}",),
                    template.place(resource, node),
                )


def termination_protection(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::ECS::CapacityProvider"):
        provider = resource.get("AutoScalingGroupProvider")
        if _text(template, provider, "ManagedTerminationProtection") != "ENABLED":
            continue
        lacking = []
        for group in _groups_of(template, resource):
            protected = group.get("NewInstancesProtectedFromScaleIn")
            if template.is_true(protected) or (
                template.text(protected) is None and not protected.is_empty
            ):
                continue
            lacking.append(f"NewInstancesProtectedFromScaleIn of {group.name} is not true")
        if _text(template, provider.get("ManagedScaling") or NOTHING, "Status") == "DISABLED":
            lacking.append("ManagedScaling is DISABLED")
        if lacking:
            yield Finding(
                TERMINATION_PROTECTION_ON_ONE_SIDE,
                "ManagedTerminationProtection needs managed scaling, and protection on the group: the stack fails",
                tuple(lacking),
                (
                    "NewInstancesProtectedFromScaleIn: true on the group, ManagedScaling Status: ENABLED",
                ),
                template.place(resource),
            )


def _groups_of(template: Template, provider: Resource) -> list[Resource]:
    node = provider.get("AutoScalingGroupProvider", "AutoScalingGroupArn")
    name, arn, pointed = template.referred(node), template.text(node), _references(provider)
    return [
        group
        for group in template.of_type("AWS::AutoScaling::AutoScalingGroup")
        if group.name == name
        or bare(group.name) in pointed
        or (arn and _text(template, group.properties, "Arn") == arn)
    ]


def retry_rules(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::Batch::JobDefinition"):
        strategy = resource.get("RetryStrategy")
        rules = resource.get("RetryStrategy", "EvaluateOnExit").items
        wrong = []
        if len(rules) > MAX_RULES:
            wrong.append(f"{len(rules)} rules; at most {MAX_RULES}")
        if rules and strategy.get("Attempts") is None:
            wrong.append("Attempts is missing")
        for rule in rules:
            for key, form in (
                ("OnReason", _REASON),
                ("OnStatusReason", _REASON),
                ("OnExitCode", _EXIT_CODE),
            ):
                text = _text(template, rule, key)
                if text is not None and not form.fullmatch(text):
                    wrong.append(
                        f"{key} {text[:60]!r}: letters, digits, '.', ':', blanks, and one * at the end"
                    )
        if wrong:
            yield Finding(
                RETRY_RULE_REFUSED,
                "AWS Batch does not accept the retry rules",
                tuple(wrong),
                ("write a prefix and a *: OnStatusReason: 'Host EC2*'",),
                template.place(resource, strategy),
            )


def launch_templates(template: Template) -> Iterator[Finding]:
    used = users(template)
    for resource in filter(lambda one: one.name in used, template.of_type(*LAUNCHES)):
        yield from _old_images(template, resource)
    for resource in template.of_type("AWS::EC2::LaunchTemplate"):
        limit = template.number(
            resource.get("LaunchTemplateData", "MetadataOptions", "HttpPutResponseHopLimit")
        )
        for finding in metadata_hop_limit.examine(
            Environment(resource.name), limit if used.get(resource.name) else None
        ):
            yield Finding(
                finding.kind,
                finding.cause,
                finding.evidence,
                finding.remedy,
                template.place(resource),
            )
        market = resource.get("LaunchTemplateData", "InstanceMarketOptions")
        if not market.is_empty and used.get(resource.name) == "batch":
            yield Finding(
                MARKET_OPTIONS_IGNORED,
                "AWS Batch ignores the market options of a launch template",
                ("InstanceMarketOptions is set",),
                ("delete it, and set the environment's Type: SPOT",),
                template.place(resource, market),
            )


def _old_images(template: Template, resource: Resource) -> Iterator[Finding]:
    data = resource.get("LaunchTemplateData")
    several = resource.get("SpotFleetRequestConfigData", "LaunchSpecifications").items
    for node in filter(None, (one.get("ImageId") for one in (data, resource.properties, *several))):
        if is_amazon_linux_2(path := template.looked_up(node)):
            yield Finding(
                amazon_linux_2.KIND,
                f"{resource.name} launches Amazon Linux 2, whose images get no patches",
                (f"ImageId is looked up at {path}",),
                (
                    "take the path of Amazon Linux 2023: /aws/service/ecs/optimized-ami/amazon-linux-2023/...",
                ),
                template.place(resource, node),
            )


def is_amazon_linux_2(path: str) -> bool:
    """By its path in SSM."""
    return _AMAZON_LINUX_2.search(path) is not None


def users(template: Template) -> dict[str, str]:
    """Launch template -> batch where a compute environment uses it, else ecs where the template is about containers.

    The nodes of an UNMANAGED environment are told their cluster by whoever starts them: they are nodes of plain ECS.
    """
    about_containers = any(
        r.type.startswith(("AWS::ECS::", "AWS::Batch::")) for r in template.resources
    )
    owned = {r.name: "ecs" for r in template.of_type(*LAUNCHES) if about_containers}
    for environment in template.of_type("AWS::Batch::ComputeEnvironment"):
        if (template.text(environment.get("Type")) or "").upper() == "UNMANAGED":
            continue
        found = {own.name for used in launches(environment) if (own := launched(template, used))}
        owned.update({name: "batch" for name in owned if name in found})
        pointed = _references(environment)
        owned.update({name: "batch" for name in owned if bare(name) in pointed})
    return owned


def launches(environment: Resource) -> list[Node]:
    """The launch template of a compute environment, and those that some of its types get instead."""
    main = environment.get("ComputeResources", "LaunchTemplate")
    return [main, *(main.get("Overrides") or NOTHING).items]


def launched(template: Template, used: Node) -> Resource | None:
    """The resource of this template that a compute environment names as its launch template."""
    for node in filter(None, map(used.get, _NAMES)):
        own = template.named(template.referred(node))
        # The same text is the same name, whatever the stack is called.
        text = template.lines(node).text or "-"
        same = (
            r
            for r in template.of_type(*LAUNCHES)
            for key in _NAMES
            if template.lines(r.get(key)).text == text
        )
        if found := own or next(same, None):
            return found
    return None


def _references(resource: Resource) -> set[str]:
    """Of Terraform: the resources that its configuration names."""
    return {node.text or "" for node in resource.get("References").items}
