"""Resolve the functions of CloudFormation that moto does not know or resolves wrongly."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.ec2.models import ec2_backends
from moto.ssm.models import ssm_backends

from batchyard.emulator.moto_cloudformation.resource_model import ResourceError

#: host bits of the blocks of Fn::Cidr without its third argument: a /24 in IPv4
_DEFAULT_HOST_BITS = 8

_SSM_REFERENCE = re.compile(r"[{][{]resolve:ssm:(?P<name>[^${}]+)[}][}]")

_resolve_by_moto = parsing.clean_json


def resolve(value: Any, resources: Any) -> Any:
    """Return a part of a template with its functions resolved.

    ``resources`` maps names to the resources and parameters that the part may refer to.
    """
    resolved_value = _resolve_functions(value, resources)
    # moto 5.2.5: leaves dynamic references as they are.
    if isinstance(resolved_value, str) and "{{resolve:ssm:" in resolved_value:
        return _SSM_REFERENCE.sub(
            lambda reference: _ssm_value(reference["name"], resources), resolved_value
        )
    return resolved_value


def _resolve_functions(value: Any, resources: Any) -> Any:
    if isinstance(value, list):
        # moto 5.2.5: leaves a None in the list for AWS::NoValue, which removes the member.
        members = (resolve(member, resources) for member in value)
        return [member for member in members if member is not None]
    if not isinstance(value, dict) or len(value) != 1:
        return _resolve_by_moto(value, resources)
    ((function, argument),) = value.items()
    resolve_function = _FUNCTIONS.get(function)
    if resolve_function is None:
        return _resolve_by_moto(value, resources)
    return resolve_function(argument, resources)


def _ssm_value(name: str, resources: Any) -> str:
    """Return the value of a parameter: `/dev/image`, or with a version `/dev/image:2`."""
    backend = ssm_backends[resources["AWS::AccountId"]][resources["AWS::Region"]]
    parameter = backend.get_parameter(name)
    if parameter is None:
        raise ResourceError(f"Parameters: [ssm:{name}] cannot be found.")
    return str(parameter.value)


def _cidr(argument: Any, resources: Any) -> list[str]:
    block, count, *host_bits = resolve(argument, resources)
    network = ipaddress.ip_network(block)
    prefix = network.max_prefixlen - int(host_bits[0] if host_bits else _DEFAULT_HOST_BITS)
    is_valid = network.prefixlen <= prefix <= network.max_prefixlen
    if not is_valid or int(count) > 2 ** (prefix - network.prefixlen):
        raise ResourceError(f"Template error: Fn::Cidr: {block} has no {count} blocks of /{prefix}")
    subnets = network.subnets(new_prefix=prefix)
    return [str(subnet) for subnet, _ in zip(subnets, range(int(count)), strict=False)]


def _availability_zones(argument: Any, resources: Any) -> list[str]:
    region = resolve(argument, resources) or resources["AWS::Region"]
    zones = ec2_backends[resources["AWS::AccountId"]][region].describe_availability_zones()
    return [zone.name for zone in zones]


def _select(argument: Any, resources: Any) -> Any:
    index, members = int(resolve(argument[0], resources)), resolve(argument[1], resources)
    if not 0 <= index < len(members):
        raise ResourceError(
            f"Template error: Fn::Select cannot select nonexistent value at index {index}"
        )
    return members[index]


def _attribute(argument: Any, resources: Any) -> Any:
    name, *parts = argument.split(".") if isinstance(argument, str) else argument
    attribute = ".".join(resolve(part, resources) for part in parts)
    resource = resources[name]
    try:
        return resource.get_cfn_attribute(attribute)
    except (NotImplementedError, AttributeError, UnformattedGetAttTemplateException) as exc:
        raise ResourceError(
            f"Template error: resource {name} does not support attribute type {attribute} "
            "in Fn::GetAtt"
        ) from exc


def _imported_value(argument: Any, resources: Any) -> Any:
    name = resolve(argument, resources)
    export = resources.cross_stack_resources.get(name)
    if export is None:
        raise ResourceError(f"No export named {name} found.")
    resources.imports.add(name)
    return export.value


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    # moto 5.2.5: does not know these two.
    "Fn::Cidr": _cidr,
    "Fn::Length": lambda argument, resources: len(resolve(argument, resources)),
    # moto 5.2.5: does not resolve its argument, and gives every region zones a to d.
    "Fn::GetAZs": _availability_zones,
    # moto 5.2.5: does not resolve the index, and raises IndexError past the end.
    "Fn::Select": _select,
    # moto 5.2.5: does not read "Name.Attribute", and ignores an attribute that it lacks.
    "Fn::GetAtt": _attribute,
    # moto 5.2.5: does not record which stack imports a value.
    "Fn::ImportValue": _imported_value,
}
