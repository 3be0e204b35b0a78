"""Watch a service while its tasks are replaced: events, tasks that fail, and their last output.

CloudFormation says only that the circuit breaker was triggered, often after many minutes, and a
stack that is rolled back takes its log group with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from batchyard.aws.ecs_services import EcsServices
from batchyard.aws.logs import Logs
from batchyard.errors import BatchyardError
from batchyard.infra.changes import Change
from batchyard.infra.events import Progress, Step
from batchyard.infra.stacks import Dialog
from batchyard.services import states
from batchyard.services.service_template import CONTAINER
from batchyard.units import show_controls

#: Lines of output that are shown of a task that failed.
_SHOWN_LINES = 10


class Rollout:
    """What has happened to a service since a moment."""

    def __init__(
        self, ecs: EcsServices, logs: Logs, cluster: str, service: str, family: str, log_group: str
    ) -> None:
        self._ecs = ecs
        self._logs = logs
        self._cluster = cluster
        self._service = service
        self._family = family
        self._log_group = log_group
        self._seen: set[str] = set()
        #: revision of the task definition -> its first failure
        self._failures: dict[int, str] = {}
        #: The last output that was shown.
        self._output: list[str] = []
        #: The last event, if it says that no node has room for a task; else empty.
        self._lack_of_room = ""

    def begin(self) -> None:
        """Take note of what has happened so far, which is not reported."""
        with suppress(BatchyardError):
            self.look()
        self._failures, self._output, self._lack_of_room = {}, [], ""

    def look(self) -> list[str]:
        """Return lines about what has happened since the last call."""
        lines = []
        service = self._ecs.service(self._cluster, self._service)
        for event in reversed(states.to_events(service["events"])) if service else ():
            if event.id not in self._seen:
                self._seen.add(event.id)
                lines.append(f"{self._service}: {event.text}")
                self._lack_of_room = event.text if "unable to place" in event.text else ""
                if self._lack_of_room:
                    lines += [f"  {states.find_hint(event.text)}"]
        for task in self._ecs.tasks(self._cluster, self._family, "STOPPED"):
            lines += self._describe_stopped(task)
        return lines

    def _describe_stopped(self, task: Mapping[str, Any]) -> list[str]:
        task_id = str(task["taskArn"]).rpartition("/")[2]
        failure = states.describe_failure(task)
        if not failure or task_id in self._seen:
            return []
        self._seen.add(task_id)
        self._failures.setdefault(states.revision_of(task), failure)
        stream = f"{self._service}/{CONTAINER}/{task_id}"
        output = self._logs.last_lines(self._log_group, stream, _SHOWN_LINES)
        lines = [f"task {task_id[:8]} failed: {failure}"]
        # Most tasks of a deployment fail in the same way.
        if output != self._output:
            lines += [f"  | {show_controls(line)}" for line in output]
        self._output = output
        return lines

    def find_cause(self) -> tuple[str, str]:
        """Return why the tasks do not run, and what to do; empty texts if it is not known."""
        newest = max(self._failures, default=0)
        cause = self._failures.get(newest, self._lack_of_room)
        return cause, states.find_hint(cause)


class RolloutDialog:
    """A Dialog of infra.stacks that also reports what happens to the service."""

    def __init__(self, dialog: Dialog, rollout: Rollout) -> None:
        self._dialog = dialog
        self._rollout = rollout

    def say(self, text: str) -> None:
        self._dialog.say(text)

    def ask(self, question: str) -> bool:
        return self._dialog.ask(question)

    def show_changes(
        self, stack: str, changes: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
    ) -> None:
        self._dialog.show_changes(stack, changes, parameters)

    def show_events(self, stack: str, steps: Sequence[Step], progress: Progress) -> None:
        self._dialog.show_events(stack, steps, progress)
        self._report()

    def show_end(self, stack: str, status: str, duration_s: float) -> None:
        self._report()
        self._dialog.show_end(stack, status, duration_s)

    def _report(self) -> None:
        # A user who may not look at tasks can still deploy.
        with suppress(BatchyardError):
            for line in self._rollout.look():
                self._dialog.say(f"  {line}")
