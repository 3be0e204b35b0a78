"""One stack at a time: what state it is in, what a change would do, making it and watching it to its end.

AWS does the planning (change sets) and the undoing (rollback). Whatever is interrupted here goes on there, and the same
command finds it again: nothing is kept on this machine.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
#: an empty stack that holds change sets, for one that is to be made
REVIEW = "REVIEW_IN_PROGRESS"
#: never made: they can only be deleted
STILLBORN = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED")
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


class DeclinedError(BatchyardError):
    """The answer was no: nothing more was changed."""

    exit_code = 130


class StackFailedError(OperationalError):
    """A stack could not be changed."""


class Front(Protocol):
    """Whoever sees what happens, and answers."""

    def say(self, text: str) -> None: ...

    def ask(self, question: str) -> bool:
        """Raises InputError where nobody can answer."""

    def show_changes(
        self, stack: str, found: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
    ) -> None: ...

    def show_events(self, stack: str, done: Sequence[Step], progress: Progress) -> None:
        """What has been done since the last call, and what is going on."""

    def show_end(self, stack: str, status: str, duration_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change that AWS has planned and not begun."""

    stack: str
    stack_id: str
    change_set_id: str
    changes: tuple[Change, ...]
    parameters: Mapping[str, tuple[str, str]]
    #: there was no stack before, and is none yet but the empty one that the change set needed
    is_new: bool


