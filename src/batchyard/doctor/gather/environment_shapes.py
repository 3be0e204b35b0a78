"""Convert AWS's shapes of compute environments, instances and hosts to facts. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from batchyard.doctor.facts import Activity, Environment, Host, Instance, LaunchTemplate, Missing

_AWSLOGS = "com.amazonaws.ecs.capability.logging-driver.awslogs"
_FAILED = ("Failed", "Cancelled")
#: AWS Batch names a group after the environment; the name ends with a UUID.
_GROUP_SUFFIX = re.compile(r"(?:asg-)?[0-9a-f]{8}-[0-9a-f-]{27}.*|asg-.+")


def to_ms(time: Any) -> int | None:
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else None


def environment_of(document: Mapping[str, Any]) -> Environment:
    """Return the environment as DescribeComputeEnvironments shows it; other facts are missing."""
    resources = document.get("computeResources", {})
    images = resources.get("ec2Configuration", ())
    override = next(
        (entry["imageIdOverride"] for entry in images if entry.get("imageIdOverride")), ""
    )
    return Environment(
        document["computeEnvironmentName"],
        document.get("state", ""),
        document.get("status", "VALID"),
        document.get("statusReason", ""),
        document.get("type") != "UNMANAGED",
        resources.get("type", "EC2"),
        resources.get("allocationStrategy", ""),
        int(resources.get("minvCpus", 0)),
        int(resources.get("maxvCpus", 0)),
        int(resources.get("desiredvCpus", 0)),
        tuple(resources.get("instanceTypes", ())),
        tuple(entry["imageType"] for entry in images),
        resources.get("imageId") or override,
        resources.get("bidPercentage"),
        tuple(resources.get("subnets", ())),
        tuple(resources.get("securityGroupIds", ())),
        resources.get("placementGroup", ""),
    )


def add_template(environment: Environment, version: Mapping[str, Any]) -> Environment:
    """Add a launch template. Its values count where the environment has none."""
    data = version.get("LaunchTemplateData", {})
    interfaces = data.get("NetworkInterfaces", ())
    groups = [
        *data.get("SecurityGroupIds", ()),
        *(group for interface in interfaces for group in interface.get("Groups", ())),
    ]
    template = template_of(version)
    return replace(
        environment,
        launch_template=template,
        image_id=environment.image_id or template.image_id,
        security_groups=environment.security_groups or tuple(groups),
    )


def template_of(version: Mapping[str, Any]) -> LaunchTemplate:
    data = version.get("LaunchTemplateData", {})
    return LaunchTemplate(
        version.get("LaunchTemplateId", ""),
        str(version.get("VersionNumber", "")),
        user_data_of(data.get("UserData", "")),
        data.get("ImageId", ""),
        data.get("MetadataOptions", {}).get("HttpPutResponseHopLimit"),
    )


def override_of(
    version: Mapping[str, Any] | Missing, types: Sequence[str]
) -> LaunchTemplate | Missing:
    return (
        version
        if isinstance(version, Missing)
        else replace(template_of(version), target_types=tuple(types))
    )


def user_data_of(text: str) -> str:
    """Decode base64. Anything but text, such as gzip, is returned as it is."""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return text


def is_group_of(group: str, environment: str) -> bool:
    name, prefix = group.removeprefix("AWSBatch-"), f"{environment}-"
    return name.startswith(prefix) and bool(_GROUP_SUFFIX.fullmatch(name.removeprefix(prefix)))


def failures_of(activities: Sequence[Mapping[str, Any]]) -> tuple[Activity, ...]:
    """Return the failed launches since the last successful one, newest first."""
    failures = []
    for activity in activities:
        if activity.get("StatusCode") == "Successful" and "Launching" in activity.get(
            "Description", "Launching"
        ):
            break
        if activity.get("StatusCode") in _FAILED:
            message = activity.get("StatusMessage") or activity.get("Description", "")
            failures.append(Activity(message, to_ms(activity.get("StartTime"))))
    return tuple(failures)


def fleet_failures_of(records: Sequence[Mapping[str, Any]]) -> tuple[Activity, ...]:
    """Return the errors in the history of a Spot Fleet, newest first."""
    failures = [
        Activity(
            f"{info.get('EventSubType', '')}: {info.get('EventDescription', '')}",
            to_ms(record.get("Timestamp")),
        )
        for record in records
        for info in (record.get("EventInformation", {}),)
    ]
    return tuple(sorted(failures, key=lambda activity: -(activity.at_ms or 0)))


def instance_of(document: Mapping[str, Any]) -> Instance:
    """Convert an instance of DescribeInstances, or of a group, which has no launch time."""
    zone = document.get("AvailabilityZone") or document.get("Placement", {}).get(
        "AvailabilityZone", ""
    )
    return Instance(
        document["InstanceId"],
        document.get("InstanceType", ""),
        zone,
        to_ms(document.get("LaunchTime")),
    )


def host_of(document: Mapping[str, Any]) -> Host:
    attributes = {entry["name"]: entry.get("value", "") for entry in document.get("attributes", ())}
    resources = {entry["name"]: entry for entry in document.get("registeredResources", ())}
    return Host(
        document.get("ec2InstanceId", ""),
        attributes.get("ecs.instance-type", ""),
        bool(document.get("agentConnected", True)),
        int(resources.get("CPU", {}).get("integerValue", 0)) // 1024,
        int(resources.get("MEMORY", {}).get("integerValue", 0)),
        len(resources.get("GPU", {}).get("stringSetValue", ())),
        # A host without attributes is taken as one that has the driver.
        _AWSLOGS in attributes or not attributes,
    )
