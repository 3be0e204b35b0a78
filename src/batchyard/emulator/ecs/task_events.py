"""Events of EventBridge about tasks and container instances, and the sending of all of ECS."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from batchyard.emulator import names
from batchyard.emulator.ecs.instances import make_instance_event
from batchyard.emulator.ecs.records import ContainerInstance, EcsTask
from batchyard.emulator.ecs.task_descriptions import describe, status_of
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import Document, EndpointState

_ORDER = ("PROVISIONING", "PENDING", "RUNNING", "STOPPING", "STOPPED")
#: Members that a task has only when it stops.
_LATE_MEMBERS = ("stoppingAt", "stoppedAt", "executionStoppedAt", "stopCode", "stoppedReason")


class TaskEvents:
    """Sends an event for each change of the state of a task."""

    def __init__(
        self,
        regions: Regions,
        has_rules: Callable[[str], bool],
        send: Callable[[list[Document]], None],
    ) -> None:
        """``has_rules`` returns whether a region has rules that may want events."""
        self._regions = regions
        self._has_rules = has_rules
        self._send = send

    def on_tick(self) -> None:
        """Send the events since the last call. The caller holds the lock of the loop."""
        for state in self._regions.states():
            # Each is made at once: the version of a task grows with the next one.
            events = [
                make_event() for make_event in _take_events(state) if self._has_rules(state.region)
            ]
            if events:
                self._send(events)


def _take_events(state: EndpointState) -> Iterator[Callable[[], Document]]:
    """Yield what makes each event since the last call: without rules, none is made."""
    pending, state.ecs.events_to_send = state.ecs.events_to_send, []
    for event in pending:
        yield partial(_wrap, state, event.kind, event.arn, _with_texts(event.detail))
    for instance in state.ecs.instances.values():
        if instance.is_changed:
            instance.is_changed = False
            instance.version += 1
            yield partial(_make_instance_event, state, instance)
    for task in list(state.ecs.unreported.values()):
        for status in take_new_states(task):
            yield partial(_make_event, state, task, status)
        if task.is_stopped:
            del state.ecs.unreported[task.task_id]


def take_new_states(task: EcsTask) -> Iterator[str]:
    """Yield the states that a task has gone through since the last call, and count them."""
    status = status_of(task)
    if status == task.seen_status:
        return
    first = _ORDER.index(task.seen_status) + 1 if task.seen_status else 0
    task.seen_status = status
    for passed in _ORDER[first : _ORDER.index(status)]:
        has_passed = {
            "PROVISIONING": not task.instance or bool(task.capacity_provider),
            "PENDING": task.is_placed,
            "RUNNING": task.started_s is not None,
        }
        if has_passed.get(passed):
            task.version += 1
            yield passed
    task.version += 1
    yield status


def _make_event(state: EndpointState, task: EcsTask, status: str) -> Document:
    detail = describe(state, task) | {"lastStatus": status}
    if status not in ("STOPPING", "STOPPED"):
        detail = {key: value for key, value in detail.items() if key not in _LATE_MEMBERS}
        detail["desiredStatus"] = "RUNNING"
    detail = _with_texts(detail) | {"updatedAt": _text(state.clock())}
    return _wrap(state, "ECS Task State Change", task.arn, detail)


def _make_instance_event(state: EndpointState, instance: ContainerInstance) -> Document:
    event = make_instance_event(state, instance)
    return _wrap(state, event.kind, event.arn, _with_texts(event.detail))


def _wrap(state: EndpointState, kind: str, resource: str, detail: Document) -> Document:
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": kind,
        "source": "aws.ecs",
        "account": names.ACCOUNT_ID,
        "time": _text(state.clock()),
        "region": state.region,
        "resources": [resource],
        "detail": detail,
    }


def _with_texts(value: Any) -> Any:
    """Return a description with its times as texts."""
    if isinstance(value, list):
        return [_with_texts(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _text(entry)
        if key.endswith("At") and isinstance(entry, int | float)
        else _with_texts(entry)
        for key, entry in value.items()
    }


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
