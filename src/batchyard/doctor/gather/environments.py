"""Gather what belongs to each compute environment: launch template, roles, instances, hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from batchyard.aws.autoscaling import AutoScaling
from batchyard.aws.ec2 import Ec2
from batchyard.aws.ecs import Ecs
from batchyard.aws.iam import Iam
from batchyard.doctor.checks.roles.fleet_role_unusable import TAGGING_POLICY
from batchyard.doctor.checks.roles.instance_role_too_weak import ECS_POLICY
from batchyard.doctor.checks.roles.spot_roles import uses_spot_fleet
from batchyard.doctor.facts import Activity, Environment, FleetRole, Host, Missing, Profile
from batchyard.doctor.gather import environment_shapes as shapes
from batchyard.doctor.gather.aws_calls import AwsCalls
from batchyard.doctor.gather.job_shapes import name_of

#: Actions that the ECS agent takes in its first minute.
AGENT_ACTIONS = (
    "ecs:DiscoverPollEndpoint",
    "ecs:RegisterContainerInstance",
    "ecs:Poll",
    "ecs:SubmitTaskStateChange",
    "ecr:GetAuthorizationToken",
)
_NO_SUCH_ROLE = ("NoSuchEntity", "NoSuchEntityException")
_MAX_GROUP_PAGES = 2
_FLEET_HISTORY = timedelta(hours=12)

Document = Mapping[str, Any]
#: (id, name, version) of a launch template -> its content; environments often share one
_Templates = dict[tuple[str, ...], Any | Missing]


def gather(calls: AwsCalls, documents: Sequence[Document], now_ms: int) -> tuple[Environment, ...]:
    """Return the environments with everything that AWS answers about them.

    Each kind of fact is gathered for all environments before the next kind: the first kinds are the
    most useful, and the number of calls is limited.
    """
    templates: _Templates = {}

    def add(
        function: Callable[[AwsCalls, Document, Environment], Environment],
        environments: Sequence[Environment],
    ) -> list[Environment]:
        pairs = zip(documents, environments, strict=True)
        return [function(calls, document, environment) for document, environment in pairs]

    environments = [_read_environment(calls, document, templates) for document in documents]
    environments = _add_profiles(calls, documents, environments)
    environments = add(_add_hosts, environments)
    environments = _add_groups(calls, environments)
    environments = add(_add_fleet_role, environments)
    return tuple(add(partial(_add_fleet_failures, now_ms=now_ms), environments))


def _launches_instances(environment: Environment) -> bool:
    return environment.is_managed and not environment.is_fargate


# -- launch templates ----------------------------------------------------------------------------


def _read_environment(calls: AwsCalls, document: Document, templates: _Templates) -> Environment:
    environment = shapes.environment_of(document)
    template = document.get("computeResources", {}).get("launchTemplate")
    if not template:
        return environment
    overrides = (
        shapes.override_of(
            _describe_template(calls, override, templates),
            override.get("targetInstanceTypes", ()),
        )
        for override in template.get("overrides", ())
    )
    environment = replace(environment, overrides=tuple(overrides))
    if not template.get("launchTemplateId") and not template.get("launchTemplateName"):
        return environment  # Only the overrides name a template.
    version = _describe_template(calls, template, templates)
    if isinstance(version, Missing):
        return replace(environment, launch_template=version)
    return shapes.add_template(environment, version)


def _describe_template(calls: AwsCalls, template: Document, templates: _Templates) -> Any | Missing:
    """Return the version that an environment, or an override of it, names."""
    id, name = template.get("launchTemplateId", ""), template.get("launchTemplateName", "")
    version = template.get("version") or "$Default"
    if (id, name, version) not in templates:
        describe = partial(Ec2(calls.session).launch_template, version, id=id, name=name)
        templates[id, name, version] = calls.call("ec2:DescribeLaunchTemplateVersions", describe)
    return templates[id, name, version]


# -- instance profiles ---------------------------------------------------------------------------


def _add_profiles(
    calls: AwsCalls, documents: Sequence[Document], environments: Sequence[Environment]
) -> list[Environment]:
    """Add the instance profiles. Environments mostly share one: each is described once."""
    profiles: dict[str, Profile | Missing] = {}
    with_profiles = []
    for document, environment in zip(documents, environments, strict=True):
        name = name_of(document.get("computeResources", {}).get("instanceRole", ""))
        if not _launches_instances(environment) or not name:
            with_profiles.append(replace(environment, profile=None))
            continue
        if name not in profiles:
            profiles[name] = _describe_profile(calls, name)
        with_profiles.append(replace(environment, profile=profiles[name]))
    return with_profiles


def _describe_profile(calls: AwsCalls, name: str) -> Profile | Missing:
    iam = Iam(calls.session)
    document = calls.call_optional(
        "iam:GetInstanceProfile", lambda: iam.instance_profile(name), _NO_SUCH_ROLE
    )
    if isinstance(document, Missing):
        return document
    if document is None:
        return Profile(name, exists=False)
    roles = document.get("Roles", ())
    if not roles:
        return Profile(name)
    return Profile(name, role=roles[0]["RoleName"], denied=_find_denied(calls, roles[0]))


def _find_denied(calls: AwsCalls, role: Document) -> tuple[str, ...] | Missing:
    """Return the actions of the ECS agent that the role does not allow."""
    iam = Iam(calls.session)
    denied = calls.call(
        "iam:SimulatePrincipalPolicy", lambda: iam.denied_actions(role["Arn"], AGENT_ACTIONS)
    )
    if not isinstance(denied, Missing):
        return tuple(denied)
    # Users who may not simulate may often list: AWS's own policy allows all that the agent needs.
    policies = calls.call(
        "iam:ListAttachedRolePolicies", lambda: iam.attached_policies(role["RoleName"])
    )
    return () if isinstance(policies, list) and ECS_POLICY in policies else denied


# -- hosts, instances, launches ------------------------------------------------------------------


def _add_hosts(calls: AwsCalls, document: Document, environment: Environment) -> Environment:
    cluster = document.get("ecsClusterArn")
    if environment.is_fargate or not cluster:
        return environment
    return replace(environment, hosts=_describe_hosts(calls, cluster))


def _describe_hosts(calls: AwsCalls, cluster: str) -> tuple[Host, ...] | Missing:
    ecs = Ecs(calls.session)
    arns = calls.call("ecs:ListContainerInstances", lambda: ecs.host_arns(cluster))
    if isinstance(arns, Missing):
        return arns
    if not arns:
        return ()
    hosts = calls.call("ecs:DescribeContainerInstances", lambda: ecs.hosts(cluster, arns))
    return hosts if isinstance(hosts, Missing) else tuple(map(shapes.host_of, hosts))


def _add_groups(calls: AwsCalls, environments: Sequence[Environment]) -> list[Environment]:
    """Add what Auto Scaling groups know: AWS Batch uses them, except for Spot with BEST_FIT."""
    with_groups = {
        environment.name
        for environment in environments
        if _launches_instances(environment) and not uses_spot_fleet(environment)
    }
    if not with_groups:
        return list(environments)
    groups = _list_groups(calls)
    return [
        _add_launches(calls, environment, _groups_of(environment.name, groups))
        if environment.name in with_groups
        else environment
        for environment in environments
    ]


def _groups_of(environment: str, groups: list[Any] | Missing) -> list[Any] | Missing:
    if isinstance(groups, Missing):
        return groups
    return [
        group for group in groups if shapes.is_group_of(group["AutoScalingGroupName"], environment)
    ] or Missing(f"no Auto Scaling group of {environment} was found")


def _list_groups(calls: AwsCalls) -> list[Any] | Missing:
    groups: list[Any] = []
    token = ""
    for _ in range(_MAX_GROUP_PAGES):
        list_groups = partial(AutoScaling(calls.session).groups, token)
        page = calls.call("autoscaling:DescribeAutoScalingGroups", list_groups)
        if isinstance(page, Missing):
            return groups or page
        groups += page[0]
        token = page[1]
        if not token:
            break
    return groups


def _add_launches(
    calls: AwsCalls, environment: Environment, groups: list[Any] | Missing
) -> Environment:
    """Add the failed launches and the instances of the environment's groups."""
    if isinstance(groups, Missing):
        return replace(environment, failures=groups, instances=groups)
    failures: list[Activity] = []
    missing: Missing | None = None
    for group in groups:
        list_activities = partial(
            AutoScaling(calls.session).activities, group["AutoScalingGroupName"]
        )
        activities = calls.call("autoscaling:DescribeScalingActivities", list_activities)
        if isinstance(activities, Missing):
            missing = activities
        else:
            failures += shapes.failures_of(activities)
    instances = (instance for group in groups for instance in group.get("Instances", ()))
    return replace(
        environment,
        failures=missing if missing and not failures else tuple(failures),
        instances=tuple(map(shapes.instance_of, instances)),
    )


