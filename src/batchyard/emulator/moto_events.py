"""EventBridge, SNS, SQS and Lambda of moto, to which the events of jobs are sent."""

from __future__ import annotations

import copy
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from batchyard.emulator import names
from batchyard.emulator.state import Document


class EventSender:
    """Sends events to the targets of matching rules, on a thread of its own."""

    def __init__(self, report: Callable[[str], None]) -> None:
        """``report`` is called with a line about each target that cannot be reached."""
        self._report = report
        self._events: queue.SimpleQueue[Document] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def has_rules(self, region: str) -> bool:
        return next(_rules(region), None) is not None

    def send(self, events: list[Document]) -> None:
        for event in events:
            self._events.put(event)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="events", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            event = self._events.get()
            for rule in list(_rules(event["region"])):
                if rule.event_pattern.matches_event(event):
                    for target in list(rule.targets):
                        _send_to_target(rule, target, event, self._report)


def _rules(region: str) -> Iterator[Any]:
    """Yield the enabled rules of a region's default bus that wait for events."""
    # moto imports EventBridge with its first request. Before that there are no rules.
    models = sys.modules.get("moto.events.models")
    if models is None:
        return
    # Looked up without []: that would make a backend, for which moto reads the AWS profile.
    backends = dict.get(models.events_backends, names.ACCOUNT_ID, {})
    backend = dict.get(backends, region)
    if backend is None:
        return
    for rule in list(backend.event_buses["default"].rules.values()):
        if rule.state == "ENABLED" and rule.event_pattern.get_pattern():
            yield rule


def _send_to_target(
    rule: Any, target: dict[str, Any], event: Document, report: Callable[[str], None]
) -> None:
    """Send an event to a target; report a target that cannot be reached."""
    service = target["Arn"].split(":")[2]
    senders = {"sqs": _send_to_sqs, "sns": _send_to_sns, "lambda": _send_to_lambda}
    try:
        if service in senders:
            senders[service](target, json.dumps(transform_event(target, event)))
            return
        # moto knows more kinds of targets. It expects the time as a number.
        seconds = datetime.fromisoformat(event["time"]).timestamp()
        rule_of_target = copy.copy(rule)
        rule_of_target.targets = [target]
        rule_of_target.send_to_targets({**event, "time": seconds})
    except Exception as exc:  # moto has an exception for each kind of missing resource.
        message = getattr(exc, "message", None) or f"{type(exc).__name__}: {exc}"
        report(f"no event to {target['Arn']}: {message}")


def transform_event(target: dict[str, Any], event: Document) -> Any:
    """Return what the target receives: the event, a constant, or the filled template."""
    from moto.events.utils import EventTemplateParser

    if target.get("Input"):
        return json.loads(target["Input"])
    transformer = target.get("InputTransformer", {})
    if "InputTemplate" not in transformer:
        return event
    return EventTemplateParser.parse(
        input_template=transformer["InputTemplate"],
        input_paths_map=transformer.get("InputPathsMap", {}),
        event={**event, "ingestion-time": event["time"]},  # type: ignore[typeddict-item]
    )


def _send_to_sqs(target: dict[str, Any], body: str) -> None:
    from moto.sqs.models import sqs_backends

    _, _, _, region, account_id, name = target["Arn"].split(":")
    group_id = target.get("SqsParameters", {}).get("MessageGroupId")
    sqs_backends[account_id][region].send_message(name, body, group_id=group_id)


def _send_to_sns(target: dict[str, Any], body: str) -> None:
    from moto.sns.models import sns_backends

    region, account_id = target["Arn"].split(":")[3:5]
    sns_backends[account_id][region].publish(body, arn=target["Arn"])


def _send_to_lambda(target: dict[str, Any], body: str) -> None:
    from moto.awslambda.utils import get_backend

    region, account_id = target["Arn"].split(":")[3:5]
    headers: dict[str, Any] = {"x-amz-invocation-type": "Event"}
    get_backend(account_id, region).invoke(target["Arn"], None, body, headers, {})
