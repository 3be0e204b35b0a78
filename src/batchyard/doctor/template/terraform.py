"""`terraform show -json` -> resources with CloudFormation's names, so that each check is written once. Pure.

Only what the checks look at is translated. What a plan does not know yet is simply not there. Where a launch template
is used is read from the configuration, since its id is not known before it exists.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from typing import Any

from batchyard.doctor.template.references import bare, references
from batchyard.doctor.template.resources import Resource, Template
from batchyard.doctor.yaml_tree import from_plain

_MAX_DEPTH = 20
_PARAMETER = "aws_ssm_parameter"
#: the function that stands for a value of which the plan does not know yet what it will be
PLANNED = "Planned"
#: what somebody wrote, and the provider does not make up by itself: where it is unknown, it was written as a reference
_WRITTEN = frozenset(
    "instance_type image_type image_id image_id_override instance_role bid_percentage allocation_strategy cidr_blocks "
    "ipv6_cidr_blocks cidr_ipv4 cidr_ipv6 policy policy_arn managed_termination_protection".split()
)

Values = dict[str, Any]


def plan_in(text: str) -> Values | None:
    """The plan or state, where the text is one."""
    if not text.lstrip().startswith("{") or '"format_version"' not in text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_plan = isinstance(value, dict) and ("planned_values" in value or "values" in value)
    return value if is_plan else None


def read(plan: Values, name: str) -> Template:
    configuration = _at(plan, "configuration")
    pointing, roles = references(configuration), references(configuration, "instance_role")
    images = _images(plan)
    values = plan.get("planned_values") or plan.get("values")
    resources = []
    changes = {str(one.get("address", "")): one for one in _dicts(plan.get("resource_changes"))}
    unknown = {address: _at(one, "change", "after_unknown") for address, one in changes.items()}
    for found in _resources(_at(values if isinstance(values, dict) else {}, "root_module")):
        kind, address = found.get("type"), str(found.get("address", ""))
        translate = _TRANSLATED.get(kind) if isinstance(kind, str) else None
        content = found.get("values")
        if translate is None or not isinstance(content, dict) or found.get("mode") == "data":
            continue
        type_name, change = translate
        properties = change(
            _with_unknown(_looked_up(content, bare(address), images), unknown.get(address), 0)
        )
        if "planned_values" not in plan:
            _forget_defaults(properties)
        if roles.get(bare(address)):
            _point_at(properties, roles[bare(address)])
        properties["References"] = pointing.get(bare(address), [])
        resources.append(Resource(address, type_name, from_plain(properties)))
    return Template(name, "Terraform", tuple(resources), unknown=tuple(_unknown(plan)))


def _images(plan: Values) -> dict[str, str]:
    """Address -> the path in SSM where it looks its image up."""
    configuration, prior = (
        _at(plan, "configuration"),
        _at(plan, "prior_state", "values", "root_module"),
    )
    data = [
        one
        for one in _resources(prior)
        if one.get("mode") == "data" and one.get("type") == _PARAMETER
    ]
    paths = {
        bare(str(one.get("address", ""))): str(_at(one, "values").get("name", "")) for one in data
    }
    pointing = references(configuration, "image_id") | references(
        configuration, "image_id_override"
    )
    return {
        address: next(paths[name] for name in names if name in paths)
        for address, names in pointing.items()
        if any(name in paths for name in names)
    }


def _looked_up(content: Values, address: str, images: dict[str, str]) -> Values:
    """The path says more than the id that it led to."""
    if address not in images:
        return content
    path = f"resolve:ssm:{images[address]}"
    if "compute_resources" not in content:
        return content | {"image_id": path}
    return content | {
        "compute_resources": [_block(content, "compute_resources") | {"image_id": path}]
    }


def _point_at(properties: Values, names: list[str]) -> None:
    """What a role is called is not known before it exists; what it is, is."""
    given = _at(properties, "ComputeResources")
    is_known = isinstance(given.get("InstanceRole"), str)
    kinds = {name.split(".")[-2] for name in names}
    if not is_known and kinds == {"aws_iam_role"}:
        given["InstanceRole"] = {"Ref": names[0]}
    elif not is_known and "aws_iam_instance_profile" in kinds:
        given.pop("InstanceRole", None)


def _forget_defaults(properties: Values) -> None:
    """A state also has what nobody asked for: the strategy of a group that is to take no Spot instance at all."""
    spread = _at(properties, "MixedInstancesPolicy", "InstancesDistribution")
    if spread.get("SpotAllocationStrategy") == "lowest-price":
        del spread["SpotAllocationStrategy"]


def _with_unknown(value: Any, unknown: Any, depth: int) -> Any:
    """The values, and PLANNED where one of them is to come."""
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, list) and isinstance(unknown, list):
        padded = [*unknown, *[None] * len(value)]
        return [_with_unknown(one, padded[at], depth + 1) for at, one in enumerate(value)]
    if not isinstance(value, dict) or not isinstance(unknown, dict):
        return value
    planned: Values = {
        key: {f"Fn::{PLANNED}": key} for key, is_open in unknown.items() if is_open is True
    }
    inner = {key: _with_unknown(one, unknown.get(key), depth + 1) for key, one in value.items()}
    given = {key: one for key, one in inner.items() if one not in (None, "", [])}
    return inner | {
        key: one for key, one in planned.items() if key in _WRITTEN and key not in given
    }


def _unknown(plan: Values) -> Iterator[str]:
    """Whose user data is only known when it is applied."""
    for change in _dicts(plan.get("resource_changes")):
        after = _at(change, "change", "after_unknown")
        if any(after.get(key) is True for key in ("user_data", "user_data_base64")):
            # What has base64 of its own leaves the other open.
            if not any(
                _at(change, "change", "after").get(key) for key in ("user_data", "user_data_base64")
            ):
                yield str(change.get("address", ""))


def _resources(module: Values, depth: int = 0) -> Iterator[Values]:
    yield from _dicts(module.get("resources"))
    if depth < _MAX_DEPTH:
        for child in _dicts(module.get("child_modules")):
            yield from _resources(child, depth + 1)


# -- reaching into values of any shape --------------------------------------------------------------------------


def _dicts(value: Any) -> list[Values]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _at(value: Values, *path: str) -> Values:
    for key in path:
        inner = value.get(key)
        value = inner if isinstance(inner, dict) else {}
    return value


def _block(value: Values, key: str) -> Values:
    """A nested block is a list of one."""
    inner = value.get(key)
    blocks = _dicts(inner)
    return blocks[0] if blocks else inner if isinstance(inner, dict) else {}


def _renamed(value: Values, names: dict[str, str]) -> Values:
    return {new: value[old] for old, new in names.items() if value.get(old) not in (None, "", [])}


def _json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return {}


# -- the kinds of resources ---------------------------------------------------------------------------------------


def _compute_environment(values: Values) -> Values:
    given = _block(values, "compute_resources")
    names = {
        "type": "Type",
        "allocation_strategy": "AllocationStrategy",
        "bid_percentage": "BidPercentage",
        "desired_vcpus": "DesiredvCpus",
        "min_vcpus": "MinvCpus",
        "max_vcpus": "MaxvCpus",
        "instance_type": "InstanceTypes",
        "instance_role": "InstanceRole",
        "image_id": "ImageId",
        "spot_iam_fleet_role": "SpotIamFleetRole",
        "subnets": "Subnets",
        "security_group_ids": "SecurityGroupIds",
    }
    resources = _renamed(given, names)
    images = [
        _renamed(image, {"image_type": "ImageType", "image_id_override": "ImageIdOverride"})
        for image in _dicts(given.get("ec2_configuration"))
    ]
    if images:
        resources["Ec2Configuration"] = images
    template = _block(given, "launch_template")
    if template:
        resources["LaunchTemplate"] = _renamed(
            template,
            {
                "launch_template_id": "LaunchTemplateId",
                "launch_template_name": "LaunchTemplateName",
                "version": "Version",
            },
        )
    names = {"type": "Type", "state": "State", "service_role": "ServiceRole"}
    return _renamed(values, names) | {"ComputeResources": resources}


def _launch_template(values: Values) -> Values:
    metadata = _renamed(
        _block(values, "metadata_options"),
        {"http_put_response_hop_limit": "HttpPutResponseHopLimit"},
    )
    data = _renamed(values, {"image_id": "ImageId", "instance_type": "InstanceType"})
    data["UserData"] = _unpacked(values.get("user_data"))
    if metadata:
        data["MetadataOptions"] = metadata
    if market := _block(values, "instance_market_options"):
        data["InstanceMarketOptions"] = market
    names = {"name": "LaunchTemplateName", "id": "LaunchTemplateId"}
    return _renamed(values, names) | {"LaunchTemplateData": data}


def _unpacked(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    try:
        inner = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value
    # What is compressed stays as it is: whoever reads user data unpacks it.
    return value if inner.startswith(b"\x1f\x8b") else inner.decode("utf-8", "replace")


def _machine(values: Values) -> Values:
    packed = values.get("user_data_base64")
    return {"UserData": _unpacked(packed) if packed else values.get("user_data") or ""}


def _spot_fleet(values: Values) -> Values:
    launches = [_machine(launch) for launch in _dicts(values.get("launch_specification"))]
    return {"SpotFleetRequestConfigData": {"LaunchSpecifications": launches}}


def _rule(values: Values) -> list[Values]:
    """One for each CIDR."""
    keys = ("cidr_blocks", "ipv6_cidr_blocks", "cidr_ipv4", "cidr_ipv6")
    cidrs = [cidr for key in keys for cidr in _list(values.get(key)) or [values.get(key)] if cidr]
    names = {
        "from_port": "FromPort",
        "to_port": "ToPort",
        "protocol": "IpProtocol",
        "ip_protocol": "IpProtocol",
    }
    return [_renamed(values, names) | {"CidrIp": cidr} for cidr in cidrs]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _security_group(values: Values) -> Values:
    return {
        "SecurityGroupIngress": [
            one for rule in _dicts(values.get("ingress")) for one in _rule(rule)
        ]
    }


def _one_rule(values: Values) -> Values:
    return {
        "SecurityGroupIngress": _rule(values) if values.get("type", "ingress") == "ingress" else []
    }


def _policy(values: Values) -> Values:
    return {"PolicyDocument": _json(values.get("policy") or "")}


def _role(values: Values) -> Values:
    inline = [
        {"PolicyDocument": _json(p.get("policy"))} for p in _dicts(values.get("inline_policy"))
    ]
    return {"Policies": inline, "ManagedPolicyArns": _list(values.get("managed_policy_arns"))}


def _attachment(values: Values) -> Values:
    return {
        "ManagedPolicyArns": [
            arn for arn in [values.get("policy_arn"), *_list(values.get("policy_arns"))] if arn
        ]
    }


def _group(values: Values) -> Values:
    spread = _block(_block(values, "mixed_instances_policy"), "instances_distribution")
    names = {
        "on_demand_percentage_above_base_capacity": "OnDemandPercentageAboveBaseCapacity",
        "spot_allocation_strategy": "SpotAllocationStrategy",
        "spot_max_price": "SpotMaxPrice",
    }
    found: Values = {
        "NewInstancesProtectedFromScaleIn": values.get("protect_from_scale_in", False),
        "Arn": values.get("arn") or "",
    }
    if values.get("mixed_instances_policy"):
        found["MixedInstancesPolicy"] = {"InstancesDistribution": _renamed(spread, names)}
    return found


def _job_definition(values: Values) -> Values:
    strategy = _block(values, "retry_strategy")
    names = {
        "action": "Action",
        "on_exit_code": "OnExitCode",
        "on_reason": "OnReason",
        "on_status_reason": "OnStatusReason",
    }
    rules = [_renamed(rule, names) for rule in _dicts(strategy.get("evaluate_on_exit"))]
    given = {key: _json(values.get(f"{key}_properties")) for key in ("container", "ecs", "node")}
    nodes = _dicts(_at(given, "node").get("nodeRangeProperties"))
    return {
        "RetryStrategy": _renamed(strategy, {"attempts": "Attempts"}) | {"EvaluateOnExit": rules},
        "ContainerProperties": _container(_at(given, "container")),
        "EcsProperties": _tasks(_at(given, "ecs")),
        "NodeProperties": {
            "NodeRangeProperties": [
                {
                    "Container": _container(_at(node, "container")),
                    "EcsProperties": _tasks(_at(node, "ecsProperties")),
                }
                for node in nodes
            ]
        },
    }


def _container(values: Values) -> Values:
    """As the API spells it, in JSON."""
    needs = _dicts(values.get("resourceRequirements"))
    return {
        "ResourceRequirements": [
            _renamed(need, {"type": "Type", "value": "Value"}) for need in needs
        ]
    }


def _tasks(values: Values) -> Values:
    tasks = _dicts(values.get("taskProperties"))
    return {
        "TaskProperties": [
            {"Containers": list(map(_container, _dicts(task.get("containers"))))} for task in tasks
        ]
    }


def _capacity_provider(values: Values) -> Values:
    given = _block(values, "auto_scaling_group_provider")
    names = {
        "auto_scaling_group_arn": "AutoScalingGroupArn",
        "managed_termination_protection": "ManagedTerminationProtection",
    }
    scaling = _renamed(_block(given, "managed_scaling"), {"status": "Status"})
    return {
        "AutoScalingGroupProvider": _renamed(given, names)
        | ({"ManagedScaling": scaling} if scaling else {})
    }


def _nothing(values: Values) -> Values:
    return {}


_TRANSLATED: dict[str, tuple[str, Callable[[Values], Values]]] = {
    "aws_batch_compute_environment": ("AWS::Batch::ComputeEnvironment", _compute_environment),
    "aws_batch_job_definition": ("AWS::Batch::JobDefinition", _job_definition),
    "aws_launch_template": ("AWS::EC2::LaunchTemplate", _launch_template),
    "aws_launch_configuration": ("AWS::AutoScaling::LaunchConfiguration", _machine),
    "aws_instance": ("AWS::EC2::Instance", _machine),
    "aws_autoscaling_group": ("AWS::AutoScaling::AutoScalingGroup", _group),
    "aws_spot_instance_request": ("AWS::EC2::Instance", _machine),
    "aws_spot_fleet_request": ("AWS::EC2::SpotFleet", _spot_fleet),
    "aws_security_group": ("AWS::EC2::SecurityGroup", _security_group),
    "aws_default_security_group": ("AWS::EC2::SecurityGroup", _security_group),
    "aws_security_group_rule": ("AWS::EC2::SecurityGroupIngress", _one_rule),
    "aws_vpc_security_group_ingress_rule": ("AWS::EC2::SecurityGroupIngress", _one_rule),
    "aws_iam_policy": ("AWS::IAM::ManagedPolicy", _policy),
    "aws_iam_role_policy": ("AWS::IAM::Policy", _policy),
    "aws_iam_user_policy": ("AWS::IAM::Policy", _policy),
    "aws_iam_group_policy": ("AWS::IAM::Policy", _policy),
    "aws_iam_role": ("AWS::IAM::Role", _role),
    "aws_iam_role_policy_attachment": ("AWS::IAM::Role", _attachment),
    "aws_iam_role_policy_attachments_exclusive": ("AWS::IAM::Role", _attachment),
    "aws_iam_policy_attachment": ("AWS::IAM::Role", _attachment),
    "aws_iam_user_policy_attachment": ("AWS::IAM::User", _attachment),
    "aws_iam_group_policy_attachment": ("AWS::IAM::Group", _attachment),
    "aws_ecs_cluster": ("AWS::ECS::Cluster", _nothing),
    "aws_ecs_service": ("AWS::ECS::Service", _nothing),
    "aws_ecs_capacity_provider": ("AWS::ECS::CapacityProvider", _capacity_provider),
    "aws_lb": ("AWS::ElasticLoadBalancingV2::LoadBalancer", _nothing),
    "aws_alb": ("AWS::ElasticLoadBalancingV2::LoadBalancer", _nothing),
    "aws_elb": ("AWS::ElasticLoadBalancing::LoadBalancer", _nothing),
}
