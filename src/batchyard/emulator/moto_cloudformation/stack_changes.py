"""One change of a stack: create and update its resources in order, undo everything if one fails.

moto 5.2.5: leaves things as they are after a failure. Here the stack takes over the resources of a
change that has succeeded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.cloudformation import parsing

from batchyard.emulator.moto_cloudformation.missing_resources import Placeholder
from batchyard.emulator.moto_cloudformation.resource_model import ResourceModel
from batchyard.emulator.moto_cloudformation.stack_resources import (
    StackResource,
    StackResources,
    can_delete,
    can_update,
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


def _is_settled(resource: StackResource) -> bool:
    """Return whether a creation or update is over. Raises ResourceError if it failed."""
    return not isinstance(resource.resource, ResourceModel) or resource.resource.is_settled()


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
        #: resources that are not settled yet, each with CREATE or UPDATE
        self._unsettled: list[tuple[str, StackResource, str]] = []

    @property
    def is_settled(self) -> bool:
        return not self._unsettled

    def perform(self, compute_outputs: Callable[[], object]) -> None:
        """Create and update resources, and compute the outputs.

        Raises StackChangeError, with everything undone, if one of them fails. Call ``settle`` until
        ``is_settled``, and then ``finish``.
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

    def settle(self) -> None:
        """Add the events of the resources that have settled since the last call.

        Raises StackChangeError, with everything undone, if one of them failed.
        """
        for entry in list(self._unsettled):
            name, resource, verb = entry
            try:
                if not _is_settled(resource):
                    continue
            except Exception as exc:
                reason = describe_error(exc)
                status = f"{verb}_FAILED"
                self._add_event(name, resource.physical_id, resource.type, status, reason)
                message = f"{name}: {reason}"
                raise StackChangeError(message, is_undone=self._undo()) from exc
            self._unsettled.remove(entry)
            self._add_event(name, resource.physical_id, resource.type, f"{verb}_COMPLETE", "")

    def finish(self) -> None:
        """Delete what is not used any more."""
        for name, resource in reversed(self._replaced):
            delete_resources(self._new, {name: resource}, self._add_event, "UpdateReplacePolicy")
        active_names = self._new.active_names()
        removed = {
            name: resource
            for name, resource in self._old.existing.items()
            if name not in active_names
        }
        delete_resources(self._new, removed, self._add_event)

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
        self._add_end(name, resource, "CREATE", reason)

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
        self._add_end(name, resource, "UPDATE", "")

    def _add_end(self, name: str, resource: StackResource, verb: str, reason: str) -> None:
        """Add the event of a resource that was created or updated, once it is settled."""
        if _is_settled(resource):
            status = f"{verb}_COMPLETE"
            self._add_event(name, resource.physical_id, resource.type, status, reason)
        else:
            self._unsettled.append((name, resource, verb))

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