def find_unjoined(environment: Environment) -> set[str]:
    """Return the ids of the instances of the environment that are not in its cluster."""
    hosts = environment.hosts if isinstance(environment.hosts, tuple) else ()
    instances = environment.instances if isinstance(environment.instances, tuple) else ()
    return {instance.id for instance in instances} - {host.instance_id for host in hosts}


def add_launch_times(
    environments: Sequence[Environment], launched: Sequence[Document] | Missing
) -> tuple[Environment, ...]:
    """Add the launch times of instances, which groups do not report.

    The times matter only for an environment with an instance that has not joined its cluster.
    """
    return tuple(
        _add_launch_times(environment, launched) if find_unjoined(environment) else environment
        for environment in environments
    )


def _add_launch_times(
    environment: Environment, launched: Sequence[Document] | Missing
) -> Environment:
    if isinstance(launched, Missing):
        return replace(environment, instances=launched)
    by_id = {document["InstanceId"]: shapes.instance_of(document) for document in launched}
    instances = environment.instances if isinstance(environment.instances, tuple) else ()
    return replace(
        environment, instances=tuple(by_id.get(instance.id, instance) for instance in instances)
    )


# -- Spot Fleets ---------------------------------------------------------------------------------


def _add_fleet_role(calls: AwsCalls, document: Document, environment: Environment) -> Environment:
    if not _launches_instances(environment) or not uses_spot_fleet(environment):
        return replace(environment, fleet_role=None)
    name = name_of(document.get("computeResources", {}).get("spotIamFleetRole", ""))
    return replace(environment, fleet_role=_describe_fleet_role(calls, name) if name else None)


