"""AWS Batch's resource types in CloudFormation: their properties become calls of the Batch API.

moto has these types too, but for its own Batch service. Ours act on the endpoint's.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException

from batchyard.batch.limits import MAX_NAME_CHARS
from batchyard.emulator import api_models, names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.moto_cloudformation.resource_model import (
    AccountRegion,
    Document,
    ReplacementError,
    ResourceError,
    ResourceModel,
)

#: region, operation, request -> answer; raises ApiError
Call = Callable[[str, str, Document], Document]

_LETTERS = string.ascii_letters + string.digits
_SUFFIX_LENGTH = 16
#: members of ComputeResources that can change without new instances in a managed environment
_SCALING = frozenset(["MinvCpus", "MaxvCpus", "DesiredvCpus", "UpdateToLatestImageVersion"])
_FARGATE_UPDATABLE = _SCALING | {"Subnets", "SecurityGroupIds"}


class BatchResource(ResourceModel):
    """A resource of AWS Batch, identified by its ARN."""

    CREATE: ClassVar[str]
    #: members with the name (of the create request and its answer) and the ARN (of the answer)
    NAME_MEMBER: ClassVar[str]
    ARN_MEMBER: ClassVar[str]
    #: properties that CloudFormation has and the Batch API has not
    EXTRA: ClassVar[frozenset[str]] = frozenset()
    #: properties that cannot change without a replacement
    CREATE_ONLY: ClassVar[frozenset[str]]

    call: ClassVar[Call]

    def __init__(self, arn: str, name: str, properties: Document) -> None:
        super().__init__(arn)
        self.arn = arn
        self.name = name
        self.properties = properties

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        if attribute_name not in self.ATTRIBUTES:
            raise UnformattedGetAttTemplateException()
        return self.arn

    # -- the Batch API -----------------------------------------------------------------------------

    @classmethod
    def ask(cls, region: str, operation: str, request: Document) -> Document:
        try:
            return cls.call(region, operation, request)
        except ApiError as exc:
            text = f"{exc.message} (Service: Batch, Status Code: {exc.status})"
            raise ResourceError(f'Resource handler returned message: "{text}"') from exc

    def _ask(self, operation: str, request: Document) -> Document:
        return self.ask(names.region_of(self.arn), operation, request)

    @classmethod
    def request(cls, operation: str, properties: Mapping[str, Any]) -> Document:
        """Return properties as an operation's request, without those that it has no member for."""
        shape = api_models.service_model("batch").operation_model(operation).input_shape
        assert shape is not None
        request: Document = api_models.from_cloudformation(shape, properties)
        return request

    # -- create and update -------------------------------------------------------------------------

    @classmethod
    def create(
        cls, name: str, properties: Document, location: AccountRegion, logical_id: str
    ) -> Self:
        cls._check(properties)
        batch_name = properties.get(cls.NAME_PROPERTY) or _generate_name(logical_id)
        return cls._create_named(batch_name, properties, location.region_name)

    @classmethod
    def _create_named(cls, name: str, properties: Document, region: str) -> Self:
        request = {**cls.request(cls.CREATE, properties), cls.NAME_MEMBER: name}
        return cls(cls.ask(region, cls.CREATE, request)[cls.ARN_MEMBER], name, properties)

    def update(self, name: str, properties: Document, location: AccountRegion) -> Self:
        self._check(properties)
        return self._update_or_replace(properties)

    def _update_or_replace(self, properties: Document) -> Self:
        if self._needs_replacement(properties):
            template_name = properties.get(self.NAME_PROPERTY)
            if template_name is not None and template_name == self.name:
                raise ReplacementError(self.name)
            name = template_name or _generate_name(self.logical_resource_id)
            return type(self)._create_named(name, properties, names.region_of(self.arn))
        self._update_in_place(properties)
        self.properties = properties
        return self

    def _changed_properties(self, properties: Document) -> set[str]:
        return {
            key
            for key in {*self.properties, *properties}
            if self.properties.get(key) != properties.get(key)
        }

    def _needs_replacement(self, properties: Document) -> bool:
        create_only = self._changed_properties(properties) & self.CREATE_ONLY
        if properties.get(self.NAME_PROPERTY) == self.name:
            create_only -= {self.NAME_PROPERTY}
        return bool(create_only)

    def _update_in_place(self, properties: Document) -> None:
        raise NotImplementedError

    def _update_tags(self, properties: Document) -> None:
        old_tags, new_tags = self.properties.get("Tags", {}), properties.get("Tags", {})
        removed = [key for key in old_tags if key not in new_tags]
        if removed:
            self._ask("UntagResource", {"resourceArn": self.arn, "tagKeys": removed})
        if new_tags and new_tags != old_tags:
            tags = {key: str(value) for key, value in new_tags.items()}
            self._ask("TagResource", {"resourceArn": self.arn, "tags": tags})

    @classmethod
    def _check(cls, properties: Document) -> None:
        shape = api_models.service_model("batch").operation_model(cls.CREATE).input_shape
        assert shape is not None
        for path in _find_unknown(shape, properties, ""):
            if path not in cls.EXTRA:
                raise ResourceError(
                    f"Properties validation failed: extraneous key [{path}] is not permitted"
                )


