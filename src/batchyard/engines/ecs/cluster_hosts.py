"""The hosts that tasks of a cluster may get: those of its Auto Scaling groups, or those it has now.

For estimates and caps: they need the types of the hosts, and their largest number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from batchyard.aws.autoscaling import AutoScaling
from batchyard.aws.ec2 import Ec2
from batchyard.aws.ecs import MAX_HOSTS, Ecs
from batchyard.aws.session import AwsSession
from batchyard.engines.base import FARGATE_CHOICE, HostChoice
from batchyard.engines.ec2_hosts import read_container_instance
from batchyard.engines.ecs.requests import is_fargate
from batchyard.environments import Environment


def find_hosts(
    session: AwsSession, environment: Environment, cluster: Mapping[str, Any]
) -> tuple[HostChoice, ...]:
    """Return the hosts that a task may get; empty if none are known.

    ``cluster``: its description. Raises AccessDeniedError or AwsRefusedError.
    """
    if is_fargate(environment):
        return (FARGATE_CHOICE,)
    names = list_providers(environment, cluster)
    if not names:
        return _find_registered(Ecs(session), str(cluster["clusterName"]))
    choices = []
    for provider in Ecs(session).capacity_providers(names):
        arn = provider.get("autoScalingGroupProvider", {}).get("autoScalingGroupArn", "")
        if not arn:
            choices.append(FARGATE_CHOICE)
            continue
        group = AutoScaling(session).group(arn.rpartition("autoScalingGroupName/")[2])
        if group is not None:
            choices.append(read_group(group, _find_template_type(Ec2(session), group)))
    # Types of a launch configuration, or by attributes, are not known.
    are_known = all(choice.type_names or choice == FARGATE_CHOICE for choice in choices)
    return tuple(choices) if are_known else ()


def list_providers(environment: Environment, cluster: Mapping[str, Any]) -> list[str]:
    """Return the capacity providers of new tasks; none if they go to hosts that are there."""
    if environment.capacity_provider:
        return [environment.capacity_provider]
    if environment.launch_type:
        return []
    strategy = cluster.get("defaultCapacityProviderStrategy", ())
    return [str(entry["capacityProvider"]) for entry in strategy]


def read_group(group: Mapping[str, Any], template_type: str) -> HostChoice:
    """Return the hosts of an Auto Scaling group; without types if it chooses them by attributes.

    ``template_type``: the type in its launch template; empty if it is not needed.
    """
    policy = group.get("MixedInstancesPolicy", {})
    overrides = policy.get("LaunchTemplate", {}).get("Overrides", ())
    names = [entry["InstanceType"] for entry in overrides if entry.get("InstanceType")]
    if any("InstanceRequirements" in entry for entry in overrides):
        template_type = ""  # they come before the type of the template
    # With weights, the size of a group is not a number of hosts.
    has_weights = any(entry.get("WeightedCapacity") for entry in overrides)
    distribution = policy.get("InstancesDistribution", {})
    on_demand = (
        distribution.get("OnDemandBaseCapacity", 0),
        distribution.get("OnDemandPercentageAboveBaseCapacity", 100),
    )
    return HostChoice(
        tuple(names or filter(None, [template_type])),
        is_spot=not any(on_demand),
        max_hosts=None if has_weights else int(group["MaxSize"]),
    )


def _find_template_type(ec2: Ec2, group: Mapping[str, Any]) -> str:
    """Return the type in the launch template of a group that names no types itself."""
    policy = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    if any(entry.get("InstanceType") for entry in policy.get("Overrides", ())):
        return ""
    template = policy.get("LaunchTemplateSpecification") or group.get("LaunchTemplate")
    if not template:
        return ""
    description = ec2.launch_template(
        str(template.get("Version") or "$Default"),
        id=template.get("LaunchTemplateId", ""),
        name=template.get("LaunchTemplateName", ""),
    )
    return str(description["LaunchTemplateData"].get("InstanceType", ""))


def _find_registered(ecs: Ecs, cluster: str) -> tuple[HostChoice, ...]:
    arns = ecs.host_arns(cluster)
    return count_hosts(ecs.hosts(cluster, arns)) if arns else ()


def count_hosts(instances: Iterable[Mapping[str, Any]]) -> tuple[HostChoice, ...]:
    """Return the container instances of a cluster by type.

    Their number is not known if there may be more than one call returns.
    """
    types = Counter(read_container_instance(instance).type for instance in instances)
    is_whole = types.total() < MAX_HOSTS
    return tuple(
        HostChoice((name,), max_hosts=count if is_whole else None)
        for name, count in sorted(types.items())
        if name
    )