class Stacks:
    def __init__(
        self,
        aws: CloudFormation,
        front: Front,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._aws = aws
        self._front = front
        self._sleep = sleep
        self._clock = clock

    # -- what is there --------------------------------------------------------------------------------------------

    def find(self, template: Template, environment: str) -> Document | None:
        """The stack of a template, whatever its state. Raises InputError where the name is somebody else's."""
        stack = self._aws.stack(template.stack_of(environment))
        if stack is None or stack["StackStatus"] == "DELETE_COMPLETE":
            return None
        description = stack.get("Description", "")
        if description.startswith(catalogue.MARK) or stack["StackStatus"] == REVIEW:
            return stack
        raise InputError(
            f"there is a stack {stack['StackName']} that is not batchyard's (it says: {description or 'nothing'})",
            hint="choose another environment's name; this one is left alone",
        )

    def settled(self, template: Template, environment: str) -> Document | None:
        """The stack, once nobody is changing it; None where it is to be made."""
        followed = ""
        while (stack := self.find(template, environment)) is not None:
            name, status = stack["StackName"], stack["StackStatus"]
            if status == REVIEW:
                return None
            if not status.endswith("_IN_PROGRESS"):
                return stack
            if followed != status:
                self._front.say(f"{name}: a change is in progress ({status}); waiting for its end")
                self.follow(name, stack["StackId"], None)
                followed = status
            else:
                # The events run ahead of the stack's own status by a moment.
                self._sleep(_EVENTS_POLL_S)
        return None

    def updatable(self, template: Template, environment: str) -> Document | None:
        """The stack as something that a change set can be made for; None where it is to be made."""
        stack = self.settled(template, environment)
        if stack is None:
            return None
        name, status = stack["StackName"], stack["StackStatus"]
        if status in STILLBORN:
            why = events.first_cause(self._last_operation(stack["StackId"]))
            self._front.say(
                f"{name}: an earlier attempt failed ({status}){f': {why}' if why else ''}"
            )
            if not self._front.ask(f"delete what is left of {name}, and make it anew?"):
                raise DeclinedError(f"{name} is left as it is")
            self.delete(name, stack["StackId"])
            return None
        if status == "DELETE_FAILED":
            raise OperationalError(
                f"{name} is half deleted: {stack.get('StackStatusReason', status)}",
                hint=f"`batchyard destroy {template.name} --env {environment}` goes on, then deploy again",
            )
        if status == "UPDATE_ROLLBACK_FAILED":
            raise OperationalError(
                f"{name} could not go back after a failed change: {stack.get('StackStatusReason', status)}",
                hint=f"mend what it names, then `aws cloudformation continue-update-rollback --stack-name {name}`",
            )
        return stack

    # -- changing -------------------------------------------------------------------------------------------------

    def prepare(
        self, template: Template, environment: str, settings: Mapping[str, str]
    ) -> Prepared | None:
        """What AWS would do; None where there is nothing to do."""
        stack = self.updatable(template, environment)
        name = template.stack_of(environment)
        deployed = parameters_of(stack) if stack else {}
        # An empty stack that was there before may hold somebody else's change set.
        is_new = stack is None and self.find(template, environment) is None
        change_set_id = self._aws.make_change_set(
            name,
            f"batchyard-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(self._clock()))}-{secrets.token_hex(3)}",
            template.text,
            catalogue.request_parameters(template, environment, settings, deployed),
            is_new=stack is None,
        )
        found = self._aws.change_set(change_set_id)
        while found["Status"] not in ("CREATE_COMPLETE", "FAILED"):
            self._sleep(_CHANGE_SET_POLL_S)
            found = self._aws.change_set(change_set_id)
        prepared = Prepared(
            name,
            found["StackId"],
            change_set_id,
            tuple(changes.from_change_set(found["Changes"])),
            catalogue.changed_parameters(template, settings, deployed),
            is_new=is_new,
        )
        if found["Status"] == "FAILED":
            self.discard(prepared)
            reason = found.get("StatusReason", "")
            if any(words in reason for words in _NO_CHANGES):
                return None
            raise AwsRefusedError(
                f"{name} cannot be changed so: {events.said(reason)}", hint=events.hint_for(reason)
            )
        return prepared

    def users_of(self, exports: Iterable[str]) -> dict[str, list[str]]:
        """Those of the exports that there are -> the stacks that import them."""
        wanted = sorted(exports)
        there = {one["Name"] for one in self._aws.exports()} if wanted else set()
        return {name: sorted(self._aws.importers(name)) for name in wanted if name in there}

    def discard(self, prepared: Prepared) -> None:
        """As if it had never been prepared."""
        self._aws.drop_change_set(prepared.change_set_id)
        if prepared.is_new:
            self._aws.delete(prepared.stack_id)

    def carry_out(self, prepared: Prepared) -> None:
        """Raises StackFailedError, with the first cause, where AWS has undone the change."""
        before = self._aws.events(prepared.stack_id)
        try:
            self._aws.execute(prepared.change_set_id)
        except AwsRefusedError as exc:
            if exc.code not in ("InvalidChangeSetStatus", "ChangeSetNotFound"):
                raise
            raise OperationalError(
                f"{prepared.stack} has been changed by somebody else in the meantime",
                hint="run the same command again: it shows what is left to do",
            ) from exc
        self._see_through(
            prepared.stack, prepared.stack_id, before, ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        )

    def delete(self, name: str, stack_id: str) -> None:
        """Raises StackFailedError where something of it stays."""
        before = self._aws.events(stack_id)
        self._aws.delete(stack_id)
        self._see_through(name, stack_id, before, ("DELETE_COMPLETE",))

    # -- watching -------------------------------------------------------------------------------------------------

    def _see_through(
        self, name: str, stack_id: str, before: Sequence[Document], wanted: Sequence[str]
    ) -> None:
        """Follows a change of ours to its end. Raises StackFailedError where the end is another than the wanted ones."""
        try:
            seen = self.follow(name, stack_id, before[-1]["EventId"] if before else None)
        except KeyboardInterrupt:
            self._front.say(f"{name}: AWS goes on with it; the same command finds it again")
            raise
        status = events.outcome(seen)
        if status not in wanted:
            cause = events.first_cause(seen)
            raise StackFailedError(
                f"{name}: {cause}" if cause else f"{name}: {status}, and AWS gave no reason",
                hint=cause.hint
                if cause
                else f"`aws cloudformation describe-stack-events --stack-name {name}`",
            )

    def follow(self, name: str, stack_id: str, after: str | None) -> list[Event]:
        """Shows the events after this one (None: of the change that is going on) until the stack has come to rest."""
        progress, seen = Progress(), list[Event]()
        while True:
            fresh = events.from_aws(self._aws.events(stack_id, after))
            if after is None:
                fresh = events.of_last_operation(fresh)
            seen += fresh
            after = seen[-1].id if seen else after
            self._front.show_events(name, progress.take(fresh), progress)
            status = events.outcome(seen)
            if status:
                break
            self._sleep(_EVENTS_POLL_S)
        self._front.show_end(name, status, seen[-1].time_s - seen[0].time_s)
        return seen

    def _last_operation(self, stack_id: str) -> list[Event]:
        # A deletion that came to nothing is not why the stack could not be made.
        whole = [
            event
            for event in events.from_aws(self._aws.events(stack_id))
            if "DELETE" not in event.status
        ]
        return events.of_last_operation(whole)


def parameters_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {one["ParameterKey"]: one["ParameterValue"] for one in stack.get("Parameters", [])}


def outputs_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
