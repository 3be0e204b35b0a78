"""Change one stack: read its state, prepare a change, execute it and follow it to its end.

AWS plans the changes (change sets) and undoes them (rollback). A change that is interrupted here
continues there, and the same command finds it again: nothing is stored on this machine.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from batchyard.aws.cloudformation import CloudFormation
from batchyard.aws.session import AwsRefusedError
from batchyard.errors import BatchyardError, InputError, OperationalError
from batchyard.infra import catalogue, changes, events
from batchyard.infra.catalogue import Template
from batchyard.infra.changes import Change
from batchyard.infra.events import Event, Progress, Step

Document = dict[str, Any]

_CHANGE_SET_POLL_S = 1.0
_EVENTS_POLL_S = 2.0
#: State of an empty stack that contains only change sets.
REVIEW = "REVIEW_IN_PROGRESS"
#: States of stacks whose creation failed: they can only be deleted.
CREATION_FAILED = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED")
_SUPERSEDED_CODES = ("InvalidChangeSetStatus", "ChangeSetNotFound")
_SUPERSEDED = re.compile(
    r"already exists and cannot be created again|_IN_PROGRESS state and can ?not be updated"
    r"|^could not prepare a change of .*: Stack .* does not exist"
)
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


class DeclinedError(BatchyardError):
    """The user declined a change."""

    exit_code = 130


class StackFailedError(OperationalError):
    """A stack could not be changed."""


class SupersededError(OperationalError):
    """Somebody else has changed the stack since the change was planned: it must be planned again.

    AWS makes other change sets of a stack obsolete when one is executed.
    """


class Dialog(Protocol):
    """Shows the user what happens, and asks for permission."""

    def say(self, text: str) -> None: ...

    def ask(self, question: str) -> bool:
        """Return whether the user agrees. Raises InputError if nobody can answer."""

    def show_changes(
        self, stack: str, changes: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
    ) -> None: ...

    def show_events(self, stack: str, steps: Sequence[Step], progress: Progress) -> None:
        """Show the steps completed since the last call, and what is in progress."""

    def show_end(self, stack: str, status: str, duration_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """A change that AWS has planned and not begun."""

    stack: str
    stack_id: str
    change_set_id: str
    changes: tuple[Change, ...]
    parameters: Mapping[str, tuple[str, str]]
    #: True if the stack exists only as the empty one that the change set needs.
    is_new: bool


class Stacks:
    def __init__(
        self,
        aws: CloudFormation,
        dialog: Dialog,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._aws = aws
        self._dialog = dialog
        self._sleep = sleep
        self._clock = clock

    # -- state -----------------------------------------------------------------------------------

    def find(self, name: str) -> Document | None:
        """Return a stack of a template by its name; None if it does not exist.

        Raises InputError if a stack of that name belongs to someone else.
        """
        stack = self._aws.stack(name)
        if stack is None or stack["StackStatus"] == "DELETE_COMPLETE":
            return None
        description = stack.get("Description", "")
        if description.startswith(catalogue.MARK) or stack["StackStatus"] == REVIEW:
            return stack
        raise InputError(
            f"there is a stack {stack['StackName']} that is not batchyard's (it says:"
            f" {description or 'nothing'})",
            hint="choose another environment's name; this one is left alone",
        )

    def find_by_title(self, name: str, title: str) -> Document | None:
        """Return the stack of this name if its description begins with ``title``; else None."""
        stack = self._aws.stack(name)
        if stack is None or stack["StackStatus"] == "DELETE_COMPLETE":
            return None
        return stack if stack.get("Description", "").startswith(title) else None

    def wait_until_idle(self, name: str) -> Document | None:
        """Return the stack when no change is in progress; None if it does not exist yet."""
        followed_status = ""
        while (stack := self.find(name)) is not None:
            status = stack["StackStatus"]
            if status == REVIEW:
                return None
            if not status.endswith("_IN_PROGRESS"):
                return stack
            if followed_status != status:
                self._dialog.say(f"{name}: a change is in progress ({status}); waiting for its end")
                self.follow(name, stack["StackId"], None)
                followed_status = status
            else:
                # The status of a stack changes a moment after its events.
                self._sleep(_EVENTS_POLL_S)
        return None

    def _find_updatable(self, template: Template, environment: str) -> Document | None:
        """Return the stack if a change set can update it; None if it must be created.

        Raises OperationalError if the stack must be repaired first.
        """
        stack = self.wait_until_idle(template.stack_of(environment))
        if stack is None:
            return None
        name, status = stack["StackName"], stack["StackStatus"]
        if status in CREATION_FAILED:
            self._delete_failed(name, status, stack["StackId"])
            return None
        if status == "DELETE_FAILED":
            raise OperationalError(
                f"{name} is half deleted: {stack.get('StackStatusReason', status)}",
                hint=f"`batchyard {template.delete_command or f'destroy {template.name}'} --env"
                f" {environment}` goes on, then deploy again",
            )
        if status == "UPDATE_ROLLBACK_FAILED":
            raise OperationalError(
                f"{name} could not roll back a failed change:"
                f" {stack.get('StackStatusReason', status)}",
                hint="repair what the reason names, then"
                f" `aws cloudformation continue-update-rollback --stack-name {name}`",
            )
        return stack

    def _delete_failed(self, name: str, status: str, stack_id: str) -> None:
        """Delete a stack whose creation failed. Raises DeclinedError if the user declines."""
        cause = events.find_first_cause(self._last_operation(stack_id))
        reason = f": {cause}" if cause else ""
        self._dialog.say(f"{name}: an earlier attempt failed ({status}){reason}")
        if not self._dialog.ask(f"delete what is left of {name}, and make it anew?"):
            raise DeclinedError(f"{name} is left as it is")
        self.delete(name, stack_id)

    # -- changes ---------------------------------------------------------------------------------

    def prepare(
        self,
        template: Template,
        environment: str,
        settings: Mapping[str, str],
        tags: Mapping[str, str] | None = None,
    ) -> PreparedChange | None:
        """Let AWS plan the change; None if the stack is up to date. Raises AwsRefusedError.

        ``tags`` are added to those that the stack has; AWS gives them to its resources.
        """
        stack = self._find_updatable(template, environment)
        name = template.stack_of(environment)
        deployed = parameters_of(stack) if stack else {}
        # An empty stack that exists already may contain a change set of someone else.
        is_new = stack is None and self.find(name) is None
        timestamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._clock()))
        with naming_superseded(name):
            change_set_id = self._aws.make_change_set(
                name,
                f"batchyard-{timestamp}-{secrets.token_hex(3)}",
                template.text,
                catalogue.request_parameters(template, environment, settings, deployed),
                {
                    **(tags_of(stack) if stack else {}),
                    **(tags or {}),
                    catalogue.ENVIRONMENT_TAG: environment,
                },
                is_new=stack is None,
            )
            change_set = self._aws.change_set(change_set_id)
            while change_set["Status"] not in ("CREATE_COMPLETE", "FAILED"):
                self._sleep(_CHANGE_SET_POLL_S)
                change_set = self._aws.change_set(change_set_id)
        prepared = PreparedChange(
            name,
            change_set["StackId"],
            change_set_id,
            tuple(changes.from_change_set(change_set["Changes"])),
            catalogue.changed_parameters(template, settings, deployed),
            is_new=is_new,
        )
        if change_set["Status"] == "FAILED":
            self.discard(prepared)
            reason = change_set.get("StatusReason", "")
            if any(words in reason for words in _NO_CHANGES):
                return None
            raise AwsRefusedError(
                f"{name} cannot be changed so: {events.unwrap_reason(reason)}",
                hint=events.find_hint(reason),
            )
        return prepared

    def find_importers(self, exports: Iterable[str]) -> dict[str, list[str]]:
        """Return export -> the stacks that import it, for the exports that exist."""
        names = sorted(exports)
        existing = {export["Name"] for export in self._aws.exports()} if names else set()
        return {name: sorted(self._aws.importers(name)) for name in names if name in existing}

    def discard(self, prepared: PreparedChange) -> None:
        """Delete the change set, and the empty stack that it needed and that nobody else uses."""
        # Somebody else's change may have made the change set obsolete, and AWS deleted it.
        with suppress(SupersededError), naming_superseded(prepared.stack):
            self._aws.drop_change_set(prepared.change_set_id)
        if prepared.is_new and self._is_unused(prepared.stack_id):
            self._aws.delete(prepared.stack_id)

    def _is_unused(self, stack_id: str) -> bool:
        """Return whether a stack is empty, and nobody else has a change set for it."""
        stack = self._aws.stack(stack_id)
        is_empty = stack is not None and stack["StackStatus"] == REVIEW
        return is_empty and not self._aws.change_set_names(stack_id)

    def execute(self, prepared: PreparedChange) -> None:
        """Make the change. Raises StackFailedError with its cause if AWS rolls the change back."""
        old_events = self._aws.events(prepared.stack_id)
        with naming_superseded(prepared.stack):
            self._aws.execute(prepared.change_set_id)
        self._follow_own(
            prepared.stack, prepared.stack_id, old_events, ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        )

    def delete(self, name: str, stack_id: str) -> None:
        """Delete a stack. Raises StackFailedError if a resource of it cannot be deleted."""
        old_events = self._aws.events(stack_id)
        self._aws.delete(stack_id)
        self._follow_own(name, stack_id, old_events, ("DELETE_COMPLETE",))

    # -- progress --------------------------------------------------------------------------------

    def _follow_own(
        self,
        name: str,
        stack_id: str,
        old_events: Sequence[Document],
        success_states: Sequence[str],
    ) -> None:
        """Follow a change that this command began. Raises StackFailedError if it fails."""
        try:
            seen = self.follow(name, stack_id, old_events[-1]["EventId"] if old_events else None)
        except KeyboardInterrupt:
            self._dialog.say(f"{name}: AWS goes on with it; the same command finds it again")
            raise
        status = events.final_status(seen)
        if status not in success_states:
            cause = events.find_first_cause(seen)
            raise StackFailedError(
                f"{name}: {cause}" if cause else f"{name}: {status}, and AWS gave no reason",
                hint=cause.hint
                if cause
                else f"`aws cloudformation describe-stack-events --stack-name {name}`",
            )

    def follow(self, name: str, stack_id: str, last_event_id: str | None) -> list[Event]:
        """Show the events of a stack until no change is in progress, and return them.

        Events up to ``last_event_id`` are skipped; with None, those before the current change.
        """
        progress, seen = Progress(), list[Event]()
        while True:
            fresh = events.from_aws(self._aws.events(stack_id, last_event_id))
            if last_event_id is None:
                fresh = events.last_operation(fresh)
            seen += fresh
            last_event_id = seen[-1].id if seen else last_event_id
            self._dialog.show_events(name, progress.take(fresh), progress)
            status = events.final_status(seen)
            if status:
                break
            self._sleep(_EVENTS_POLL_S)
        self._dialog.show_end(name, status, seen[-1].time_s - seen[0].time_s)
        return seen

    def _last_operation(self, stack_id: str) -> list[Event]:
        # A deletion that failed later is not why the stack could not be created.
        history = [
            event
            for event in events.from_aws(self._aws.events(stack_id))
            if "DELETE" not in event.status
        ]
        return events.last_operation(history)


@contextmanager
def naming_superseded(stack: str) -> Iterator[None]:
    """Raise SupersededError instead of the errors with which AWS says that a plan is too old."""
    try:
        yield
    except AwsRefusedError as exc:
        if exc.code not in _SUPERSEDED_CODES and not _SUPERSEDED.search(exc.message):
            raise
        raise SupersededError(
            f"{stack} has been changed by somebody else in the meantime",
            hint="run the same command again: it shows what is left to do",
        ) from exc


def parameters_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {
        parameter["ParameterKey"]: parameter["ParameterValue"]
        for parameter in stack.get("Parameters", [])
    }


def tags_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}


def outputs_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
