"""Asks for what belongs to each compute environment: template, profile, roles, group, instances, hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from batchyard.doctor.gather.asking import Asker
from batchyard.doctor.gather.job_shapes import bare

#: what the agent does from its first minute on
AGENT_ACTIONS = (
    "ecs:DiscoverPollEndpoint",
    "ecs:RegisterContainerInstance",
    "ecs:Poll",
    "ecs:SubmitTaskStateChange",
    "ecr:GetAuthorizationToken",
)
_NO_SUCH_ROLE = ("NoSuchEntity", "NoSuchEntityException")
_MOST_PAGES = 2
_HISTORY = timedelta(hours=12)

Document = Mapping[str, Any]


def complete(asker: Asker, documents: Sequence[Document], now_ms: int) -> tuple[Environment, ...]:
    """The environments with all that could be found out about them."""
    templates: dict[tuple[str, ...], Any | Missing] = {}
    found = [_templated(asker, document, templates) for document in documents]
    found = _profiled(asker, documents, found)
    found = [_hosted(asker, document, one) for document, one in zip(documents, found, strict=True)]
    found = _grouped(asker, found)
    found = [_roled(asker, document, one) for document, one in zip(documents, found, strict=True)]
    return tuple(
        _with_fleet(asker, document, one, now_ms)
        for document, one in zip(documents, found, strict=True)
    )


def _launches(environment: Environment) -> bool:
    return environment.is_managed and not environment.is_fargate


def _templated(
    asker: Asker, document: Document, seen: dict[tuple[str, ...], Any | Missing]
) -> Environment:
    """``seen``: templates that were asked about; environments often share one."""
    environment = shapes.environment_of(document)
    template = document.get("computeResources", {}).get("launchTemplate")
    if not template:
        return environment
    environment = replace(
        environment,
        overrides=tuple(
            shapes.override_of(
                _template(asker, override, seen), override.get("targetInstanceTypes", ())
            )
            for override in template.get("overrides", ())
        ),
    )
    if not template.get("launchTemplateId") and not template.get("launchTemplateName"):
        return environment  # only some of its types have one
    found = _template(asker, template, seen)
    if isinstance(found, Missing):
        return replace(environment, launch_template=found)
    return shapes.with_template(environment, found)


def _template(
    asker: Asker, template: Document, seen: dict[tuple[str, ...], Any | Missing]
) -> Any | Missing:
    """The version that an environment, or an override of it, names."""
    id, name = template.get("launchTemplateId", ""), template.get("launchTemplateName", "")
    version = template.get("version") or "$Default"
    if (id, name, version) not in seen:
        ask = partial(Ec2(asker.session).launch_template, version, id=id, name=name)
        seen[id, name, version] = asker.ask("ec2:DescribeLaunchTemplateVersions", ask)
    return seen[id, name, version]


# -- the instance profile ----------------------------------------------------------------------------------------


def _profiled(
    asker: Asker, documents: Sequence[Document], these: Sequence[Environment]
) -> list[Environment]:
    """Environments mostly share one: each is asked about once."""
    seen: dict[str, Profile | Missing] = {}
    found = []
    for document, environment in zip(documents, these, strict=True):
        name = bare(document.get("computeResources", {}).get("instanceRole", ""))
        if not _launches(environment) or not name:
            found.append(replace(environment, profile=None))
            continue
        if name not in seen:
            seen[name] = _profile(asker, name)
        found.append(replace(environment, profile=seen[name]))
    return found


def _profile(asker: Asker, name: str) -> Profile | Missing:
    iam = Iam(asker.session)
    document = asker.find(
        "iam:GetInstanceProfile", lambda: iam.instance_profile(name), _NO_SUCH_ROLE
    )
    if isinstance(document, Missing):
        return document
    if document is None:
        return Profile(name, exists=False)
    roles = document.get("Roles", ())
    if not roles:
        return Profile(name)
    return Profile(name, role=roles[0]["RoleName"], denied=_denied(asker, roles[0]))


def _denied(asker: Asker, role: Document) -> tuple[str, ...] | Missing:
    iam = Iam(asker.session)
    found = asker.ask(
        "iam:SimulatePrincipalPolicy", lambda: iam.refused(role["Arn"], AGENT_ACTIONS)
    )
    if not isinstance(found, Missing):
        return tuple(found)
    # Whoever may not simulate may often list: AWS's own policy has all that the agent needs.
    policies = asker.ask(
        "iam:ListAttachedRolePolicies", lambda: iam.attached_policies(role["RoleName"])
    )
    return () if isinstance(policies, list) and ECS_POLICY in policies else found


# -- hosts, instances, launches ----------------------------------------------------------------------------------


def _hosted(asker: Asker, document: Document, environment: Environment) -> Environment:
    cluster = document.get("ecsClusterArn")
    if environment.is_fargate or not cluster:
        return environment
    return replace(environment, hosts=_hosts(asker, cluster))


def _hosts(asker: Asker, cluster: str) -> tuple[Host, ...] | Missing:
    ecs = Ecs(asker.session)
    arns = asker.ask("ecs:ListContainerInstances", lambda: ecs.host_arns(cluster))
    if isinstance(arns, Missing):
        return arns
    if not arns:
        return ()
    hosts = asker.ask("ecs:DescribeContainerInstances", lambda: ecs.hosts(cluster, arns))
    return hosts if isinstance(hosts, Missing) else tuple(map(shapes.host_of, hosts))


def _grouped(asker: Asker, these: Sequence[Environment]) -> list[Environment]:
    """AWS Batch launches instances by Auto Scaling groups, but for Spot with BEST_FIT."""
    wanted = [e.name for e in these if _launches(e) and not uses_spot_fleet(e)]
    if not wanted:
        return list(these)
    groups = _groups(asker)
    found = []
    for environment in these:
        if environment.name not in wanted:
            found.append(environment)
            continue
        own = groups
        if isinstance(groups, list):
            own = [
                group
                for group in groups
                if shapes.is_group_of(group["AutoScalingGroupName"], environment.name)
            ]
        if not own:
            own = Missing(f"no Auto Scaling group of {environment.name} was found")
        found.append(_with_groups(asker, environment, own))
    return found


def _groups(asker: Asker) -> list[Any] | Missing:
    found: list[Any] = []
    token = ""
    for _ in range(_MOST_PAGES):
        page = asker.ask(
            "autoscaling:DescribeAutoScalingGroups",
            partial(AutoScaling(asker.session).groups, token),
        )
        if isinstance(page, Missing):
            return found or page
        some, token = page
        found += some
        if not token:
            break
    return found


def _with_groups(
    asker: Asker, environment: Environment, groups: list[Any] | Missing
) -> Environment:
    if isinstance(groups, Missing):
        return replace(environment, failures=groups, instances=groups)
    names = [group["AutoScalingGroupName"] for group in groups]
    failures: list[Activity] = []
    missing: Missing | None = None
    for name in names:
        ask = partial(AutoScaling(asker.session).activities, name)
        activities = asker.ask("autoscaling:DescribeScalingActivities", ask)
        if isinstance(activities, Missing):
            missing = activities
        else:
            failures += shapes.failures_of(activities)
    return replace(
        environment,
        failures=missing if missing and not failures else tuple(failures),
        instances=tuple(
            shapes.instance_of(one) for group in groups for one in group.get("Instances", ())
        ),
    )


def strangers(environment: Environment) -> set[str]:
    """Instances of its groups that are not in its cluster."""
    joined = (
        {host.instance_id for host in environment.hosts}
        if isinstance(environment.hosts, tuple)
        else set()
    )
    listed = environment.instances if isinstance(environment.instances, tuple) else ()
    return {instance.id for instance in listed} - joined


def with_launch_times(
    these: Sequence[Environment], launched: Sequence[Document] | Missing
) -> tuple[Environment, ...]:
    """Since when they are up matters only where one has not joined; a group does not say."""
    return tuple(_with_launch_times(e, launched) if strangers(e) else e for e in these)


def _with_launch_times(
    environment: Environment, launched: Sequence[Document] | Missing
) -> Environment:
    if isinstance(launched, Missing):
        return replace(environment, instances=launched)
    seen = {document["InstanceId"]: shapes.instance_of(document) for document in launched}
    listed = environment.instances if isinstance(environment.instances, tuple) else ()
    return replace(
        environment, instances=tuple(seen.get(instance.id, instance) for instance in listed)
    )


# -- Spot Fleets -------------------------------------------------------------------------------------------------


def _roled(asker: Asker, document: Document, environment: Environment) -> Environment:
    if not _launches(environment) or not uses_spot_fleet(environment):
        return replace(environment, fleet_role=None)
    name = bare(document.get("computeResources", {}).get("spotIamFleetRole", ""))
    return replace(environment, fleet_role=_fleet_role(asker, name) if name else None)


def _fleet_role(asker: Asker, name: str) -> FleetRole | Missing:
    iam = Iam(asker.session)
    policies = asker.find(
        "iam:ListAttachedRolePolicies", lambda: iam.attached_policies(name), _NO_SUCH_ROLE
    )
    if isinstance(policies, Missing):
        return policies
    return FleetRole(name, exists=policies is not None, can_tag=TAGGING_POLICY in (policies or ()))


def _with_fleet(
    asker: Asker, document: Document, environment: Environment, now_ms: int
) -> Environment:
    if not _launches(environment) or not uses_spot_fleet(environment):
        return environment
    ec2 = Ec2(asker.session)
    fleets = asker.ask("ec2:DescribeSpotFleetRequests", ec2.spot_fleets)
    if isinstance(fleets, Missing):
        return replace(environment, failures=fleets)
    own = [
        fleet for fleet in fleets if _is_fleet_of(fleet, bare(document.get("ecsClusterArn", "")))
    ]
    if not own:
        return replace(
            environment, failures=Missing(f"no Spot Fleet of {environment.name} was found")
        )
    since = (datetime.fromtimestamp(now_ms / 1000, UTC) - _HISTORY).isoformat()
    fleet = own[0]["SpotFleetRequestId"]
    records = asker.ask(
        "ec2:DescribeSpotFleetRequestHistory", lambda: ec2.spot_fleet_history(fleet, since)
    )
    failures = records if isinstance(records, Missing) else shapes.fleet_failures_of(records)
    return replace(environment, failures=failures)


def _is_fleet_of(fleet: Document, cluster: str) -> bool:
    """Its instances are told the cluster in their user data."""
    specifications = fleet.get("SpotFleetRequestConfig", {}).get("LaunchSpecifications", ())
    return bool(cluster) and any(
        cluster in shapes.user_data_of(one.get("UserData", "")) for one in specifications
    )