class ComputeEnvironment(BatchResource):
    TYPE = "AWS::Batch::ComputeEnvironment"
    NAME_PROPERTY = "ComputeEnvironmentName"
    ATTRIBUTES = ("ComputeEnvironmentArn",)
    CREATE = "CreateComputeEnvironment"
    NAME_MEMBER, ARN_MEMBER = "computeEnvironmentName", "computeEnvironmentArn"
    EXTRA = frozenset(
        ["ReplaceComputeEnvironment", "UpdatePolicy", "ComputeResources.UpdateToLatestImageVersion"]
    )
    CREATE_ONLY = frozenset(["ComputeEnvironmentName", "Type", "EksConfiguration", "Tags"])

    def _needs_replacement(self, properties: Document) -> bool:
        if super()._needs_replacement(properties):
            return True
        resources = self._changed_resources(properties)
        if "SpotIamFleetRole" in resources:
            return True
        # By default (ReplaceComputeEnvironment: true) new instances need a new environment.
        kind = str(properties.get("ComputeResources", {}).get("Type", ""))
        updatable = _FARGATE_UPDATABLE if kind.startswith("FARGATE") else _SCALING
        is_replaced = str(properties.get("ReplaceComputeEnvironment", True)).lower() == "true"
        return is_replaced and bool(resources - updatable)

    def _changed_resources(self, properties: Document) -> set[str]:
        old = self.properties.get("ComputeResources", {})
        new = properties.get("ComputeResources", {})
        return {key for key in {*old, *new} if old.get(key) != new.get(key)}

    def _update_in_place(self, properties: Document) -> None:
        complete = {"State": "ENABLED", **properties}
        changed = {
            key: complete[key]
            for key in self._changed_properties(properties) - {"ComputeResources"}
            if key in complete
        }
        resources = self._changed_resources(properties)
        if resources:
            new = properties["ComputeResources"]
            changed["ComputeResources"] = {key: new[key] for key in resources if key in new}
        request = self.request("UpdateComputeEnvironment", changed)
        for key in resources:
            if key not in properties["ComputeResources"]:
                old_value = self.properties["ComputeResources"][key]
                _set_empty(request["computeResources"], key, old_value)
        if request:
            self._ask("UpdateComputeEnvironment", {"computeEnvironment": self.arn, **request})

    def delete(self, location: AccountRegion) -> None:
        answer = self._ask("DescribeComputeEnvironments", {"computeEnvironments": [self.arn]})
        if answer["computeEnvironments"]:
            self._ask(
                "UpdateComputeEnvironment", {"computeEnvironment": self.arn, "state": "DISABLED"}
            )
            self._ask("DeleteComputeEnvironment", {"computeEnvironment": self.arn})


class JobQueue(BatchResource):
    TYPE = "AWS::Batch::JobQueue"
    NAME_PROPERTY = "JobQueueName"
    ATTRIBUTES = ("JobQueueArn",)
    CREATE = "CreateJobQueue"
    NAME_MEMBER, ARN_MEMBER = "jobQueueName", "jobQueueArn"
    CREATE_ONLY = frozenset(["JobQueueName", "JobQueueType"])

    def _update_in_place(self, properties: Document) -> None:
        complete = {"State": "ENABLED", "JobStateTimeLimitActions": [], **properties}
        changed = {
            key: complete[key]
            for key in self._changed_properties(properties) - {"Tags"}
            if key in complete
        }
        if changed:
            self._ask(
                "UpdateJobQueue", {**self.request("UpdateJobQueue", changed), "jobQueue": self.arn}
            )
        self._update_tags(properties)

    def delete(self, location: AccountRegion) -> None:
        if self._ask("DescribeJobQueues", {"jobQueues": [self.arn]})["jobQueues"]:
            self._ask("UpdateJobQueue", {"jobQueue": self.arn, "state": "DISABLED"})
            self._ask("DeleteJobQueue", {"jobQueue": self.arn})


