"""One change of a stack: its resources made and changed in order, undone where one fails, what is left over deleted.

moto's ResourceMap makes a resource when somebody looks at it, forgets one that it cannot update, and leaves things as
they are when something fails. Here a change has a map of its own, which the stack takes over when all is done.
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
from batchyard.emulator.moto_cloudformation.other_resources import Unknown
from batchyard.emulator.moto_cloudformation.own_model import OwnModel, Place, Refused

Document = dict[str, Any]
#: logical id, physical id, type, status, reason
Note = Callable[[str, str, str, str, str], None]


class ChangeFailed(Exception):
    """A change that was undone; the message says which resource refused, and why."""

    def __init__(self, message: str, *, is_undone: bool) -> None:
        self.message = message
        #: False where even going back failed
        self.is_undone = is_undone
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Made:
    resource: Any
    #: the resource's part of the template, with everything resolved
    json: Document
    #: the name that it was made with
    name: str

    @property
    def physical_id(self) -> str:
        return str(getattr(self.resource, "physical_resource_id", ""))


class Resources(parsing.ResourceMap):
    """What a template asks for, and what of it there is."""

    def __init__(self, *, parameters: dict[str, Any], template: Document, **rest: Any) -> None:
        defaults = {
            name: _as_text(entry["Default"])
            for name, entry in template.get("Parameters", {}).items()
            if "Default" in entry
        }
        # moto splits lists and reads numbers in what it is given, not in defaults.
        super().__init__(parameters={**defaults, **parameters}, template=template, **rest)
        self.given = parameters
        self.made: dict[str, Made] = {}
        #: names of the exports that it uses
        self.imports: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        if key in self._parsed_resources:
            return self._parsed_resources[key]
        if key in self._resource_json_map:
            return None
        raise ValidationError(message=f"Template error: there is no resource or parameter {key}")

    @property
    def resources(self) -> Iterable[str]:
        return self.made.keys()

    def __len__(self) -> int:
        return len(self.made)

    def validate_outputs(self) -> None:
        """Outputs are looked at when all resources are there; what is wrong with one then fails the change."""

    def parse_ssm_parameter(self, value: str, value_type: str) -> str:
        try:
            return super().parse_ssm_parameter(value, value_type)
        except AttributeError as exc:
            raise ValidationError(
                message=f"Unable to fetch parameters [{value}] from parameter store for this account."
            ) from exc

    def load_parameters(self) -> None:
        super().load_parameters()
        for name, value in self.resolved_parameters.items():
            if isinstance(value, list):
                self.resolved_parameters[name] = [
                    v.strip() if isinstance(v, str) else v for v in value
                ]
        self._parsed_resources.update(self.resolved_parameters)

    def is_wanted(self, name: str) -> bool:
        condition = self._resource_json_map[name].get("Condition")
        return condition is None or bool(self.lazy_condition_map[condition])

    def wanted(self) -> list[str]:
        """The logical ids whose conditions hold, each after those that it depends on."""
        return [name for name in templates.order(self._template) if self.is_wanted(name)]

    def put(self, name: str, made: Made) -> None:
        self.made[name] = made
        self._parsed_resources[name] = made.resource

    def forget(self, name: str) -> None:
        self.made.pop(name, None)
        self._parsed_resources.pop(name, None)

    # -- one resource ---------------------------------------------------------------------------------------

    def resolved(self, name: str) -> tuple[Any, Document, str]:
        """Model class, the resource's part of the template with everything resolved, and a name for it."""
        part = copy.deepcopy(self._resource_json_map[name])
        part["Properties"] = part.get("Properties") or {}
        kind = part["Type"]
        if kind not in parsing.get_model_map():
            physical = parsing.generate_resource_name(
                kind, self._parsed_resources["AWS::StackName"], name
            )
            return Unknown, {"Type": kind, "Properties": {}}, physical
        model, json, physical = parsing.parse_resource_and_generate_name(name, part, self)
        return model, json, physical

    def build(self, name: str, model: Any, json: Document, physical: str) -> Made:
        kind = json["Type"]
        if model is Unknown:
            resource: Any = Unknown(physical, kind)
        else:
            resource = model.create_from_cloudformation_json(
                physical,
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
        return Made(resource, json, physical)

    def updated(self, old: Made, json: Document, physical: str) -> Made:
        """The resource after an update; with the old JSON and name it is the way back."""
        model = parsing.get_model_map()[json["Type"]]
        resource = model.update_from_cloudformation_json(
            original_resource=old.resource,
            new_resource_name=physical,
            cloudformation_json=copy.deepcopy(json),
            account_id=self._account_id,
            region_name=self._region_name,
        )
        resource = old.resource if resource is None else resource
        resource.cf_resource_type = json["Type"]
        resource.logical_resource_id = old.resource.logical_resource_id
        return Made(resource, json, physical)

    def remove(self, made: Made) -> None:
        if isinstance(made.resource, OwnModel):
            made.resource.delete(Place(self._account_id, self._region_name))
            return
        if made.json["Type"] in DELETIONS:
            properties = made.json["Properties"]
            DELETIONS[made.json["Type"]](
                self._account_id, self._region_name, properties, made.physical_id
            )
            return
        self._delete_resource(made.resource, made.json)
        if isinstance(made.resource, FakeBucket) and self._is_there(made.resource):
            # moto leaves it, and says nothing.
            raise Refused("The bucket you tried to delete is not empty")

    def _is_there(self, bucket: FakeBucket) -> bool:
        backend = s3_backends[self._account_id][get_partition(self._region_name)]
        return backend.buckets.get(bucket.name) is bucket


def can_update(made: Made) -> bool:
    model = parsing.get_model_map().get(made.json["Type"])
    return model is not None and not hasattr(
        model.update_from_cloudformation_json, "__isabstractmethod__"
    )


def can_delete(made: Made) -> bool:
    model: Any = parsing.get_model_map().get(made.json["Type"])
    if made.json["Type"] in DELETIONS or hasattr(made.resource, "delete"):
        return True
    return not hasattr(model.delete_from_cloudformation_json, "__isabstractmethod__")


def sentence(exc: Exception) -> str:
    """What went wrong, for an event."""
    if isinstance(exc, KeyError):
        return f"{exc.args[0]} is missing, or is not known"
    message = getattr(exc, "message", None) or getattr(exc, "description", None)
    return str(message or f"{type(exc).__name__}: {exc}")


def _says_gone(exc: Exception) -> bool:
    words = (str(getattr(exc, name, "")) for name in ("code", "error_type"))
    return any("NotFound" in word or "NoSuch" in word for word in words)


# -- a change ---------------------------------------------------------------------------------------------------


class Change:
    """From what there is to what a template asks for."""

    def __init__(self, old: Resources, new: Resources, note: Note) -> None:
        self._old = old
        self._new = new
        self._note = note
        self._way_back: list[Callable[[], object]] = []
        #: replaced, to be deleted when nothing refers to them any more
        self._replaced: list[tuple[str, Made]] = []

    def perform(self, conclude: Callable[[], object]) -> None:
        """Makes and changes what is wanted, then concludes (outputs), then deletes what is left over. Raises
        ChangeFailed, with everything undone, where one of the first two fails."""
        for name, made in self._old.made.items():
            self._new.put(name, made)
        try:
            wanted = self._new.wanted()
            for name in wanted:
                self._bring_about(name)
            for name in set(self._new.made) - set(wanted):
                self._new.forget(name)
            self._attempt("Outputs", conclude)
        except _Failed as exc:
            raise ChangeFailed(exc.message, is_undone=self._undo()) from exc
        self._clean_up(wanted)

    def _bring_about(self, name: str) -> None:
        model, json, physical = self._attempt(name, lambda: self._new.resolved(name))
        old = self._new.made.get(name)
        if old is None or old.json["Type"] != json["Type"]:
            self._create(name, model, json, physical, old)
        elif old.json["Properties"] == json["Properties"]:
            self._new.put(name, Made(old.resource, json, old.name))
        else:
            self._update(name, json, physical, old)

    def _create(
        self, name: str, model: Any, json: Document, physical: str, old: Made | None
    ) -> None:
        kind = json["Type"]
        self._note(name, "", kind, "CREATE_IN_PROGRESS", "")
        try:
            made = self._new.build(name, model, json, physical)
        except Exception as exc:
            self._note(name, "", kind, "CREATE_FAILED", sentence(exc))
            raise _Failed(name, exc) from exc
        self._new.put(name, made)
        self._way_back.append(lambda: self._take_back(name, made))
        if old is not None:
            self._replaced.append((name, old))
        reason = (
            f"this endpoint does not know {kind}: the stack goes on without it"
            if model is Unknown
            else ""
        )
        self._note(name, made.physical_id, kind, "CREATE_COMPLETE", reason)

    def _update(self, name: str, json: Document, physical: str, old: Made) -> None:
        kind = json["Type"]
        if not can_update(old):
            self._new.put(name, Made(old.resource, json, old.name))
            self._note(
                name,
                old.physical_id,
                kind,
                "UPDATE_COMPLETE",
                f"{kind} is left as it was: moto cannot change it",
            )
            return
        # A resource without a name of its own is to keep the one that was made for it.
        property = parsing.resource_name_property_from_type(kind)
        if property not in json["Properties"] and property not in old.json["Properties"]:
            physical = old.name if not isinstance(old.resource, OwnModel) else physical
        self._note(name, old.physical_id, kind, "UPDATE_IN_PROGRESS", "")
        try:
            made = self._new.updated(old, json, physical)
        except Exception as exc:
            self._note(name, old.physical_id, kind, "UPDATE_FAILED", sentence(exc))
            raise _Failed(name, exc) from exc
        self._new.put(name, made)
        if isinstance(made.resource, OwnModel) and made.resource is not old.resource:
            if not made.resource.keeps_predecessor:
                self._replaced.append((name, old))
            self._way_back.append(lambda: self._take_back(name, made))
        else:
            self._way_back.append(lambda: self._new.updated(made, old.json, old.name))
        self._note(name, made.physical_id, kind, "UPDATE_COMPLETE", "")

    def _attempt(self, name: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as exc:
            raise _Failed(name, exc) from exc

    def _take_back(self, name: str, made: Made) -> None:
        self._new.remove(made)
        self._note(name, made.physical_id, made.json["Type"], "DELETE_COMPLETE", "")

    def _undo(self) -> bool:
        """Whether everything could be undone."""
        is_undone = True
        for step in reversed(self._way_back):
            try:
                step()
            except Exception as exc:
                is_undone = False
                self._note("", "", "", "ROLLBACK_FAILED", sentence(exc))
        return is_undone

    def _clean_up(self, wanted: list[str]) -> None:
        for name, made in reversed(self._replaced):
            delete(self._new, {name: made}, self._note, "UpdateReplacePolicy")
        removed = {name: made for name, made in self._old.made.items() if name not in wanted}
        delete(self._new, removed, self._note)


class _Failed(Exception):
    def __init__(self, name: str, exc: Exception) -> None:
        self.message = f"{name}: {sentence(exc)}"
        super().__init__(self.message)


def delete(
    resources: Resources, doomed: dict[str, Made], note: Note, policy: str = "DeletionPolicy"
) -> list[str]:
    """Deletes resources, the last one made first, and again those that others still used. Returns what is left."""
    left = dict(reversed(doomed.items()))
    is_progress = True
    failures: dict[str, str] = {}
    while left and is_progress:
        is_progress = False
        for name, made in list(left.items()):
            kind = made.json["Type"]
            if made.json.get(policy) in ("Retain", "RetainExceptOnCreate"):
                note(name, made.physical_id, kind, "DELETE_SKIPPED", "")
            elif not can_delete(made):
                note(
                    name,
                    made.physical_id,
                    kind,
                    "DELETE_SKIPPED",
                    f"{kind} is still there: moto cannot delete it",
                )
            else:
                try:
                    resources.remove(made)
                except Exception as exc:
                    # What somebody deleted by hand is deleted.
                    if not _says_gone(exc):
                        failures[name] = sentence(exc)
                        continue
                note(name, made.physical_id, kind, "DELETE_COMPLETE", "")
            del left[name]
            is_progress = True
    for name, made in left.items():
        note(name, made.physical_id, made.json["Type"], "DELETE_FAILED", failures[name])
    return list(left)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
