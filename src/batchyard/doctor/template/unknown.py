"""Which checks hang on what a template does not say: a parameter without default, an import, a lookup. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchyard.doctor import catalogue
from batchyard.doctor.checks.environments import (
    amazon_linux_2,
    architectures_mixed,
    best_fit_strategy,
    cpu_image_on_gpu_host,
    families_mixed,
    gpu_too_old_for_driver,
    gpus_not_schedulable,
    instance_type_unknown,
    metadata_hop_limit,
    spot_with_single_type,
)
from batchyard.doctor.checks.fit.kinds import NO_GPUS
from batchyard.doctor.checks.launches import spot_bid_too_low
from batchyard.doctor.finding import Kind, Unseen
from batchyard.doctor.template import others
from batchyard.doctor.template.kinds import (
    DESIRED_VCPUS_SET,
    FIXED_NAME_WITH_REPLACEMENT,
    LAUNCH_TEMPLATE_CHANGES_IGNORED,
    OPEN_SECURITY_GROUP,
    RETRY_RULE_REFUSED,
    ROLE_ALLOWS_EVERYTHING,
    ROLE_INSTEAD_OF_PROFILE,
    TERMINATION_PROTECTION_ON_ONE_SIDE,
)
from batchyard.doctor.template.resources import (
    LOOKED_UP,
    NOTHING,
    OPEN_LINE,
    Resource,
    Template,
    function,
)
from batchyard.doctor.template.terraform import PLANNED
from batchyard.doctor.userdata import examine as user_data
from batchyard.yaml_positions import Node

_NAMES = re.compile(r"\$\{([^!}][^}]*)\}")
_MAX_DEPTH = 20
#: AWS's own values in SSM, whose paths say what they are
PUBLIC = "/aws/service/"
#: what somebody else's program answers
_OF_OTHERS = ("Custom::", "AWS::CloudFormation::CustomResource", "AWS::CloudFormation::Stack")
_TYPES = (
    NO_GPUS,
    families_mixed.KIND,
    gpus_not_schedulable.KIND,
    cpu_image_on_gpu_host.KIND,
    gpu_too_old_for_driver.KIND,
    architectures_mixed.KIND,
    instance_type_unknown.KIND,
    spot_with_single_type.KIND,
)
_ENVIRONMENT = "AWS::Batch::ComputeEnvironment"
_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_PROVIDER = "AutoScalingGroupProvider"
USER_DATA = tuple(kind for kind, _, _ in user_data.CHECKS)

#: type of the resource, path of the property ("*": each of a list), the findings that hang on it
HANGS = (
    (
        _ENVIRONMENT,
        "ComputeResources",
        (
            *_TYPES,
            amazon_linux_2.KIND,
            spot_bid_too_low.KIND,
            best_fit_strategy.KIND,
            ROLE_INSTEAD_OF_PROFILE,
            DESIRED_VCPUS_SET,
            LAUNCH_TEMPLATE_CHANGES_IGNORED,
        ),
    ),
    (
        _ENVIRONMENT,
        "ComputeResources.Type",
        (spot_bid_too_low.KIND, best_fit_strategy.KIND, spot_with_single_type.KIND),
    ),
    (_ENVIRONMENT, "ComputeResources.AllocationStrategy", (best_fit_strategy.KIND,)),
    (_ENVIRONMENT, "ComputeResources.BidPercentage", (spot_bid_too_low.KIND,)),
    (_ENVIRONMENT, "ComputeResources.InstanceTypes", _TYPES),
    (_ENVIRONMENT, "ComputeResources.InstanceRole", (ROLE_INSTEAD_OF_PROFILE,)),
    (_ENVIRONMENT, "ComputeResources.ImageId", (amazon_linux_2.KIND,)),
    (
        _ENVIRONMENT,
        "ComputeResources.Ec2Configuration",
        (cpu_image_on_gpu_host.KIND, gpu_too_old_for_driver.KIND, amazon_linux_2.KIND),
    ),
    (
        _ENVIRONMENT,
        "ComputeResources.Ec2Configuration.*.ImageType",
        (cpu_image_on_gpu_host.KIND, gpu_too_old_for_driver.KIND, amazon_linux_2.KIND),
    ),
    (_ENVIRONMENT, "ComputeResources.Ec2Configuration.*.ImageIdOverride", (amazon_linux_2.KIND,)),
    (_ENVIRONMENT, "ComputeResources.LaunchTemplate.Version", (LAUNCH_TEMPLATE_CHANGES_IGNORED,)),
    (_ENVIRONMENT, "ReplaceComputeEnvironment", (FIXED_NAME_WITH_REPLACEMENT,)),
    ("AWS::Batch::JobDefinition", "ContainerProperties.ResourceRequirements.*.Type", (NO_GPUS,)),
    ("AWS::Batch::JobDefinition", "RetryStrategy.EvaluateOnExit", (RETRY_RULE_REFUSED,)),
    ("AWS::Batch::JobDefinition", "RetryStrategy.EvaluateOnExit.*.OnReason", (RETRY_RULE_REFUSED,)),
    (
        "AWS::Batch::JobDefinition",
        "RetryStrategy.EvaluateOnExit.*.OnStatusReason",
        (RETRY_RULE_REFUSED,),
    ),
    (
        "AWS::Batch::JobDefinition",
        "RetryStrategy.EvaluateOnExit.*.OnExitCode",
        (RETRY_RULE_REFUSED,),
    ),
    ("AWS::EC2::LaunchTemplate", "LaunchTemplateData.ImageId", (amazon_linux_2.KIND,)),
    (
        "AWS::EC2::LaunchTemplate",
        "LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit",
        (metadata_hop_limit.KIND,),
    ),
    ("AWS::EC2::LaunchTemplate", "LaunchTemplateData.UserData", USER_DATA),
    ("AWS::AutoScaling::LaunchConfiguration", "UserData", USER_DATA),
    ("AWS::EC2::Instance", "UserData", USER_DATA),
    (
        "AWS::EC2::SpotFleet",
        "SpotFleetRequestConfigData.LaunchSpecifications.*.UserData",
        USER_DATA,
    ),
    ("AWS::EC2::SecurityGroup", "SecurityGroupIngress", (OPEN_SECURITY_GROUP,)),
    ("AWS::EC2::SecurityGroup", "SecurityGroupIngress.*.CidrIp", (OPEN_SECURITY_GROUP,)),
    ("AWS::EC2::SecurityGroup", "SecurityGroupIngress.*.CidrIpv6", (OPEN_SECURITY_GROUP,)),
    ("AWS::EC2::SecurityGroupIngress", "CidrIp", (OPEN_SECURITY_GROUP,)),
    ("AWS::EC2::SecurityGroupIngress", "CidrIpv6", (OPEN_SECURITY_GROUP,)),
    ("AWS::EC2::SecurityGroupIngress", "SecurityGroupIngress.*.CidrIp", (OPEN_SECURITY_GROUP,)),
    ("AWS::EC2::SecurityGroupIngress", "FromPort", (OPEN_SECURITY_GROUP,)),
    ("AWS::EC2::SecurityGroup", "SecurityGroupIngress.*.FromPort", (OPEN_SECURITY_GROUP,)),
    *(
        (kind, "ManagedPolicyArns", (ROLE_ALLOWS_EVERYTHING,))
        for kind in ("AWS::IAM::Role", "AWS::IAM::User", "AWS::IAM::Group")
    ),
    *(
        (kind, f"{path}PolicyDocument", (ROLE_ALLOWS_EVERYTHING,))
        for kind in others.POWERFUL
        for path in ("", "Policies.*.")
    ),
    (
        "AWS::ECS::CapacityProvider",
        f"{_PROVIDER}.ManagedTerminationProtection",
        (TERMINATION_PROTECTION_ON_ONE_SIDE,),
    ),
    (
        "AWS::ECS::CapacityProvider",
        f"{_PROVIDER}.ManagedScaling.Status",
        (TERMINATION_PROTECTION_ON_ONE_SIDE,),
    ),
)


def unseen(template: Template) -> Iterator[Unseen]:
    examined = _examined(template)
    for type_name, path, kinds in HANGS:
        last = path.rpartition(".")[2]
        for resource in examined.get(type_name, ()):
            for node in _at(resource.properties, path.split(".")):
                why = _OF_PROPERTY.get(last, reason)(template, node)
                yield from (
                    Unseen(kind, f"{last} of {resource.name}: {why}") for kind in kinds if why
                )
    yield from _types_not_listed(template, examined.get(_ENVIRONMENT, []))
    yield from _policies(template)
    yield from _groups_elsewhere(template)


def merged(found: list[Unseen]) -> tuple[Unseen, ...]:
    """One of each kind, with all its reasons."""
    whys: dict[Kind, dict[str, None]] = {}
    for one in found:
        whys.setdefault(one.kind, {})[one.reason] = None
    return tuple(
        Unseen(kind, "; ".join(some))
        for kind, some in sorted(whys.items(), key=lambda pair: pair[0].id)
    )


def _examined(template: Template) -> dict[str, list[Resource]]:
    """By their types, the resources that the checks would look at, were all known."""
    owned = others.users(template)
    found: dict[str, list[Resource]] = {}
    for resource in template.resources:
        is_left_out = resource.type == "AWS::EC2::LaunchTemplate" and resource.name not in owned
        if resource.type == _ENVIRONMENT:
            is_own = (template.text(resource.get("Type")) or "").upper() == "UNMANAGED"
            kind = template.text(resource.get("ComputeResources", "Type")) or ""
            is_left_out = is_own or "FARGATE" in kind.upper()
        if not is_left_out:
            found.setdefault(resource.type, []).append(resource)
    return found


def _at(node: Node, path: list[str]) -> Iterator[Node]:
    """The values at the path; what is open above them is somebody else's."""
    if not path:
        yield node
    elif path[0] == "*":
        for item in node.items if function(node) is None else ():
            yield from _at(item, path[1:])
    elif function(node) is None and (inner := node.get(path[0])) is not None:
        yield from _at(inner, path[1:])


