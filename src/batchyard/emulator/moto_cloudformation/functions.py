"""Functions of CloudFormation that moto does not know, or answers with nonsense."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.ec2.models import ec2_backends
from moto.ssm.models import ssm_backends

from batchyard.emulator.moto_cloudformation.own_model import Refused

#: what Fn::Cidr leaves to each block where nothing is said: a /24
_DEFAULT_HOST_BITS = 8

_FROM_SSM = re.compile(r"[{][{]resolve:ssm:(?P<name>[^${}]+)[}][}]")

_moto_resolved = parsing.clean_json


def resolved(value: Any, resources: Any) -> Any:
    """A part of a template with its functions resolved; ``resources``: what it may refer to, by name."""
    found = _resolved(value, resources)
    if isinstance(found, str) and "{{resolve:ssm:" in found:
        return _FROM_SSM.sub(lambda reference: _from_ssm(reference["name"], resources), found)
    return found


def _resolved(value: Any, resources: Any) -> Any:
    if isinstance(value, list):
        # An AWS::NoValue in a list takes its place away.
        return [item for item in (resolved(one, resources) for one in value) if item is not None]
    if not isinstance(value, dict) or len(value) != 1:
        return _moto_resolved(value, resources)
    ((function, argument),) = value.items()
    ours = _FUNCTIONS.get(function)
    return _moto_resolved(value, resources) if ours is None else ours(argument, resources)


def _from_ssm(name: str, resources: Any) -> str:
    """A dynamic reference: `/dev/image`, or with a version `/dev/image:2`."""
    parameter = ssm_backends[resources["AWS::AccountId"]][resources["AWS::Region"]].get_parameter(
        name
    )
    if parameter is None:
        raise Refused(f"Parameters: [ssm:{name}] cannot be found.")
    return str(parameter.value)


def _cidr(argument: Any, resources: Any) -> list[str]:
    block, count, *bits = resolved(argument, resources)
    network = ipaddress.ip_network(block)
    prefix = network.max_prefixlen - int(bits[0] if bits else _DEFAULT_HOST_BITS)
    if not network.prefixlen <= prefix <= network.max_prefixlen or int(count) > 2 ** (
        prefix - network.prefixlen
    ):
        raise Refused(f"Template error: Fn::Cidr: {block} has no {count} blocks of /{prefix}")
    return [
        str(subnet)
        for subnet, _ in zip(network.subnets(new_prefix=prefix), range(int(count)), strict=False)
    ]


def _zones(argument: Any, resources: Any) -> list[str]:
    region = resolved(argument, resources) or resources["AWS::Region"]
    zones = ec2_backends[resources["AWS::AccountId"]][region].describe_availability_zones()
    return [zone.name for zone in zones]


def _select(argument: Any, resources: Any) -> Any:
    index, items = int(resolved(argument[0], resources)), resolved(argument[1], resources)
    if not 0 <= index < len(items):
        raise Refused(
            f"Template error: Fn::Select cannot select nonexistent value at index {index}"
        )
    return items[index]


def _attribute(argument: Any, resources: Any) -> Any:
    name, attribute = (
        argument.split(".", 1) if isinstance(argument, str) else (argument[0], argument[1])
    )
    attribute = resolved(attribute, resources)
    resource = resources[name]
    try:
        return resource.get_cfn_attribute(attribute)
    except (NotImplementedError, AttributeError, UnformattedGetAttTemplateException) as exc:
        raise Refused(
            f"Template error: resource {name} does not support attribute type {attribute} in Fn::GetAtt"
        ) from exc


def _imported(argument: Any, resources: Any) -> Any:
    name = resolved(argument, resources)
    export = resources.cross_stack_resources.get(name)
    if export is None:
        raise Refused(f"No export named {name} found.")
    resources.imports.add(name)
    return export.value


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Fn::Cidr": _cidr,
    "Fn::GetAZs": _zones,
    "Fn::Select": _select,
    "Fn::GetAtt": _attribute,
    "Fn::ImportValue": _imported,
    "Fn::Length": lambda argument, resources: len(resolved(argument, resources)),
}
