"""Checks of everything in a template that is no compute environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchyard.doctor.checks import hardware
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding
from batchyard.doctor.kinds import KINDS
from batchyard.doctor.template.resources import Resource, Template
from batchyard.doctor.yaml_tree import Node

WORLD = ("0.0.0.0/0", "::/0")
#: what a web server opens on purpose
WEB_PORTS = (80, 443)
MAX_RULES = 5
GREAT_POLICIES = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess")
#: services of which nobody needs every action on every resource
TELLING_SERVICES = frozenset({"iam", "sts", "s3", "ec2", "kms", "secretsmanager", "ssm", "lambda", "organizations"})
_REASON = re.compile(r"[0-9A-Za-z.:\s]*\*?")
_EXIT_CODE = re.compile(r"[0-9]*\*?")


def launch_configurations(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::AutoScaling::LaunchConfiguration"):
        yield Finding(
            KINDS[201],
            "launch configurations cannot be made in accounts of since 2024-10, and know no instance type since 2023",
            (f"{resource.name} is a launch configuration",),
            ("use a launch template: AWS::EC2::LaunchTemplate, aws_launch_template",),
            template.place(resource),
        )


def spot_fleets(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::EC2::SpotFleet"):
        yield Finding(
            KINDS[208],
            "Spot Fleet is a legacy interface, which AWS advises against",
            (f"{resource.name} is a Spot Fleet",),
            ("use an Auto Scaling group with a MixedInstancesPolicy, or AWS Batch",),
            template.place(resource),
        )


def open_groups(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupIngress"):
        is_group = resource.type == "AWS::EC2::SecurityGroup"
        rules = resource.get("SecurityGroupIngress").items() if is_group else [resource.properties]
        for rule in rules:
            cidr = _text(template, rule, "CidrIp") or _text(template, rule, "CidrIpv6")
            if cidr not in WORLD:
                continue
            protocol = _text(template, rule, "IpProtocol") or "-1"
            low, high = (template.number(rule.get(key) or Node("")) for key in ("FromPort", "ToPort"))
            if protocol != "-1" and low == high and low in WEB_PORTS:
                continue
            ports = "all ports" if protocol == "-1" or low is None else f"{protocol} {low} to {high}"
            yield Finding(
                KINDS[202],
                "a security group lets the whole world in; a batch node needs nobody to reach it",
                (f"{cidr} may reach {ports}",),
                ("delete the rule; use Session Manager in place of SSH",),
                template.place(resource, rule),
            )


def great_roles(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for arn in resource.get("ManagedPolicyArns").items():
            name = (template.text(arn) or _loose(template, arn)).rsplit("/", 1)[-1]
            if name in GREAT_POLICIES:
                yield _too_great(template, resource, arn, f"the policy {name} is attached")
        policies = [p.get("PolicyDocument") for p in resource.get("Policies").items()]
        for document in (*policies, resource.properties.get("PolicyDocument")):
            yield from _great_statements(template, resource, document)


def _great_statements(template: Template, resource: Resource, document: Node | None) -> Iterator[Finding]:
    statements = (document.get("Statement") if document else None) or Node([])
    for statement in statements.items() or [statements]:
        if (_text(template, statement, "Effect") or "Allow") != "Allow" or not isinstance(statement.value, dict):
            continue
        actions = template.texts(statement.get("Action") or Node([])) or []
        everywhere = "*" in (template.texts(statement.get("Resource") or Node([])) or [])
        great = [a for a in actions if a == "*" or (a.endswith(":*") and a.split(":")[0].lower() in TELLING_SERVICES)]
        if great and everywhere:
            yield _too_great(template, resource, statement, f"allows {', '.join(great[:4])} on every resource")


def _too_great(template: Template, resource: Resource, node: Node, what: str) -> Finding:
    return Finding(
        KINDS[203],
        f"{resource.name} may do far more than a batch job needs",
        (what,),
        ("name the actions and the resources that are needed",),
        template.place(resource, node),
    )


def _loose(template: Template, node: Node) -> str:
    return template.lines(node).text


def _text(template: Template, node: Node, key: str) -> str | None:
    inner = node.get(key)
    return None if inner is None else template.text(inner)


def spot_share(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::AutoScaling::AutoScalingGroup"):
        spread = resource.get("MixedInstancesPolicy", "InstancesDistribution")
        wants_spot = any(spread.get(key) for key in ("SpotAllocationStrategy", "SpotMaxPrice", "SpotInstancePools"))
        share = spread.get("OnDemandPercentageAboveBaseCapacity")
        # A parameter is a choice that is left to whoever makes the stack.
        is_all = share is None or share.text == "100"
        if wants_spot and is_all:
            yield Finding(
                KINDS[209],
                "the group names a Spot strategy and buys no Spot instance",
                ("OnDemandPercentageAboveBaseCapacity is 100" + ("" if share else ", its default"),),
                ("OnDemandPercentageAboveBaseCapacity: 0",),
                template.place(resource, spread),
            )


def tags(template: Template) -> Iterator[Finding]:
    for resource in template.resources:
        if not resource.type.startswith("AWS::Batch::") or template.kind == "Terraform":
            continue
        for node in (resource.get("Tags"), resource.get("ComputeResources", "Tags")):
            if isinstance(node.value, list) and node.value:
                yield Finding(
                    KINDS[210],
                    "tags of AWS Batch are a map, not a list of Key and Value",
                    (f"Tags of {resource.name} is a list of {len(node.value)}",),
                    ("Tags: {Name: value}",),
                    template.place(resource, node),
                )


def termination_protection(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::ECS::CapacityProvider"):
        provider = resource.get("AutoScalingGroupProvider")
        if _text(template, provider, "ManagedTerminationProtection") != "ENABLED":
            continue
        group = template.named(template.referred(provider.get("AutoScalingGroupArn") or Node("")))
        lacking = []
        if group and not template.is_true(group.get("NewInstancesProtectedFromScaleIn")):
            lacking.append(f"NewInstancesProtectedFromScaleIn of {group.name} is not true")
        if _text(template, provider.get("ManagedScaling") or Node({}), "Status") == "DISABLED":
            lacking.append("ManagedScaling is DISABLED")
        if lacking:
            yield Finding(
                KINDS[211],
                "ManagedTerminationProtection needs managed scaling, and protection on the group: the stack fails",
                tuple(lacking),
                ("NewInstancesProtectedFromScaleIn: true on the group, ManagedScaling Status: ENABLED",),
                template.place(resource),
            )


def retry_rules(template: Template) -> Iterator[Finding]:
    for resource in template.of_type("AWS::Batch::JobDefinition"):
        strategy = resource.get("RetryStrategy")
        rules = resource.get("RetryStrategy", "EvaluateOnExit").items()
        wrong = []
        if len(rules) > MAX_RULES:
            wrong.append(f"{len(rules)} rules; at most {MAX_RULES}")
        if rules and strategy.get("Attempts") is None:
            wrong.append("Attempts is missing")
        for rule in rules:
            for key, form in (("OnReason", _REASON), ("OnStatusReason", _REASON), ("OnExitCode", _EXIT_CODE)):
                text = _text(template, rule, key)
                if text is not None and not form.fullmatch(text):
                    wrong.append(f"{key} {text[:60]!r}: letters, digits, '.', ':', blanks, and one * at the end")
        if wrong:
            yield Finding(
                KINDS[212],
                "AWS Batch does not accept the retry rules",
                tuple(wrong),
                ("write a prefix and a *: OnStatusReason: 'Host EC2*'",),
                template.place(resource, strategy),
            )


def launch_templates(template: Template) -> Iterator[Finding]:
    used = users(template)
    for resource in template.of_type("AWS::EC2::LaunchTemplate"):
        limit = template.number(resource.get("LaunchTemplateData", "MetadataOptions", "HttpPutResponseHopLimit"))
        for finding in hardware.hop_limit(Environment(resource.name), limit if used.get(resource.name) else None):
            yield Finding(finding.kind, finding.cause, finding.evidence, finding.remedy, template.place(resource))
        market = resource.get("LaunchTemplateData", "InstanceMarketOptions")
        if market.value and used.get(resource.name) == "batch":
            yield Finding(
                KINDS[213],
                "AWS Batch ignores the market options of a launch template",
                ("InstanceMarketOptions is set",),
                ("delete it, and set the environment's Type: SPOT",),
                template.place(resource, market),
            )


def users(template: Template) -> dict[str, str]:
    """Launch template -> batch where a compute environment uses it, else ecs where the template is about containers."""
    about_containers = any(r.type.startswith(("AWS::ECS::", "AWS::Batch::")) for r in template.resources)
    owned = {r.name: "ecs" for r in template.of_type("AWS::EC2::LaunchTemplate") if about_containers}
    names = {(_text(template, r.properties, "LaunchTemplateName") or ""): r.name for r in template.resources}
    for environment in template.of_type("AWS::Batch::ComputeEnvironment"):
        used = environment.get("ComputeResources", "LaunchTemplate")
        target = template.referred(used.get("LaunchTemplateId") or Node(""))
        by_name = used.get("LaunchTemplateName") or Node("")
        found = [target, template.referred(by_name), names.get(template.text(by_name) or "-", "")]
        found += [ref.text or "" for ref in environment.get("References").items()]
        for name in found:
            # Terraform: a module's own resources are named without it.
            owned.update({own: "batch" for own in owned if name and (own == name or own.endswith("." + name))})
    return owned
