"""A CloudFormation in memory that takes its time: what is begun goes on by one step each time
somebody sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from batchyard.aws.session import AwsRefusedError
from batchyard.infra.changes import Change
from batchyard.infra.events import Progress, Step

Document = dict[str, Any]
Row = tuple[str, str, str]


class Scripted:
    """``steps``: what will happen, one at each sleep: (logical id or "", status, reason); "" is
    the stack itself.
    """

    region = "eu-central-1"

    def __init__(
        self, name: str = "dev-storage", status: str = "", description: str = "batchyard: storage"
    ) -> None:
        self.name = name
        self.status = status
        self.description = description
        self.steps: list[Row] = []
        self.history: list[Document] = []
        self.calls: list[str] = []
        self.on_execute: list[Row] = []
        self.on_delete: list[Row] = [
            ("", "DELETE_IN_PROGRESS", "User Initiated"),
            ("", "DELETE_COMPLETE", ""),
        ]
        #: what DescribeChangeSet says, one after the other
        self.change_sets: list[Document] = [{"Status": "CREATE_COMPLETE", "Changes": []}]
        self.execute_refuses: AwsRefusedError | None = None
        #: called before an execution is refused: what somebody else does meanwhile
        self.on_refusal: Callable[[], None] = lambda: None
        self.names_of_change_sets: list[str] = []
        self.now_s = 1_790_000_000

    def happen(self, *rows: Row) -> None:
        for name, status, reason in rows:
            self.now_s += 1
            stack = not name
            self.history.append(
                {
                    "EventId": f"event-{len(self.history)}",
                    "Timestamp": datetime.fromtimestamp(self.now_s, UTC),
                    "StackName": self.name,
                    "LogicalResourceId": name or self.name,
                    "ResourceType": "AWS::CloudFormation::Stack" if stack else "AWS::S3::Bucket",
                    "ResourceStatus": status,
                    "ResourceStatusReason": reason,
                }
            )
            if stack:
                self.status = "" if status == "DELETE_COMPLETE" else status

    def sleep(self, seconds: float) -> None:
        self.calls.append("sleep")
        assert self.calls.count("sleep") < 50, "it waits for ever"
        if self.steps:
            self.happen(self.steps.pop(0))

    # -- what CloudFormation has -----------------------------------------------------------------

    def stack(self, name: str) -> Document | None:
        if not self.status or name not in (self.name, f"id-{self.name}"):
            return None
        return {
            "StackName": self.name,
            "StackId": f"id-{self.name}",
            "StackStatus": self.status,
            "Description": self.description,
            "Parameters": [{"ParameterKey": "Env", "ParameterValue": "dev"}],
        }

    def events(self, stack_id: str, after: str | None = None) -> list[Document]:
        ids = [event["EventId"] for event in self.history]
        return self.history[ids.index(after) + 1 if after in ids else 0 :]

    def make_change_set(
        self,
        stack: str,
        name: str,
        template: str,
        parameters: Sequence[Document],
        tags: Mapping[str, str],
        *,
        is_new: bool,
    ) -> str:
        self.calls.append("make CREATE" if is_new else "make UPDATE")
        if not self.status:
            self.happen(("", "REVIEW_IN_PROGRESS", "User Initiated"))
        return "change-set"

    def change_set(self, change_set_id: str) -> Document:
        found = self.change_sets[0] if len(self.change_sets) == 1 else self.change_sets.pop(0)
        return {"StackId": f"id-{self.name}", **found}

    def change_set_names(self, stack_id: str) -> list[str]:
        return self.names_of_change_sets

    def drop_change_set(self, change_set_id: str) -> None:
        self.calls.append("drop")

    def execute(self, change_set_id: str) -> None:
        self.calls.append("execute")
        if self.execute_refuses:
            self.on_refusal()
            raise self.execute_refuses
        self.steps = list(self.on_execute)

    def delete(self, stack_id: str) -> None:
        self.calls.append("delete")
        self.steps = list(self.on_delete)


class Listener:
    """A front that writes down what it is told, and answers as it was told to."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.steps: list[str] = []
        self.on_events: Callable[[], None] = lambda: None

    def say(self, text: str) -> None:
        self.said.append(text)

    def ask(self, question: str) -> bool:
        self.asked.append(question)
        return self.answers.pop(0)

    def show_changes(
        self, stack: str, found: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
    ) -> None:
        self.said.append(f"changes of {stack}")

    def show_events(self, stack: str, done: Sequence[Step], progress: Progress) -> None:
        self.steps += [f"{step.verb} {step.name}" for step in done]
        self.on_events()

    def show_end(self, stack: str, status: str, duration_s: float) -> None:
        self.said.append(f"{stack} {status} {duration_s:.0f}")
