"""The resources that a template describes, and those of them that a stack has created.

moto 5.2.5: its ResourceMap creates a resource when somebody looks at it, and forgets a resource
that it cannot update. Here every change of a stack has a map of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.ec2.models import ec2_backends
from moto.ec2.models.core import TaggedEC2Resource
from moto.s3.models import FakeBucket, s3_backends
from moto.utilities.utils import get_partition

from batchyard.emulator.moto_cloudformation import templates
from batchyard.emulator.moto_cloudformation.deletions import DELETIONS
from batchyard.emulator.moto_cloudformation.missing_resources import Placeholder
from batchyard.emulator.moto_cloudformation.resource_model import (
    AccountRegion,
    ResourceError,
    ResourceModel,
)

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StackResource:
    """A resource that a stack has created."""

    resource: Any
    #: the resource's part of the template, resolved
    json: Document
    #: the name that the resource was created with
    name: str

    @property
    def physical_id(self) -> str:
        return str(getattr(self.resource, "physical_resource_id", ""))

    @property
    def type(self) -> str:
        return str(self.json["Type"])


class StackResources(parsing.ResourceMap):
    """The resources that a template describes, and those of them that exist."""

    def __init__(self, *, parameters: dict[str, Any], template: Document, **members: Any) -> None:
        defaults = {
            name: _default_text(declaration["Default"])
            for name, declaration in template.get("Parameters", {}).items()
            if "Default" in declaration
        }
        # moto 5.2.5: splits lists and parses numbers only in the caller's values, not in defaults.
        super().__init__(parameters={**defaults, **parameters}, template=template, **members)
        self.caller_parameters = parameters
        #: logical id -> resource
        self.existing: dict[str, StackResource] = {}
        #: names of the exports that the resources use
        self.imports: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        if key in self._parsed_resources:
            return self._parsed_resources[key]
        if key in self._resource_json_map:
            return None
        raise ValidationError(message=f"Template error: there is no resource or parameter {key}")

    @property
    def resources(self) -> Iterable[str]:
        return self.existing.keys()

    def __len__(self) -> int:
        return len(self.existing)

    def validate_outputs(self) -> None:
        """Do nothing: outputs are computed when all resources exist, and can fail the change."""

    def parse_ssm_parameter(self, value: str, value_type: str) -> str:
        # moto 5.2.5: raises AttributeError if the parameter does not exist.
        try:
            return super().parse_ssm_parameter(value, value_type)
        except AttributeError as exc:
            raise ValidationError(
                message=f"Unable to fetch parameters [{value}] from parameter store "
                "for this account."
            ) from exc

    def load_parameters(self) -> None:
        super().load_parameters()
        # moto 5.2.5: keeps the spaces of "a, b" in a list.
        for name, value in self.resolved_parameters.items():
            if isinstance(value, list):
                self.resolved_parameters[name] = [
                    member.strip() if isinstance(member, str) else member for member in value
                ]
        self._parsed_resources.update(self.resolved_parameters)

    def active_names(self) -> list[str]:
        """Return the logical ids whose conditions hold, each after the ones it depends on."""
        return [
            name for name in templates.dependency_order(self._template) if self._is_active(name)
        ]

    def _is_active(self, name: str) -> bool:
        condition = self._resource_json_map[name].get("Condition")
        return condition is None or bool(self.lazy_condition_map[condition])

    def put(self, name: str, resource: StackResource) -> None:
        self.existing[name] = resource
        self._parsed_resources[name] = resource.resource

    def forget(self, name: str) -> None:
        self.existing.pop(name, None)
        self._parsed_resources.pop(name, None)

    # -- one resource ------------------------------------------------------------------------------

    def resolve_resource(self, name: str) -> tuple[Any, Document, str]:
        """Return a resource's model class, its resolved part of the template, and a name for it."""
        part = copy.deepcopy(self._resource_json_map[name])
        part["Properties"] = part.get("Properties") or {}
        kind = part["Type"]
        if kind not in parsing.get_model_map():
            stack_name = self._parsed_resources["AWS::StackName"]
            generated_name = parsing.generate_resource_name(kind, stack_name, name)
            return Placeholder, {"Type": kind, "Properties": {}}, generated_name
        return parsing.parse_resource_and_generate_name(name, part, self)

    def create_resource(
        self, name: str, model: Any, json: Document, resource_name: str
    ) -> StackResource:
        kind = json["Type"]
        if model is Placeholder:
            resource: Any = Placeholder(resource_name, kind)
        else:
            resource = model.create_from_cloudformation_json(
                resource_name,
                copy.deepcopy(json),
                self._account_id,
                self._region_name,
                LogicalId=name,
                StackId=self.stack_id,
                ResourceType=kind,
            )
        resource.cf_resource_type, resource.logical_resource_id = kind, name
        if isinstance(resource, TaggedEC2Resource):
            resource_id = getattr(resource, "physical_resource_id", "")
            tags = {
                **self.tags,
                "aws:cloudformation:stack-name": self._parsed_resources["AWS::StackName"],
                "aws:cloudformation:stack-id": self.stack_id,
                "aws:cloudformation:logical-id": name,
            }
            ec2_backends[self._account_id][self._region_name].create_tags([resource_id], tags)
        return StackResource(resource, json, resource_name)

    def update_resource(
        self, old: StackResource, json: Document, resource_name: str
    ) -> StackResource:
        """Update a resource and return it. With the old JSON and name this undoes an update."""
        model = parsing.get_model_map()[json["Type"]]
        resource = model.update_from_cloudformation_json(
            original_resource=old.resource,
            new_resource_name=resource_name,
            cloudformation_json=copy.deepcopy(json),
            account_id=self._account_id,
            region_name=self._region_name,
        )
        resource = old.resource if resource is None else resource
        resource.cf_resource_type = json["Type"]
        resource.logical_resource_id = old.resource.logical_resource_id
        return StackResource(resource, json, resource_name)

    def delete_resource(self, old: StackResource) -> None:
        if isinstance(old.resource, ResourceModel):
            old.resource.delete(AccountRegion(self._account_id, self._region_name))
            return
        if old.type in DELETIONS:
            delete = DELETIONS[old.type]
            delete(self._account_id, self._region_name, old.json["Properties"], old.physical_id)
            return
        self._delete_resource(old.resource, old.json)
        # moto 5.2.5: leaves a bucket that is not empty, without an error.
        if isinstance(old.resource, FakeBucket) and self._bucket_exists(old.resource):
            raise ResourceError("The bucket you tried to delete is not empty")

    def _bucket_exists(self, bucket: FakeBucket) -> bool:
        backend = s3_backends[self._account_id][get_partition(self._region_name)]
        return backend.buckets.get(bucket.name) is bucket


def can_update(resource: StackResource) -> bool:
    model = parsing.get_model_map().get(resource.type)
    return model is not None and not hasattr(
        model.update_from_cloudformation_json, "__isabstractmethod__"
    )


def can_delete(resource: StackResource) -> bool:
    if resource.type in DELETIONS or hasattr(resource.resource, "delete"):
        return True
    model: Any = parsing.get_model_map().get(resource.type)
    return not hasattr(model.delete_from_cloudformation_json, "__isabstractmethod__")


def _default_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