def _types_not_listed(template: Template, environments: list[Resource]) -> Iterator[Unseen]:
    for resource in environments:
        names = template.known(resource.get("ComputeResources", "InstanceTypes"))
        strange = [name for name in names if catalogue.is_known(name) is None]
        if strange:
            what = f"{', '.join(strange)} of {resource.name} is in no built-in list"
            yield from (Unseen(kind, what) for kind in _TYPES)


def _policies(template: Template) -> Iterator[Unseen]:
    """Where everything may be allowed, or everywhere; what is open in a part of an ARN is one place all the same."""
    for resource in template.of_type(*others.POWERFUL):
        for statement in others.statements(template, resource):
            actions, places = (statement.get(key) or NOTHING for key in ("Action", "Resource"))
            is_great = (
                any(map(others.is_great, template.known(actions)))
                or statement.get("NotAction") is not None
            )
            for node in [*_or_itself(actions), *(_or_itself(places) if is_great else ())]:
                if OPEN_LINE.fullmatch(template.lines(node).text) and (
                    why := reason(template, node)
                ):
                    yield Unseen(ROLE_ALLOWS_EVERYTHING, f"a policy of {resource.name}: {why}")


def _or_itself(node: Node) -> list[Node]:
    return node.items if function(node) is None and node.items else [node]


