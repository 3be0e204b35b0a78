"""One change of a stack: create and update its resources in order, undo everything if one fails.

moto 5.2.5: its ResourceMap creates a resource when somebody looks at it, forgets a resource that it
cannot update, and leaves things as they are after a failure. Here every change has a map of its
own, and the stack takes it over when the change has succeeded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
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
#: logical id, physical id, type, status, reason
AddEvent = Callable[[str, str, str, str, str], None]


class StackChangeError(Exception):
    """A change failed and was undone; the message names the resource and the reason."""

    def __init__(self, message: str, *, is_undone: bool) -> None:
        self.message = message
        #: False if the change could not be undone completely
        self.is_undone = is_undone
        super().__init__(message)


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


def describe_error(exc: Exception) -> str:
    """Return the reason that an event shows for an exception."""
    if isinstance(exc, KeyError):
        return f"{exc.args[0]} is missing, or is not known"
    message = getattr(exc, "message", None) or getattr(exc, "description", None)
    return str(message or f"{type(exc).__name__}: {exc}")


def _is_not_found(exc: Exception) -> bool:
    codes = (str(getattr(exc, name, "")) for name in ("code", "error_type"))
    return any("NotFound" in code or "NoSuch" in code for code in codes)


# -- a change --------------------------------------------------------------------------------------


class StackChange:
    """Brings the resources of a stack from the old template to the new one."""

    def __init__(self, old: StackResources, new: StackResources, add_event: AddEvent) -> None:
        self._old = old
        self._new = new
        self._add_event = add_event
        #: calls that undo the change so far, to be made last first
        self._undo_steps: list[Callable[[], object]] = []
        #: replaced resources, which are deleted when nothing refers to them any more
        self._replaced: list[tuple[str, StackResource]] = []

    def perform(self, compute_outputs: Callable[[], object]) -> None:
        """Create and update resources, compute the outputs, then delete what is not used any more.

        Raises StackChangeError, with everything undone, if one of the first two fails.
        """
        for name, resource in self._old.existing.items():
            self._new.put(name, resource)
        try:
            active_names = self._new.active_names()
            for name in active_names:
                self._create_or_update(name)
            for name in set(self._new.existing) - set(active_names):
                self._new.forget(name)
            _call_for("Outputs", compute_outputs)
        except _ResourceFailedError as exc:
            raise StackChangeError(exc.message, is_undone=self._undo()) from exc
        self._delete_unused(active_names)

    def _create_or_update(self, name: str) -> None:
        model, json, resource_name = _call_for(name, lambda: self._new.resolve_resource(name))
        old = self._new.existing.get(name)
        if old is None or old.type != json["Type"]:
            self._create(name, model, json, resource_name, old)
        elif old.json["Properties"] == json["Properties"]:
            self._new.put(name, StackResource(old.resource, json, old.name))
        elif can_update(old):
            self._update(name, json, resource_name, old)
        else:
            self._new.put(name, StackResource(old.resource, json, old.name))
            reason = f"{old.type} is left as it was: moto cannot change it"
            self._add_event(name, old.physical_id, old.type, "UPDATE_COMPLETE", reason)

    def _create(
        self,
        name: str,
        model: Any,
        json: Document,
        resource_name: str,
        replaced: StackResource | None,
    ) -> None:
        kind = json["Type"]
        self._add_event(name, "", kind, "CREATE_IN_PROGRESS", "")
        try:
            resource = self._new.create_resource(name, model, json, resource_name)
        except Exception as exc:
            self._add_event(name, "", kind, "CREATE_FAILED", describe_error(exc))
            raise _ResourceFailedError(name, exc) from exc
        self._new.put(name, resource)
        self._undo_steps.append(lambda: self._undo_create(name, resource))
        if replaced is not None:
            self._replaced.append((name, replaced))
        reason = ""
        if model is Placeholder:
            reason = f"this endpoint does not know {kind}: the stack goes on without it"
        self._add_event(name, resource.physical_id, kind, "CREATE_COMPLETE", reason)

    def _update(self, name: str, json: Document, resource_name: str, old: StackResource) -> None:
        kind = json["Type"]
        # A resource that the template does not name keeps the name that was generated for it.
        name_property = parsing.resource_name_property_from_type(kind)
        is_named = name_property in json["Properties"] or name_property in old.json["Properties"]
        if not is_named and not isinstance(old.resource, ResourceModel):
            resource_name = old.name
        self._add_event(name, old.physical_id, kind, "UPDATE_IN_PROGRESS", "")
        try:
            resource = self._new.update_resource(old, json, resource_name)
        except Exception as exc:
            self._add_event(name, old.physical_id, kind, "UPDATE_FAILED", describe_error(exc))
            raise _ResourceFailedError(name, exc) from exc
        self._new.put(name, resource)
        if isinstance(resource.resource, ResourceModel) and resource.resource is not old.resource:
            if not resource.resource.keeps_predecessor:
                self._replaced.append((name, old))
            self._undo_steps.append(lambda: self._undo_create(name, resource))
        else:
            self._undo_steps.append(lambda: self._new.update_resource(resource, old.json, old.name))
        self._add_event(name, resource.physical_id, kind, "UPDATE_COMPLETE", "")

    def _undo_create(self, name: str, resource: StackResource) -> None:
        self._new.delete_resource(resource)
        self._add_event(name, resource.physical_id, resource.type, "DELETE_COMPLETE", "")

    def _undo(self) -> bool:
        """Undo the change, and return whether every step could be undone."""
        is_undone = True
        for undo_step in reversed(self._undo_steps):
            try:
                undo_step()
            except Exception as exc:
                is_undone = False
                self._add_event("", "", "", "ROLLBACK_FAILED", describe_error(exc))
        return is_undone

    def _delete_unused(self, active_names: list[str]) -> None:
        for name, resource in reversed(self._replaced):
            delete_resources(self._new, {name: resource}, self._add_event, "UpdateReplacePolicy")
        removed = {
            name: resource
            for name, resource in self._old.existing.items()
            if name not in active_names
        }
        delete_resources(self._new, removed, self._add_event)


class _ResourceFailedError(Exception):
    def __init__(self, name: str, exc: Exception) -> None:
        self.message = f"{name}: {describe_error(exc)}"
        super().__init__(self.message)


def _call_for(name: str, action: Callable[[], Any]) -> Any:
    """Call the action; name the resource in whatever it raises."""
    try:
        return action()
    except Exception as exc:
        raise _ResourceFailedError(name, exc) from exc


def delete_resources(
    resources: StackResources,
    to_delete: dict[str, StackResource],
    add_event: AddEvent,
    policy: str = "DeletionPolicy",
) -> list[str]:
    """Delete resources, the newest first, and return the logical ids of those that remain.

    A resource that others still use is tried again after the others. ``policy`` is the attribute of
    the template that can retain a resource.
    """
    remaining = dict(reversed(to_delete.items()))
    failures: dict[str, str] = {}
    is_progress = True
    while remaining and is_progress:
        is_progress = False
        for name, resource in list(remaining.items()):
            status, reason = _try_delete(resources, resource, policy)
            if status == "DELETE_FAILED":
                failures[name] = reason
                continue
            add_event(name, resource.physical_id, resource.type, status, reason)
            del remaining[name]
            is_progress = True
    for name, resource in remaining.items():
        add_event(name, resource.physical_id, resource.type, "DELETE_FAILED", failures[name])
    return list(remaining)


def _try_delete(resources: StackResources, resource: StackResource, policy: str) -> tuple[str, str]:
    """Delete a resource, if it may be deleted; return the status and the reason for its event."""
    if resource.json.get(policy) in ("Retain", "RetainExceptOnCreate"):
        return "DELETE_SKIPPED", ""
    if not can_delete(resource):
        return "DELETE_SKIPPED", f"{resource.type} is still there: moto cannot delete it"
    try:
        resources.delete_resource(resource)
    except Exception as exc:
        # A resource that somebody has deleted by hand is deleted.
        if not _is_not_found(exc):
            return "DELETE_FAILED", describe_error(exc)
    return "DELETE_COMPLETE", ""


def _default_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
