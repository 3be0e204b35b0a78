"""Look at an account before a deployment: zones without a type, quotas of zero, fixed costs.

Nothing here changes anything on AWS. What cannot be read is noted, and no reason to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from batchyard import ec2_types as types
from batchyard.aws.ec2 import Ec2
from batchyard.aws.quotas import Quotas
from batchyard.aws.session import AwsSession
from batchyard.ec2_prices import load_prices
from batchyard.errors import BatchyardError, InputError
from batchyard.infra import catalogue, fixed_costs, instance_choices
from batchyard.infra.catalogue import Template
from batchyard.infra.instance_choices import GPU_TYPE_PARAMETERS, Values, list_types
from batchyard.infra.stacks import Stacks, parameters_of

_ALWAYS_READ = ("image", "network")
#: (template, parameter with types, parameter with the largest number of vCPUs, is spot)
_CAPACITIES = (
    ("batch", "CpuInstanceTypes", "CpuSpotMaxvCpus", True),
    ("batch", "CpuInstanceTypes", "CpuOnDemandMaxvCpus", False),
    ("batch", "GpuInstanceTypes", "GpuSpotMaxvCpus", True),
    ("batch", "GpuInstanceTypes", "GpuOnDemandMaxvCpus", False),
    ("batch-unmanaged", "InstanceTypes", "MaxNodes", False),
    ("ecs", "InstanceTypes", "MaxNodes", True),
    ("spotfleet", "InstanceTypes", "Nodes", True),
)


def read_values(
    stacks: Stacks, templates: Sequence[Template], environment: str, settings: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return template -> the values that its parameters have after the deployment.

    Some stacks are read also if they are not deployed now: nodes start from the image of `image`,
    in the zones of `network`.
    """
    values = {}
    for template in templates:
        stack = stacks.find(template.stack_of(environment))
        deployed = parameters_of(stack) if stack else {}
        values[template.name] = catalogue.effective_values(
            template, environment, settings, deployed
        )
    for template in map(catalogue.load_template, _ALWAYS_READ):
        stack = None if template.name in values else stacks.find(template.stack_of(environment))
        if stack:
            values[template.name] = catalogue.effective_values(
                template, environment, {}, parameters_of(stack)
            )
    return values


def require_workable(values: Values, environment: str) -> None:
    """Raise InputError for the first value that AWS accepts and that cannot work."""
    for problem in instance_choices.find_problems(values, environment):
        raise InputError(
            f"{problem.template}: {problem.parameter}={problem.value}: {problem.problem}",
            hint=problem.hint,
        )


def describe_account(session: AwsSession, values: Values) -> list[str]:
    """Return lines about zones, quotas and fixed costs, to be shown before a deployment."""
    lines = [*_describe_zones(session, values), *_describe_quotas(session, values)]
    prices = load_prices()
    costs = fixed_costs.list_fixed_costs(values, prices)
    return lines + fixed_costs.describe_fixed_costs(costs, prices.fixed_source)


# -- zones ---------------------------------------------------------------------------------------


def _describe_zones(session: AwsSession, values: Values) -> list[str]:
    network = values.get("network", {})
    if not network or network.get("ExistingVpc"):
        return []
    try:
        ec2 = Ec2(session)
        region_zones = ec2.zones()
        names = sorted(
            {
                name
                for template, parameter in GPU_TYPE_PARAMETERS.items()
                for name in list_types(values.get(template, {}).get(parameter, ""))
                if "." in name
            }
        )
        offered = ec2.offerings(names) if names else []
    except BatchyardError as exc:
        return [f"zones were not checked: {exc.message}"]
    zones_by_type: dict[str, set[str]] = {name: set() for name in names}
    for offering in offered:
        zones_by_type[offering["InstanceType"]].add(offering["Location"])
    return describe_zones(region_zones, int(network["Zones"]), zones_by_type)


def describe_zones(
    region_zones: Sequence[str], count: int, zones_by_type: Mapping[str, Iterable[str]]
) -> list[str]:
    """Return lines about zones of the network that do not offer a type.

    ``region_zones`` are all zones of the region; the network uses the first ``count`` of them.
    """
    if count > len(region_zones):
        return [
            f"this region has {len(region_zones)} zones for you, and the network asks for {count}:"
            f" deploy with --set Zones={len(region_zones)}"
        ]
    zones = sorted(region_zones)[:count]
    lines = []
    for name, offered in zones_by_type.items():
        missing = [zone for zone in zones if zone not in set(offered)]
        if missing and len(missing) == count:
            lines.append(f"{name} is offered in none of {', '.join(zones)}: it never starts")
        elif missing:
            lines.append(f"{name} is not offered in {', '.join(missing)}")
    return lines


# -- quotas --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuotaUse:
    code: str
    #: What the environment would use, in vCPUs; 0 where it is counted in nodes.
    vcpus: int
    #: The parameters that ask for it.
    parameters: tuple[str, ...]


def list_quota_uses(values: Values) -> list[QuotaUse]:
    """Return the EC2 quotas that the nodes of these stacks count against."""
    uses: dict[str, QuotaUse] = {}
    for template, types_parameter, limit_parameter, is_spot in _CAPACITIES:
        settings = values.get(template, {})
        limit = int(float(settings.get(limit_parameter, "0")))
        names = list_types(settings.get(types_parameter, ""))
        codes = {types.quota_code(name, is_spot) for name in names} - {""}
        for code in codes if limit else ():
            old = uses.get(code, QuotaUse(code, 0, ()))
            vcpus = limit if limit_parameter.endswith("vCpus") else 0
            parameters = (*old.parameters, f"{limit_parameter} of {template}")
            uses[code] = QuotaUse(code, old.vcpus + vcpus, parameters)
    return list(uses.values())


def _describe_quotas(session: AwsSession, values: Values) -> list[str]:
    lines, unread = [], []
    for use in list_quota_uses(values):
        try:
            quota = Quotas(session).ec2(use.code)
        except BatchyardError as exc:
            unread.append((use.code, exc.message))
            continue
        lines += describe_quota(use, float(quota["Value"]), quota.get("QuotaName", ""))
    if unread:
        codes = ", ".join(code for code, _ in unread)
        lines.append(f"quotas were not read ({codes}): {unread[0][1]}")
    return lines


def describe_quota(use: QuotaUse, value: float, name: str) -> list[str]:
    """Return lines about a quota that lets no node start, or fewer than the parameters allow."""
    parameter_names = ", ".join(use.parameters)
    command = (
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code"
        f" {use.code} --desired-value {max(use.vcpus, 4)}"
    )
    if value <= 0:
        return [
            f"the quota {use.code} ({name}) is 0: no node of {parameter_names} can start",
            f"  {command}",
        ]
    if value < use.vcpus:
        return [
            f"the quota {use.code} ({name}) is {value:g} vCPUs, below the {use.vcpus} of "
            f"{parameter_names}"
        ]
    return []
