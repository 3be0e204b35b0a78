"""AWS Batch's resource types in CloudFormation: Properties in, calls of the Batch API out."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException

from batchyard.emulator import api_models
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.moto_cloudformation.own_model import (
    CannotReplace,
    Document,
    OwnModel,
    Place,
    Refused,
)

#: operation, request -> answer; raises ApiError
Call = Callable[[str, Document], Document]

_LETTERS = string.ascii_letters + string.digits
_LONGEST_NAME = 128
_SUFFIX_LENGTH = 16
#: what may change on a managed environment without new instances; all else in ComputeResources asks for them
_SCALING = frozenset(["MinvCpus", "MaxvCpus", "DesiredvCpus", "UpdateToLatestImageVersion"])
_FARGATE_UPDATABLE = _SCALING | {"Subnets", "SecurityGroupIds"}


class BatchResource(OwnModel):
    """One resource of AWS Batch, known by its ARN."""

    CREATE: ClassVar[str]
    #: member of the create request and answer that has the name, and the answer's that has the ARN
    NAME_MEMBER: ClassVar[str]
    ARN_MEMBER: ClassVar[str]
    #: properties that only CloudFormation knows
    EXTRA: ClassVar[frozenset[str]] = frozenset()
    #: properties that cannot change without a replacement
    CREATE_ONLY: ClassVar[frozenset[str]]

    call: ClassVar[Call]

    def __init__(self, arn: str, name: str, properties: Document) -> None:
        self.arn = arn
        self.name = name
        self.properties = properties

    @property
    def physical_resource_id(self) -> str:
        return self.arn

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        if attribute_name not in self.ATTRIBUTES:
            raise UnformattedGetAttTemplateException()
        return self.arn

    # -- the API --------------------------------------------------------------------------------------------

    @classmethod
    def ask(cls, operation: str, request: Document) -> Document:
        try:
            return cls.call(operation, request)
        except ApiError as exc:
            text = f"{exc.message} (Service: Batch, Status Code: {exc.status})"
            raise Refused(f'Resource handler returned message: "{text}"') from exc

    @classmethod
    def request(cls, operation: str, properties: Mapping[str, Any]) -> Document:
        """Properties as the request of an operation; those that it has no member for are left out."""
        shape = api_models.service_model("batch").operation_model(operation).input_shape
        assert shape is not None
        request: Document = api_models.from_cloudformation(shape, properties)
        return request

    # -- what CloudFormation asks for -----------------------------------------------------------------------

    @classmethod
    def made(cls, name: str, properties: Document, place: Place, logical_id: str) -> Self:
        cls._check(properties)
        return cls.create(properties.get(cls.NAME_PROPERTY) or _generated(logical_id), properties)

    @classmethod
    def create(cls, name: str, properties: Document) -> Self:
        request = {**cls.request(cls.CREATE, properties), cls.NAME_MEMBER: name}
        return cls(cls.ask(cls.CREATE, request)[cls.ARN_MEMBER], name, properties)

    def changed_to(self, name: str, properties: Document, place: Place) -> Self:
        self._check(properties)
        return self.updated(properties)

    def updated(self, properties: Document) -> Self:
        """This resource, changed; or, where AWS replaces it, another."""
        if self._needs_replacement(properties):
            given = properties.get(self.NAME_PROPERTY)
            if given is not None and given == self.name:
                raise CannotReplace(self.name)
            return type(self).create(given or _generated(self.logical_resource_id), properties)
        self._update(properties)
        self.properties = properties
        return self

    def changed(self, properties: Document) -> set[str]:
        return {
            key
            for key in {*self.properties, *properties}
            if self.properties.get(key) != properties.get(key)
        }

    def _needs_replacement(self, properties: Document) -> bool:
        fixed = self.changed(properties) & self.CREATE_ONLY
        if properties.get(self.NAME_PROPERTY) == self.name:
            fixed -= {self.NAME_PROPERTY}
        return bool(fixed)

    def _update(self, properties: Document) -> None:
        raise NotImplementedError

    def _retag(self, properties: Document) -> None:
        before, after = self.properties.get("Tags", {}), properties.get("Tags", {})
        gone = [key for key in before if key not in after]
        if gone:
            self.ask("UntagResource", {"resourceArn": self.arn, "tagKeys": gone})
        if after and after != before:
            self.ask(
                "TagResource",
                {"resourceArn": self.arn, "tags": {k: str(v) for k, v in after.items()}},
            )

    @classmethod
    def _check(cls, properties: Document) -> None:
        shape = api_models.service_model("batch").operation_model(cls.CREATE).input_shape
        assert shape is not None
        for path in _unknown(shape, properties, ""):
            if path not in cls.EXTRA:
                raise Refused(
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
        # ReplaceComputeEnvironment is true unless told otherwise: what asks for new instances makes a new environment.
        kind = str(properties.get("ComputeResources", {}).get("Type", ""))
        at_once = _FARGATE_UPDATABLE if kind.startswith("FARGATE") else _SCALING
        is_replaced = str(properties.get("ReplaceComputeEnvironment", True)).lower() == "true"
        return is_replaced and bool(resources - at_once)

    def _changed_resources(self, properties: Document) -> set[str]:
        before, after = (
            self.properties.get("ComputeResources", {}),
            properties.get("ComputeResources", {}),
        )
        return {key for key in {*before, *after} if before.get(key) != after.get(key)}

    def _update(self, properties: Document) -> None:
        complete = {"State": "ENABLED", **properties}
        changed = {
            key: complete[key]
            for key in self.changed(properties) - {"ComputeResources"}
            if key in complete
        }
        resources = self._changed_resources(properties)
        if resources:
            wanted = properties["ComputeResources"]
            changed["ComputeResources"] = {key: wanted[key] for key in resources if key in wanted}
        request = self.request("UpdateComputeEnvironment", changed)
        for key in resources:
            if key not in properties["ComputeResources"]:
                _blank(request["computeResources"], key, self.properties["ComputeResources"][key])
        if request:
            self.ask("UpdateComputeEnvironment", {"computeEnvironment": self.arn, **request})

    def delete(self, place: Place) -> None:
        found = self.ask("DescribeComputeEnvironments", {"computeEnvironments": [self.arn]})
        if found["computeEnvironments"]:
            self.ask(
                "UpdateComputeEnvironment", {"computeEnvironment": self.arn, "state": "DISABLED"}
            )
            self.ask("DeleteComputeEnvironment", {"computeEnvironment": self.arn})


class JobQueue(BatchResource):
    TYPE = "AWS::Batch::JobQueue"
    NAME_PROPERTY = "JobQueueName"
    ATTRIBUTES = ("JobQueueArn",)
    CREATE = "CreateJobQueue"
    NAME_MEMBER, ARN_MEMBER = "jobQueueName", "jobQueueArn"
    CREATE_ONLY = frozenset(["JobQueueName", "JobQueueType"])

    def _update(self, properties: Document) -> None:
        complete = {"State": "ENABLED", "JobStateTimeLimitActions": [], **properties}
        changed = {
            key: complete[key] for key in self.changed(properties) - {"Tags"} if key in complete
        }
        if changed:
            self.ask(
                "UpdateJobQueue", {**self.request("UpdateJobQueue", changed), "jobQueue": self.arn}
            )
        self._retag(properties)

    def delete(self, place: Place) -> None:
        if self.ask("DescribeJobQueues", {"jobQueues": [self.arn]})["jobQueues"]:
            self.ask("UpdateJobQueue", {"jobQueue": self.arn, "state": "DISABLED"})
            self.ask("DeleteJobQueue", {"jobQueue": self.arn})


class JobDefinition(BatchResource):
    TYPE = "AWS::Batch::JobDefinition"
    NAME_PROPERTY = "JobDefinitionName"
    ATTRIBUTES = ("JobDefinitionArn",)
    CREATE = "RegisterJobDefinition"
    NAME_MEMBER, ARN_MEMBER = "jobDefinitionName", "jobDefinitionArn"
    EXTRA = frozenset(["ResourceRetentionPolicy"])
    CREATE_ONLY = frozenset(["JobDefinitionName"])

    def updated(self, properties: Document) -> Self:
        """A new revision; the old one is deregistered when the update is through."""
        if self.changed(properties) == {"ResourceRetentionPolicy"}:
            self.properties = properties
            return self
        if self._needs_replacement(properties):
            name = properties.get(self.NAME_PROPERTY) or _generated(self.logical_resource_id)
        else:
            name = self.name
        policy = properties.get("ResourceRetentionPolicy", {})
        made = type(self).create(name, properties)
        made.keeps_predecessor = str(policy.get("SkipDeregisterOnUpdate", False)).lower() == "true"
        return made

    def delete(self, place: Place) -> None:
        self.ask("DeregisterJobDefinition", {"jobDefinition": self.arn})


class SchedulingPolicy(BatchResource):
    TYPE = "AWS::Batch::SchedulingPolicy"
    NAME_PROPERTY = "Name"
    ATTRIBUTES = ("Arn",)
    CREATE = "CreateSchedulingPolicy"
    NAME_MEMBER, ARN_MEMBER = "name", "arn"
    CREATE_ONLY = frozenset(["Name"])

    def _update(self, properties: Document) -> None:
        if self.changed(properties) - {"Tags"}:
            request = self.request("UpdateSchedulingPolicy", {"FairsharePolicy": {}, **properties})
            self.ask("UpdateSchedulingPolicy", {**request, "arn": self.arn})
        self._retag(properties)

    def delete(self, place: Place) -> None:
        self.ask("DeleteSchedulingPolicy", {"arn": self.arn})


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
        described = self.ask("DescribeConsumableResource", {"consumableResource": self.arn})
        return described[attribute_name[0].lower() + attribute_name[1:]]

    def _update(self, properties: Document) -> None:
        if "TotalQuantity" in self.changed(properties):
            request = {
                "consumableResource": self.arn,
                "operation": "SET",
                "quantity": int(properties["TotalQuantity"]),
            }
            self.ask("UpdateConsumableResource", request)
        self._retag(properties)

    def delete(self, place: Place) -> None:
        self.ask("DeleteConsumableResource", {"consumableResource": self.arn})


MODELS: tuple[type[BatchResource], ...] = (
    ComputeEnvironment,
    JobQueue,
    JobDefinition,
    SchedulingPolicy,
    ConsumableResource,
)


# -- properties -------------------------------------------------------------------------------------------------


def _generated(logical_id: str) -> str:
    """The name of a resource that was given none, as CloudFormation names those of Batch: `Queue-CvKLJBQdefogayVQ`."""
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return f"{logical_id[: _LONGEST_NAME - 1 - _SUFFIX_LENGTH]}-{suffix}"


def _unknown(shape: Any, value: Any, where: str) -> list[str]:
    """Paths of the properties that are none, or are not spelled as CloudFormation spells them: `MaxvCpus`, `Vcpus`."""
    if shape.type_name == "list" and isinstance(value, list):
        return [path for item in value for path in _unknown(shape.member, item, where)]
    if shape.type_name != "structure" or not isinstance(value, Mapping):
        return []
    members = {_spelled(name): member for name, member in shape.members.items()}
    found = []
    for key, item in value.items():
        path = f"{where}.{key}" if where else str(key)
        found += _unknown(members[key], item, path) if key in members else [path]
    return found


def _spelled(member: str) -> str:
    # The one property that is not its API's member with a capital letter.
    return (
        "S3FilesVolumeConfiguration"
        if member == "s3filesVolumeConfiguration"
        else member[0].upper() + member[1:]
    )


def _blank(request: Document, key: str, old: Any) -> None:
    """A property that was taken away, as UpdateComputeEnvironment is told so: by an empty value."""
    member = key[0].lower() + key[1:]
    if key == "DesiredvCpus":
        return
    if isinstance(old, list | dict):
        request[member] = type(old)()
    else:
        request[member] = 0 if str(old).isdigit() else ""
