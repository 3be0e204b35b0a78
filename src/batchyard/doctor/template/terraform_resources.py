"""Translate resources of Terraform to CloudFormation's names, as the checks need them. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

Values = dict[str, Any]


# -- reaching into values of any shape -----------------------------------------------------------


def dicts_in(value: Any) -> list[Values]:
    """Return the dicts of a list; none if the value is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def dict_at(value: Values, *path: str) -> Values:
    """Return the dict at the path; an empty one if there is none."""
    for key in path:
        child = value.get(key)
        value = child if isinstance(child, dict) else {}
    return value


def first_block(value: Values, key: str) -> Values:
    """Return a nested block, which Terraform writes as a list with one item."""
    block = value.get(key)
    blocks = dicts_in(block)
    if blocks:
        return blocks[0]
    return block if isinstance(block, dict) else {}


def _rename(value: Values, *names: str, **other_names: str) -> Values:
    """Return the values that are set by CloudFormation's names: `image_id` becomes `ImageId`.

    ``other_names`` are names that differ in more than their form.
    """
    new_names = {name: "".join(map(str.capitalize, name.split("_"))) for name in names}
    return {
        new: value[old]
        for old, new in (new_names | other_names).items()
        if value.get(old) not in (None, "", [])
    }


def _parse_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return {}


# -- translations --------------------------------------------------------------------------------


def _translate_environment(values: Values) -> Values:
    block = first_block(values, "compute_resources")
    resources = _rename(
        block,
        *("type", "allocation_strategy", "bid_percentage", "instance_role", "image_id"),
        *("spot_iam_fleet_role", "subnets", "security_group_ids"),
        desired_vcpus="DesiredvCpus",
        min_vcpus="MinvCpus",
        max_vcpus="MaxvCpus",
        instance_type="InstanceTypes",
    )
    images = [
        _rename(image, "image_type", "image_id_override")
        for image in dicts_in(block.get("ec2_configuration"))
    ]
    if images:
        resources["Ec2Configuration"] = images
    template = first_block(block, "launch_template")
    if template:
        names = ("launch_template_id", "launch_template_name", "version")
        resources["LaunchTemplate"] = _rename(template, *names)
    return _rename(values, "type", "state", "service_role") | {"ComputeResources": resources}


def _translate_launch_template(values: Values) -> Values:
    options = first_block(values, "metadata_options")
    metadata = _rename(options, "http_put_response_hop_limit")
    data = _rename(values, "image_id", "instance_type")
    data["UserData"] = _decode_user_data(values.get("user_data"))
    if metadata:
        data["MetadataOptions"] = metadata
    if market := first_block(values, "instance_market_options"):
        data["InstanceMarketOptions"] = market
    names = _rename(values, name="LaunchTemplateName", id="LaunchTemplateId")
    return names | {"LaunchTemplateData": data}