def _groups_elsewhere(template: Template) -> Iterator[Unseen]:
    for resource in template.of_type("AWS::ECS::CapacityProvider"):
        is_protected = (
            template.text(resource.get(_PROVIDER, "ManagedTerminationProtection")) == "ENABLED"
        )
        target = template.named(template.referred(resource.get(_PROVIDER, "AutoScalingGroupArn")))
        if (
            is_protected
            and (target is None or target.type != _GROUP)
            and not resource.get("References").items
        ):
            yield Unseen(
                TERMINATION_PROTECTION_ON_ONE_SIDE,
                f"the group of {resource.name} is not in this template",
            )


# -- why a value is open ------------------------------------------------------------------------------------------


def reason(template: Template, node: Node) -> str:
    """Why the value cannot be known; empty where it can, or where it is what a resource of this template is called."""
    return next(_reasons(template, node, 0), "")


def _of_script(template: Template, node: Node) -> str:
    """A script is open where nothing of it is known, or where a whole line of it is not."""
    text = template.lines(node).text
    return reason(template, node) if OPEN_LINE.search(text) else ""


def _of_image(template: Template, node: Node) -> str:
    is_id = (template.text(node) or "").startswith("ami-")
    return "an image's id does not say which system is on it" if is_id else reason(template, node)


def _of_whole(template: Template, node: Node) -> str:
    """Of what has properties of its own, which have their own reasons."""
    return reason(template, node) if function(node) is not None else ""


_OF_PROPERTY = {
    "UserData": _of_script,
    **dict.fromkeys(("ImageId", "ImageIdOverride"), _of_image),
    **dict.fromkeys(("ComputeResources", "Ec2Configuration", "EvaluateOnExit"), _of_whole),
    **dict.fromkeys(("SecurityGroupIngress", "PolicyDocument"), _of_whole),
}


def _reasons(template: Template, node: Node, depth: int) -> Iterator[str]:
    call = function(node)
    if call is None:
        if LOOKED_UP in (node.text or "") and PUBLIC not in (node.text or ""):
            yield "it is looked up when the stack is made"
        for inner in _inside(node) if depth < _MAX_DEPTH else ():
            yield from _reasons(template, inner, depth + 1)
        return
    name, argument = call
    first = argument.items[0] if argument.items else argument
    if name in ("Ref", "GetAtt"):
        yield from _of_name(template, first.text or "")
    elif name == "ImportValue":
        yield "it is imported from another stack"
    elif name == PLANNED:
        yield "it is known only when the plan is applied"
    elif name == "Transform":
        yield "a macro makes it"
    elif depth < _MAX_DEPTH:
        given = argument.items[1] if name == "Sub" and len(argument.items) > 1 else NOTHING
        for word in _NAMES.findall(first.text or "") if name == "Sub" else ():
            yield from _of_name(template, word) if given.get(word) is None else ()
        yield from _reasons(template, argument, depth + 1)
        if name == "FindInMap" and template.in_map(argument) is None:
            yield "its map has no such key, or the key is not known"


def _inside(node: Node) -> list[Node]:
    return node.children()


def _of_name(template: Template, word: str) -> Iterator[str]:
    name = word.partition(".")[0]
    resource = template.named(name)
    if name in template.parameters:
        default = template.parameters[name].get("Default")
        if default is None:
            yield f"the parameter {name} has no default"
        elif (template.is_from_ssm(name) or LOOKED_UP in (default.text or "")) and PUBLIC not in (
            default.text or ""
        ):
            yield f"the parameter {name} is looked up when the stack is made"
    elif resource is not None and resource.type.startswith(_OF_OTHERS):
        yield f"{name} says it only when it is made"
