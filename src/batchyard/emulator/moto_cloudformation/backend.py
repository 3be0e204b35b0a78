"""CloudFormation's operations on stacks and change sets, in the place of moto's.

moto 5.2.5: a failed change is an HTTP error and leaves a stack half changed; exports in use can be
deleted; ExecuteChangeSet takes a change set of that name from any stack.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from moto.cloudformation import models, parsing, urls
from moto.cloudformation.exceptions import (
    AlreadyExistsException,
    CloudFormationError,
    ValidationError,
)
from moto.cloudformation.utils import (
    generate_changeset_id,
    generate_stack_id,
    validate_create_change_set,
)

from batchyard.emulator.moto_cloudformation.resource_model import ResourceError
from batchyard.emulator.moto_cloudformation.stack_changes import (
    StackChange,
    StackChangeError,
    delete_resources,
)
from batchyard.emulator.moto_cloudformation.stacks import ChangeSet, Stack, parse_template
from batchyard.emulator.moto_cloudformation.template_parameters import check_parameters
from batchyard.emulator.moto_cloudformation.templates import TemplateError

Document = dict[str, Any]

_NO_CHANGES = (
    "The submitted information didn't contain changes. "
    "Submit different information to create a change set."
)
#: held during a change, so that stacks change one after the other
_lock = threading.RLock()
#: how often a stack in progress looks at the resources that are not settled
_SETTLE_POLL_S = 0.2


class ChangeSetStatusError(CloudFormationError):
    code = "InvalidChangeSetStatus"


class ChangeSetNotFoundError(CloudFormationError):
    code = "ChangeSetNotFound"


class Backend(models.CloudFormationBackend):
    @property
    def _url_module(self) -> Any:
        # moto derives the module's name from the class's module, which is ours.
        return urls

    # -- stacks ------------------------------------------------------------------------------------

    def create_stack(
        self,
        name: str,
        template: str,
        parameters: dict[str, Any],
        notification_arns: list[str] | None = None,
        tags: dict[str, str] | None = None,
        role_arn: str | None = None,
        enable_termination_protection: bool | None = False,
        timeout_in_mins: int | None = None,
        stack_policy_body: str | None = None,
        *,
        waits: bool = True,
    ) -> models.Stack:
        with _lock:
            if any(stack.name == name for stack in self.stacks.values()):
                raise AlreadyExistsException(f"Stack [{name}] already exists")
            stack = self._new_stack(
                name,
                notification_arns=notification_arns,
                tags=tags,
                role_arn=role_arn,
                enable_termination_protection=enable_termination_protection,
                timeout_in_mins=timeout_in_mins,
                stack_policy_body=stack_policy_body,
            )
            self._check(stack, template, parameters)
            self.stacks[stack.stack_id] = stack
            self.change_stack(stack, template, parameters, "CREATE", waits=waits)
            return stack

    def _new_stack(self, name: str, **members: Any) -> Stack:
        return Stack(
            stack_id=generate_stack_id(name, self.region_name, self.account_id),
            name=name,
            parameters={},
            account_id=self.account_id,
            region_name=self.region_name,
            **members,
        )

    def _check(self, stack: Stack, text: str, parameters: dict[str, Any]) -> Document:
        """Return the parsed template; raise ValidationError if it or a parameter is invalid."""
        template = parse_template(text)
        try:
            check_parameters(template, parameters)
        except TemplateError as exc:
            raise ValidationError(message=str(exc)) from exc
        stack.load_resources(template, parameters)
        return template

    def change_stack(
        self, stack: Stack, text: str, parameters: dict[str, Any], verb: str, *, waits: bool = False
    ) -> None:
        """Create or update the stack's resources; the stack's status and events show the result.

        ``verb`` is CREATE or UPDATE. With ``waits``, a stack whose resources are not settled is in
        progress, and ends in the background.
        """
        template = self._check(stack, text, parameters)
        # A stack whose creation fails has a description too.
        stack.description = stack.description or template.get("Description")
        stack.begin_operation(f"{verb}_IN_PROGRESS")
        new_resources = stack.load_resources(template, parameters)
        outputs = parsing.OutputMap(new_resources, template, stack.stack_id)

        def compute_outputs() -> None:
            # An invalid output raises here, while the change can still be undone.
            list(outputs.values())
            self._check_exports(stack, outputs.exports)

        def commit() -> None:
            change.finish()
            for export in stack.exports:
                self.exports.pop(export.name, None)
            stack.save_change(text, template, new_resources, outputs)
            self.exports.update({export.name: export for export in stack.exports})
            stack.end_operation(f"{verb}_COMPLETE")

        change = StackChange(stack.resource_map, new_resources, stack.add_event)
        try:
            change.perform(compute_outputs)
        except StackChangeError as exc:
            stack.roll_back(verb, exc.message, is_undone=exc.is_undone)
            return
        if waits and not change.is_settled:
            stack.unsettled_resources = new_resources
            arguments = (stack, verb, change, commit)
            threading.Thread(target=self._settle, args=arguments, daemon=True).start()
            return
        commit()

    def _settle(
        self, stack: Stack, verb: str, change: StackChange, commit: Callable[[], None]
    ) -> None:
        """End a change when its resources are settled, or undo it when one of them failed."""
        while not change.is_settled:
            time.sleep(_SETTLE_POLL_S)
            with _lock:
                if stack.unsettled_resources is None:  # somebody deletes the stack
                    return
                try:
                    change.settle()
                    if change.is_settled:
                        commit()
                except StackChangeError as exc:
                    stack.roll_back(verb, exc.message, is_undone=exc.is_undone)
                if not stack.status.endswith("_IN_PROGRESS"):
                    stack.unsettled_resources = None
                    self._end_executions(stack, is_success=stack.status == f"{verb}_COMPLETE")
                    return

    def _end_executions(self, stack: Stack, *, is_success: bool) -> None:
        for change_set in self.change_sets.values():
            is_executing = change_set.execution_status == "EXECUTE_IN_PROGRESS"
            if is_executing and change_set.stack_id == stack.stack_id:
                change_set.execution_status = "EXECUTE_COMPLETE" if is_success else "EXECUTE_FAILED"

    def _check_exports(self, stack: Stack, exports: list[parsing.Export]) -> None:
        for export in exports:
            other = self.exports.get(export.name)
            if other is not None and other.exporting_stack_id != stack.stack_id:
                raise ResourceError(
                    f"Export with name {export.name} is already exported by "
                    f"{other.exporting_stack_id}"
                )
        new_values = {export.name: export.value for export in exports}
        for old in stack.exports:
            is_unchanged = new_values.get(old.name) == old.value
            importers = [] if is_unchanged else self.importers_of(old.name)
            if importers:
                raise ResourceError(
                    f"Export {old.name} cannot be updated as it is in use by "
                    f"{' and '.join(importers)}"
                )

    def importers_of(self, export: str) -> list[str]:
        """Return the names of the stacks that import the export."""
        return [
            stack.name
            for stack in self.stacks.values()
            if export in getattr(stack.resource_map, "imports", ())
        ]

    def update_stack(
        self,
        name: str,
        template: str,
        role_arn: str | None,
        parameters: list[Document],
        tags: dict[str, str] | None,
    ) -> models.Stack:
        with _lock:
            stack = self.get_stack(name)
            assert isinstance(stack, Stack)
            self._require_updatable(stack)
            values = self._resolve_update_parameters(instance=stack, incoming_params=parameters)
            if self._is_unchanged(stack, template, values) and not tags:
                raise ValidationError(message="No updates are to be performed.")
            self.change_stack(stack, template, values, "UPDATE", waits=True)
            stack.tags = stack.tags if tags is None else tags
            return stack

    def _require_updatable(self, stack: Stack) -> None:
        if stack.status == "REVIEW_IN_PROGRESS":
            raise ValidationError(message=f"Stack [{stack.name}] does not exist")
        is_busy = stack.status.endswith("_IN_PROGRESS")
        if is_busy or stack.status.startswith(("ROLLBACK", "DELETE")):
            raise ValidationError(
                message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated."
            )

    def _is_unchanged(self, stack: Stack, text: str, parameters: dict[str, Any]) -> bool:
        old_parameters = stack.stack_parameters
        template = parse_template(text)
        return (
            stack.template_dict == template
            and old_parameters
            == {name: parameters.get(name, value) for name, value in old_parameters.items()}
            and not stack.changed_values(template, parameters)
        )

    def _resolve_update_parameters(
        self, instance: Any, incoming_params: list[Document]
    ) -> dict[str, str]:
        # moto 5.2.5: raises KeyError for a previous value that the stack has by default.
        previous = instance.stack_parameters if isinstance(instance, Stack) else instance.parameters
        return {
            parameter["ParameterKey"]: previous.get(parameter["ParameterKey"], "")
            if parameter.get("UsePreviousValue")
            else parameter["ParameterValue"]
            for parameter in incoming_params
        }

    def delete_stack(self, name_or_stack_id: str) -> None:
        with _lock:
            for stack in list(self.stacks.values()):
                if name_or_stack_id in (stack.name, stack.stack_id) and isinstance(stack, Stack):
                    self._delete_stack(stack)

    def _delete_stack(self, stack: Stack) -> None:
        if stack.status == "UPDATE_IN_PROGRESS":
            raise ValidationError(
                message=f"Stack [{stack.name}] cannot be deleted while in status {stack.status}"
            )
        if stack.unsettled_resources is not None:
            # What the creation has made so far is deleted.
            stack.resource_map, stack.unsettled_resources = stack.unsettled_resources, None
        stack.begin_operation("DELETE_IN_PROGRESS")
        for export in stack.exports:
            importers = " and ".join(self.importers_of(export.name))
            if importers:
                reason = f"Export {export.name} cannot be deleted as it is in use by {importers}"
                return stack.end_operation("DELETE_FAILED", reason)
        resources = stack.resource_map
        remaining = delete_resources(resources, resources.existing, stack.add_event)
        for name in [name for name in resources.existing if name not in remaining]:
            resources.forget(name)
        if remaining:
            reason = f"The following resource(s) failed to delete: [{', '.join(remaining)}]."
            return stack.end_operation("DELETE_FAILED", reason)
        for export in stack.exports:
            self.exports.pop(export.name, None)
        stack.saved_outputs, stack.saved_exports = [], []
        stack.end_operation("DELETE_COMPLETE")
        self.deleted_stacks[stack.stack_id] = self.stacks.pop(stack.stack_id)
        self.change_sets = {
            change_set_id: change_set
            for change_set_id, change_set in self.change_sets.items()
            if change_set.stack_id != stack.stack_id
        }

    # -- change sets -------------------------------------------------------------------------------

    def create_change_set(
        self,
        stack_name: str,
        change_set_name: str,
        template: str,
        parameters: dict[str, str],
        description: str,
        change_set_type: str,
        notification_arns: list[str] | None = None,
        tags: dict[str, str] | None = None,
        role_arn: str | None = None,
    ) -> tuple[str, str]:
        validate_create_change_set(change_set_name)
        members: Document = {
            "notification_arns": notification_arns,
            "tags": tags,
            "role_arn": role_arn,
        }
        with _lock:
            if change_set_type == "UPDATE":
                stack = self._stack_to_update(stack_name)
            else:
                stack = self._stack_to_create(stack_name, change_set_name, members)
            self._check(stack, template, parameters)
            if stack.stack_id not in self.stacks:
                self.stacks[stack.stack_id] = stack
                stack.begin_operation("REVIEW_IN_PROGRESS")
            change_set_id = generate_changeset_id(
                change_set_name, self.region_name, self.account_id
            )
            change_set = ChangeSet(
                change_set_type=change_set_type,
                change_set_id=change_set_id,
                change_set_name=change_set_name,
                stack=stack,
                template=template,
                parameters=parameters,
                description=description,
                **members,
            )
            change_set.status, change_set.execution_status = "CREATE_COMPLETE", "AVAILABLE"
            is_same = self._is_unchanged(stack, template, parameters)
            if change_set_type == "UPDATE" and is_same and (not tags or tags == stack.tags):
                change_set.status, change_set.execution_status = "FAILED", "UNAVAILABLE"
                change_set.status_reason = _NO_CHANGES
            self.change_sets[change_set_id] = change_set
            return change_set_id, stack.stack_id

    def _find_stack(self, name_or_stack_id: str) -> Stack | None:
        for stack in self.stacks.values():
            if name_or_stack_id in (stack.name, stack.stack_id):
                assert isinstance(stack, Stack)
                return stack
        return None

    def _stack_to_update(self, name: str) -> Stack:
        stack = self._find_stack(name)
        if stack is None:
            raise ValidationError(message=f"Stack [{name}] does not exist")
        self._require_updatable(stack)
        return stack

    def _stack_to_create(self, name: str, change_set_name: str, members: Document) -> Stack:
        stack = self._find_stack(name)
        if stack is not None and stack.status != "REVIEW_IN_PROGRESS":
            raise ValidationError(
                message=f"Stack [{name}] already exists and cannot be created again "
                f"with the changeSet [{change_set_name}]."
            )
        return stack or self._new_stack(name, **members)

    def find_change_set(self, name: str, stack_name: str | None) -> models.ChangeSet:
        """Return the change set of this name or ARN. Raises ChangeSetNotFoundError."""
        for change_set in reversed(self.change_sets.values()):
            is_of_stack = stack_name in (None, change_set.stack_name, change_set.stack_id)
            if change_set.change_set_id == name or (
                change_set.change_set_name == name and is_of_stack
            ):
                return change_set
        raise ChangeSetNotFoundError(f"ChangeSet [{name}] does not exist")

    def execute_change_set(self, change_set_name: str, stack_name: str | None = None) -> None:
        with _lock:
            change_set = self.find_change_set(change_set_name, stack_name)
            if change_set.execution_status != "AVAILABLE":
                raise ChangeSetStatusError(
                    f"ChangeSet [{change_set.change_set_id}] cannot be executed in its current "
                    f"status of [{change_set.status}]"
                )
            stack, verb = change_set.stack, change_set.change_set_type
            assert isinstance(stack, Stack)
            # A change makes the other plans for the stack obsolete. moto 5.2.5: does not.
            for other in self.change_sets.values():
                if other.stack_id == stack.stack_id and other is not change_set:
                    other.execution_status = "OBSOLETE"
            # moto 5.2.5: keeps the tags of the first change.
            stack.tags = change_set.tags or stack.tags
            change_set.execution_status = "EXECUTE_IN_PROGRESS"
            self.change_stack(stack, change_set.template, change_set.parameters, verb, waits=True)
            if stack.unsettled_resources is None:
                self._end_executions(stack, is_success=stack.status == f"{verb}_COMPLETE")