def _describe_fleet_role(calls: AwsCalls, name: str) -> FleetRole | Missing:
    iam = Iam(calls.session)
    policies = calls.call_optional(
        "iam:ListAttachedRolePolicies", lambda: iam.attached_policies(name), _NO_SUCH_ROLE
    )
    if isinstance(policies, Missing):
        return policies
    return FleetRole(name, exists=policies is not None, can_tag=TAGGING_POLICY in (policies or ()))


def _add_fleet_failures(
    calls: AwsCalls, document: Document, environment: Environment, now_ms: int
) -> Environment:
    if not _launches_instances(environment) or not uses_spot_fleet(environment):
        return environment
    ec2 = Ec2(calls.session)
    fleets = calls.call("ec2:DescribeSpotFleetRequests", ec2.spot_fleets)
    if isinstance(fleets, Missing):
        return replace(environment, failures=fleets)
    cluster = name_of(document.get("ecsClusterArn", ""))
    fleet = next((fleet for fleet in fleets if _is_fleet_of(fleet, cluster)), None)
    if fleet is None:
        missing = Missing(f"no Spot Fleet of {environment.name} was found")
        return replace(environment, failures=missing)
    since = (datetime.fromtimestamp(now_ms / 1000, UTC) - _FLEET_HISTORY).isoformat()
    records = calls.call(
        "ec2:DescribeSpotFleetRequestHistory",
        lambda: ec2.spot_fleet_history(fleet["SpotFleetRequestId"], since),
    )
    failures = records if isinstance(records, Missing) else shapes.fleet_failures_of(records)
    return replace(environment, failures=failures)


def _is_fleet_of(fleet: Document, cluster: str) -> bool:
    """Return whether the user data of the fleet's instances names the cluster."""
    specifications = fleet.get("SpotFleetRequestConfig", {}).get("LaunchSpecifications", ())
    return bool(cluster) and any(
        cluster in shapes.user_data_of(specification.get("UserData", ""))
        for specification in specifications
    )