def _decode_user_data(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value
    # Compressed user data stays as it is: the reader of user data decompresses it.
    is_gzip = decoded.startswith(b"\x1f\x8b")
    return value if is_gzip else decoded.decode("utf-8", "replace")


def _translate_instance(values: Values) -> Values:
    packed = values.get("user_data_base64")
    return {"UserData": _decode_user_data(packed) if packed else values.get("user_data") or ""}


def _translate_spot_fleet(values: Values) -> Values:
    launches = [
        _translate_instance(launch) for launch in dicts_in(values.get("launch_specification"))
    ]
    return {"SpotFleetRequestConfigData": {"LaunchSpecifications": launches}}


def _translate_rules(values: Values) -> list[Values]:
    """Return one ingress rule for each CIDR."""
    keys = ("cidr_blocks", "ipv6_cidr_blocks", "cidr_ipv4", "cidr_ipv6")
    cidrs = [
        cidr for key in keys for cidr in _as_list(values.get(key)) or [values.get(key)] if cidr
    ]
    rule = _rename(values, "from_port", "to_port", "ip_protocol", protocol="IpProtocol")
    return [rule | {"CidrIp": cidr} for cidr in cidrs]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _translate_security_group(values: Values) -> Values:
    return {
        "SecurityGroupIngress": [
            translated
            for rule in dicts_in(values.get("ingress"))
            for translated in _translate_rules(rule)
        ]
    }


def _translate_rule_resource(values: Values) -> Values:
    return {
        "SecurityGroupIngress": _translate_rules(values)
        if values.get("type", "ingress") == "ingress"
        else []
    }


def _translate_policy(values: Values) -> Values:
    return {"PolicyDocument": _parse_json(values.get("policy") or "")}


def _translate_role(values: Values) -> Values:
    inline = [
        {"PolicyDocument": _parse_json(p.get("policy"))}
        for p in dicts_in(values.get("inline_policy"))
    ]
    return {"Policies": inline, "ManagedPolicyArns": _as_list(values.get("managed_policy_arns"))}


def _translate_attachment(values: Values) -> Values:
    return {
        "ManagedPolicyArns": [
            arn for arn in [values.get("policy_arn"), *_as_list(values.get("policy_arns"))] if arn
        ]
    }


def _translate_group(values: Values) -> Values:
    distribution = first_block(
        first_block(values, "mixed_instances_policy"), "instances_distribution"
    )
    names = (
        "on_demand_percentage_above_base_capacity",
        "spot_allocation_strategy",
        "spot_max_price",
    )
    group: Values = {
        "NewInstancesProtectedFromScaleIn": values.get("protect_from_scale_in", False),
        "Arn": values.get("arn") or "",
    }
    if values.get("mixed_instances_policy"):
        group["MixedInstancesPolicy"] = {"InstancesDistribution": _rename(distribution, *names)}
    return group


def _translate_job_definition(values: Values) -> Values:
    strategy = first_block(values, "retry_strategy")
    names = ("action", "on_exit_code", "on_reason", "on_status_reason")
    rules = [_rename(rule, *names) for rule in dicts_in(strategy.get("evaluate_on_exit"))]
    properties = {
        key: _parse_json(values.get(f"{key}_properties")) for key in ("container", "ecs", "node")
    }
    nodes = dicts_in(dict_at(properties, "node").get("nodeRangeProperties"))
    return {
        "RetryStrategy": _rename(strategy, "attempts") | {"EvaluateOnExit": rules},
        "ContainerProperties": _translate_container(dict_at(properties, "container")),
        "EcsProperties": _translate_tasks(dict_at(properties, "ecs")),
        "NodeProperties": {
            "NodeRangeProperties": [
                {
                    "Container": _translate_container(dict_at(node, "container")),
                    "EcsProperties": _translate_tasks(dict_at(node, "ecsProperties")),
                }
                for node in nodes
            ]
        },
    }


def _translate_container(values: Values) -> Values:
    """Translate a container in the JSON form of the API."""
    needs = dicts_in(values.get("resourceRequirements"))
    return {"ResourceRequirements": [_rename(need, "type", "value") for need in needs]}


def _translate_tasks(values: Values) -> Values:
    tasks = dicts_in(values.get("taskProperties"))
    return {
        "TaskProperties": [
            {"Containers": list(map(_translate_container, dicts_in(task.get("containers"))))}
            for task in tasks
        ]
    }


def _translate_capacity_provider(values: Values) -> Values:
    provider = first_block(values, "auto_scaling_group_provider")
    names = ("auto_scaling_group_arn", "managed_termination_protection")
    scaling = _rename(first_block(provider, "managed_scaling"), "status")
    return {
        "AutoScalingGroupProvider": _rename(provider, *names)
        | ({"ManagedScaling": scaling} if scaling else {})
    }


def _translate_nothing(values: Values) -> Values:
    return {}


TRANSLATIONS: dict[str, tuple[str, Callable[[Values], Values]]] = {
    "aws_batch_compute_environment": ("AWS::Batch::ComputeEnvironment", _translate_environment),
    "aws_batch_job_definition": ("AWS::Batch::JobDefinition", _translate_job_definition),
    "aws_launch_template": ("AWS::EC2::LaunchTemplate", _translate_launch_template),
    "aws_launch_configuration": ("AWS::AutoScaling::LaunchConfiguration", _translate_instance),
    "aws_instance": ("AWS::EC2::Instance", _translate_instance),
    "aws_autoscaling_group": ("AWS::AutoScaling::AutoScalingGroup", _translate_group),
    "aws_spot_instance_request": ("AWS::EC2::Instance", _translate_instance),
    "aws_spot_fleet_request": ("AWS::EC2::SpotFleet", _translate_spot_fleet),
    "aws_security_group": ("AWS::EC2::SecurityGroup", _translate_security_group),
    "aws_default_security_group": ("AWS::EC2::SecurityGroup", _translate_security_group),
    "aws_security_group_rule": ("AWS::EC2::SecurityGroupIngress", _translate_rule_resource),
    "aws_vpc_security_group_ingress_rule": (
        "AWS::EC2::SecurityGroupIngress",
        _translate_rule_resource,
    ),
    "aws_iam_policy": ("AWS::IAM::ManagedPolicy", _translate_policy),
    "aws_iam_role_policy": ("AWS::IAM::Policy", _translate_policy),
    "aws_iam_user_policy": ("AWS::IAM::Policy", _translate_policy),
    "aws_iam_group_policy": ("AWS::IAM::Policy", _translate_policy),
    "aws_iam_role": ("AWS::IAM::Role", _translate_role),
    "aws_iam_role_policy_attachment": ("AWS::IAM::Role", _translate_attachment),
    "aws_iam_role_policy_attachments_exclusive": ("AWS::IAM::Role", _translate_attachment),
    "aws_iam_policy_attachment": ("AWS::IAM::Role", _translate_attachment),
    "aws_iam_user_policy_attachment": ("AWS::IAM::User", _translate_attachment),
    "aws_iam_group_policy_attachment": ("AWS::IAM::Group", _translate_attachment),
    "aws_ecs_cluster": ("AWS::ECS::Cluster", _translate_nothing),
    "aws_ecs_service": ("AWS::ECS::Service", _translate_nothing),
    "aws_ecs_capacity_provider": ("AWS::ECS::CapacityProvider", _translate_capacity_provider),
    "aws_lb": ("AWS::ElasticLoadBalancingV2::LoadBalancer", _translate_nothing),
    "aws_alb": ("AWS::ElasticLoadBalancingV2::LoadBalancer", _translate_nothing),
    "aws_elb": ("AWS::ElasticLoadBalancing::LoadBalancer", _translate_nothing),
}