class JobDefinition(BatchResource):
    TYPE = "AWS::Batch::JobDefinition"
    NAME_PROPERTY = "JobDefinitionName"
    ATTRIBUTES = ("JobDefinitionArn",)
    CREATE = "RegisterJobDefinition"
    NAME_MEMBER, ARN_MEMBER = "jobDefinitionName", "jobDefinitionArn"
    EXTRA = frozenset(["ResourceRetentionPolicy"])
    CREATE_ONLY = frozenset(["JobDefinitionName"])

    def _update_or_replace(self, properties: Document) -> Self:
        """Register a new revision. The old one is deregistered when the update has succeeded."""
        if self._changed_properties(properties) == {"ResourceRetentionPolicy"}:
            self.properties = properties
            return self
        if self._needs_replacement(properties):
            name = properties.get(self.NAME_PROPERTY) or _generate_name(self.logical_resource_id)
        else:
            name = self.name
        policy = properties.get("ResourceRetentionPolicy", {})
        revision = type(self)._create_named(name, properties, names.region_of(self.arn))
        skips_deregister = str(policy.get("SkipDeregisterOnUpdate", False)).lower() == "true"
        revision.keeps_predecessor = skips_deregister
        return revision

    def delete(self, location: AccountRegion) -> None:
        self._ask("DeregisterJobDefinition", {"jobDefinition": self.arn})


class SchedulingPolicy(BatchResource):
    TYPE = "AWS::Batch::SchedulingPolicy"
    NAME_PROPERTY = "Name"
    ATTRIBUTES = ("Arn",)
    CREATE = "CreateSchedulingPolicy"
    NAME_MEMBER, ARN_MEMBER = "name", "arn"
    CREATE_ONLY = frozenset(["Name"])

    def _update_in_place(self, properties: Document) -> None:
        if self._changed_properties(properties) - {"Tags"}:
            request = self.request("UpdateSchedulingPolicy", {"FairsharePolicy": {}, **properties})
            self._ask("UpdateSchedulingPolicy", {**request, "arn": self.arn})
        self._update_tags(properties)

    def delete(self, location: AccountRegion) -> None:
        self._ask("DeleteSchedulingPolicy", {"arn": self.arn})


class ConsumableResource(BatchResource):
    TYPE = "AWS::Batch::ConsumableResource"
    NAME_PROPERTY = "ConsumableResourceName"
    ATTRIBUTES = ("ConsumableResourceArn", "AvailableQuantity", "InUseQuantity", "CreatedAt")
    CREATE = "CreateConsumableResource"
    NAME_MEMBER, ARN_MEMBER = "consumableResourceName", "consumableResourceArn"
    CREATE_ONLY = frozenset(["ConsumableResourceName", "ResourceType"])

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        if attribute_name not in self.ATTRIBUTES[1:]:
            return super().get_cfn_attribute(attribute_name)
        described = self._ask("DescribeConsumableResource", {"consumableResource": self.arn})
        return described[attribute_name[0].lower() + attribute_name[1:]]

    def _update_in_place(self, properties: Document) -> None:
        if "TotalQuantity" in self._changed_properties(properties):
            request = {
                "consumableResource": self.arn,
                "operation": "SET",
                "quantity": int(properties["TotalQuantity"]),
            }
            self._ask("UpdateConsumableResource", request)
        self._update_tags(properties)

    def delete(self, location: AccountRegion) -> None:
        self._ask("DeleteConsumableResource", {"consumableResource": self.arn})


MODELS: tuple[type[BatchResource], ...] = (
    ComputeEnvironment,
    JobQueue,
    JobDefinition,
    SchedulingPolicy,
    ConsumableResource,
)


# -- properties ------------------------------------------------------------------------------------


def _generate_name(logical_id: str) -> str:
    """Return a name as CloudFormation generates it for Batch: `Queue-CvKLJBQdefogayVQ`."""
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return f"{logical_id[: MAX_NAME_CHARS - 1 - _SUFFIX_LENGTH]}-{suffix}"


def _find_unknown(shape: Any, value: Any, parent_path: str) -> list[str]:
    """Return the paths of properties that do not exist or are misspelled (`MaxVCpus`)."""
    if shape.type_name == "list" and isinstance(value, list):
        return [path for item in value for path in _find_unknown(shape.member, item, parent_path)]
    if shape.type_name != "structure" or not isinstance(value, Mapping):
        return []
    members = {_property_name(name): member for name, member in shape.members.items()}
    paths = []
    for key, item in value.items():
        path = f"{parent_path}.{key}".lstrip(".")
        paths += _find_unknown(members[key], item, path) if key in members else [path]
    return paths


def _property_name(member: str) -> str:
    # This is the only property that is not the API's member with a capital letter.
    if member == "s3filesVolumeConfiguration":
        return "S3FilesVolumeConfiguration"
    return member[0].upper() + member[1:]


def _set_empty(request: Document, key: str, old: Any) -> None:
    """Add an empty value for a removed property, as UpdateComputeEnvironment expects it."""
    member = key[0].lower() + key[1:]
    if key == "DesiredvCpus":
        return
    if isinstance(old, list | dict):
        request[member] = type(old)()
    else:
        request[member] = 0 if str(old).isdigit() else ""
