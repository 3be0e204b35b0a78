"""CloudFormation's operations on stacks and change sets, in the place of moto's."""

from __future__ import annotations

from threading import RLock
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

from batchyard.emulator.moto_cloudformation import templates
from batchyard.emulator.moto_cloudformation.changes import Change, ChangeFailed, delete
from batchyard.emulator.moto_cloudformation.own_model import Refused
from batchyard.emulator.moto_cloudformation.stacks import ChangeSet, Stack, parsed

Document = dict[str, Any]

_NO_CHANGES = "The submitted information didn't contain changes. Submit different information to create a change set."
#: changes of stacks happen one after the other
_turn = RLock()


class NotExecutable(CloudFormationError):
    code = "InvalidChangeSetStatus"


class NoSuchChangeSet(CloudFormationError):
    code = "ChangeSetNotFound"


class Backend(models.CloudFormationBackend):
    @property
    def _url_module(self) -> Any:
        # moto finds it by the name of the class's module.
        return urls

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
    ) -> models.Stack:
        with _turn:
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
            self.change(stack, template, parameters, "CREATE")
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
        template = parsed(text)
        try:
            templates.check_parameters(template, parameters)
        except templates.BadTemplate as exc:
            raise ValidationError(message=str(exc)) from exc
        stack.read(template, parameters)
        return template

    def change(self, stack: Stack, text: str, parameters: dict[str, Any], verb: str) -> None:
        """Brings about what the template asks for; how that went is in the stack's status and events."""
        template = self._check(stack, text, parameters)
        # A stack that could not be made has a description too.
        stack.description = stack.description or template.get("Description")
        stack.begin(f"{verb}_IN_PROGRESS")
        new = stack.read(template, parameters)
        outputs = parsing.OutputMap(new, template, stack.stack_id)

        def conclude() -> None:
            # Whatever is wrong with an output shows here, while there is still a way back.
            list(outputs.values())
            self._check_exports(stack, outputs.exports)

        back = "ROLLBACK" if verb == "CREATE" else "UPDATE_ROLLBACK"
        try:
            Change(stack.resource_map, new, stack.note).perform(conclude)
        except ChangeFailed as exc:
            stack.begin(f"{back}_IN_PROGRESS", exc.message)
            stack.end(f"{back}_COMPLETE" if exc.is_undone else f"{back}_FAILED", exc.message)
            return
        for export in stack.exports:
            self.exports.pop(export.name, None)
        stack.keep(text, template, new, outputs)
        self.exports.update({export.name: export for export in stack.exports})
        stack.end(f"{verb}_COMPLETE")

    def _check_exports(self, stack: Stack, exports: list[parsing.Export]) -> None:
        for export in exports:
            other = self.exports.get(export.name)
            if other is not None and other.exporting_stack_id != stack.stack_id:
                raise Refused(
                    f"Export with name {export.name} is already exported by {other.exporting_stack_id}"
                )
        kept = {export.name: export.value for export in exports}
        for old in stack.exports:
            users = self.users_of(old.name) if kept.get(old.name) != old.value else []
            if users:
                raise Refused(
                    f"Export {old.name} cannot be updated as it is in use by {' and '.join(users)}"
                )

    def users_of(self, export: str) -> list[str]:
        """The names of the stacks that import it."""
        return [
            s.name for s in self.stacks.values() if export in getattr(s.resource_map, "imports", ())
        ]

    def update_stack(
        self,
        name: str,
        template: str,
        role_arn: str | None,
        parameters: list[Document],
        tags: dict[str, str] | None,
    ) -> models.Stack:
        with _turn:
            stack = self.get_stack(name)
            assert isinstance(stack, Stack)
            self._require_updatable(stack)
            given = self._resolve_update_parameters(instance=stack, incoming_params=parameters)
            if self._is_same(stack, template, given) and not tags:
                raise ValidationError(message="No updates are to be performed.")
            self.change(stack, template, given, "UPDATE")
            stack.tags = stack.tags if tags is None else tags
            return stack

    def _require_updatable(self, stack: Stack) -> None:
        if stack.status == "REVIEW_IN_PROGRESS":
            raise ValidationError(message=f"Stack [{stack.name}] does not exist")
        if stack.status.startswith(("ROLLBACK", "DELETE")):
            raise ValidationError(
                message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated."
            )

    def _is_same(self, stack: Stack, text: str, parameters: dict[str, Any]) -> bool:
        return stack.template_dict == parsed(text) and stack.stack_parameters == {
            name: parameters.get(name, default) for name, default in stack.stack_parameters.items()
        }

    def _resolve_update_parameters(
        self, instance: Any, incoming_params: list[Document]
    ) -> dict[str, str]:
        previous = instance.stack_parameters if isinstance(instance, Stack) else instance.parameters
        return {
            entry["ParameterKey"]: previous.get(entry["ParameterKey"], "")
            if entry.get("UsePreviousValue")
            else entry["ParameterValue"]
            for entry in incoming_params
        }

    def delete_stack(self, name_or_stack_id: str) -> None:
        with _turn:
            for stack in list(self.stacks.values()):
                if name_or_stack_id in (stack.name, stack.stack_id) and isinstance(stack, Stack):
                    self._delete(stack)

    def _delete(self, stack: Stack) -> None:
        stack.begin("DELETE_IN_PROGRESS")
        for export in stack.exports:
            users = self.users_of(export.name)
            if users:
                reason = f"Export {export.name} cannot be deleted as it is in use by {' and '.join(users)}"
                return stack.end("DELETE_FAILED", reason)
        resources = stack.resource_map
        left = delete(resources, resources.made, stack.note)
        for name in [name for name in resources.made if name not in left]:
            resources.forget(name)
        if left:
            reason = f"The following resource(s) failed to delete: [{', '.join(left)}]."
            return stack.end("DELETE_FAILED", reason)
        for export in stack.exports:
            self.exports.pop(export.name, None)
        stack.kept_outputs, stack.kept_exports = [], []
        stack.end("DELETE_COMPLETE")
        self.deleted_stacks[stack.stack_id] = self.stacks.pop(stack.stack_id)
        self.change_sets = {
            key: value
            for key, value in self.change_sets.items()
            if value.stack_id != stack.stack_id
        }

    # -- change sets ----------------------------------------------------------------------------------------

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
        with _turn:
            known = [s for s in self.stacks.values() if stack_name in (s.name, s.stack_id)]
            stack = known[0] if known else None
            members: Document = {
                "notification_arns": notification_arns,
                "tags": tags,
                "role_arn": role_arn,
            }
            if change_set_type == "UPDATE":
                if not isinstance(stack, Stack):
                    raise ValidationError(message=f"Stack [{stack_name}] does not exist")
                self._require_updatable(stack)
            elif stack is None:
                stack = self._new_stack(stack_name, **members)
            elif stack.status != "REVIEW_IN_PROGRESS":
                raise ValidationError(
                    message=f"Stack [{stack_name}] already exists and cannot be created again with the changeSet "
                    f"[{change_set_name}]."
                )
            assert isinstance(stack, Stack)
            self._check(stack, template, parameters)
            if stack.stack_id not in self.stacks:
                self.stacks[stack.stack_id] = stack
                stack.begin("REVIEW_IN_PROGRESS")
            made = ChangeSet(
                change_set_type=change_set_type,
                change_set_id=generate_changeset_id(
                    change_set_name, self.region_name, self.account_id
                ),
                change_set_name=change_set_name,
                stack=stack,
                template=template,
                parameters=parameters,
                description=description,
                **members,
            )
            made.status, made.execution_status = "CREATE_COMPLETE", "AVAILABLE"
            if change_set_type == "UPDATE" and self._is_same(stack, template, parameters):
                made.status, made.execution_status, made.status_reason = (
                    "FAILED",
                    "UNAVAILABLE",
                    _NO_CHANGES,
                )
            self.change_sets[made.change_set_id] = made
            return made.change_set_id, stack.stack_id

    def find_change_set(self, name: str, stack_name: str | None) -> models.ChangeSet:
        for change_set in reversed(self.change_sets.values()):
            if change_set.change_set_id == name or (
                change_set.change_set_name == name
                and (
                    stack_name is None or stack_name in (change_set.stack_name, change_set.stack_id)
                )
            ):
                return change_set
        raise NoSuchChangeSet(f"ChangeSet [{name}] does not exist")

    def execute_change_set(self, change_set_name: str, stack_name: str | None = None) -> None:
        with _turn:
            change_set = self.find_change_set(change_set_name, stack_name)
            if change_set.execution_status != "AVAILABLE":
                raise NotExecutable(
                    f"ChangeSet [{change_set.change_set_id}] cannot be executed in its current status of "
                    f"[{change_set.status}]"
                )
            stack = change_set.stack
            assert isinstance(stack, Stack)
            self.change(
                stack, change_set.template, change_set.parameters, change_set.change_set_type
            )
            has_succeeded = stack.status == f"{change_set.change_set_type}_COMPLETE"
            change_set.execution_status = "EXECUTE_COMPLETE" if has_succeeded else "EXECUTE_FAILED"
