"""Compute environments, launch templates, groups, instances and hosts as facts. Pure."""

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
#: AWS Batch names its groups after the environment, and ends the name with a UUID
_REST_OF_A_NAME = re.compile(r"(?:asg-)?[0-9a-f]{8}-[0-9a-f-]{27}.*|asg-.+")


def ms(time: Any) -> int | None:
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else None


def environment_of(document: Mapping[str, Any]) -> Environment:
    """As it is written; what has to be asked for separately is still missing."""
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


def with_template(environment: Environment, version: Mapping[str, Any]) -> Environment:
    """What the template says counts where the environment says nothing."""
    data = version.get("LaunchTemplateData", {})
    cards = data.get("NetworkInterfaces", ())
    groups = [
        *data.get("SecurityGroupIds", ()),
        *(group for card in cards for group in card.get("Groups", ())),
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
    """Decoded; what is no text, gzip say, stays as it came, and is unpacked where it is examined."""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return text


def is_group_of(group: str, environment: str) -> bool:
    rest = group.removeprefix("AWSBatch-")
    return rest.startswith(f"{environment}-") and bool(
        _REST_OF_A_NAME.fullmatch(rest[len(environment) + 1 :])
    )


def failures_of(activities: Sequence[Mapping[str, Any]]) -> tuple[Activity, ...]:
    """Launches that failed; those before the last that succeeded are history."""
    found = []
    for activity in activities:
        if activity.get("StatusCode") == "Successful" and "Launching" in activity.get(
            "Description", "Launching"
        ):
            break
        if activity.get("StatusCode") in _FAILED:
            message = activity.get("StatusMessage") or activity.get("Description", "")
            found.append(Activity(message, ms(activity.get("StartTime"))))
    return tuple(found)


def fleet_failures_of(records: Sequence[Mapping[str, Any]]) -> tuple[Activity, ...]:
    """Of a Spot Fleet's history, newest first."""
    found = [
        Activity(
            f"{info.get('EventSubType', '')}: {info.get('EventDescription', '')}",
            ms(record.get("Timestamp")),
        )
        for record in records
        for info in (record.get("EventInformation", {}),)
    ]
    return tuple(sorted(found, key=lambda activity: -(activity.at_ms or 0)))


def instance_of(document: Mapping[str, Any]) -> Instance:
    """As DescribeInstances gives it, or a group, which does not know since when."""
    zone = document.get("AvailabilityZone") or document.get("Placement", {}).get(
        "AvailabilityZone", ""
    )
    return Instance(
        document["InstanceId"],
        document.get("InstanceType", ""),
        zone,
        ms(document.get("LaunchTime")),
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
        # A host that tells nothing of itself is not held against anybody.
        _AWSLOGS in attributes or not attributes,
    )
