"""CloudFormation: stacks, their change sets, events, resources and exports, in AWS's own shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from batchyard.aws.session import AccessDeniedError, AwsRefusedError, AwsSession, naming_errors
from batchyard.environments import STACKS

Document = dict[str, Any]

_ACTION = re.compile(r"\b([a-z][a-z0-9-]+:[A-Z][A-Za-z]+)\b")
#: the templates' IAM resources; what they change is shown before it is done
_CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"]


def outputs_of(environment: str, session: AwsSession | None = None) -> dict[str, str]:
    """The outputs of an environment's stacks, and `Region`; nothing where none is deployed."""
    session = session or AwsSession(None)
    found: dict[str, str] = {}
    for stack in STACKS:
        try:
            with naming_errors(f"ask about the stack {environment}-{stack}"):
                answer = session.client("cloudformation").describe_stacks(
                    StackName=f"{environment}-{stack}"
                )
        except AwsRefusedError as exc:
            if "does not exist" not in exc.message:
                raise
            continue
        for output in answer["Stacks"][0].get("Outputs", []):
            found[output["OutputKey"]] = output["OutputValue"]
    return {**found, "Region": session.client("cloudformation").meta.region_name} if found else {}


@contextmanager
def administering(doing: str, service: str = "cloudformation") -> Iterator[None]:
    """`told`, for what the administrator's policy grants and not the submitter's."""
    try:
        with naming_errors(doing):
            yield
    except AccessDeniedError as exc:
        operation = getattr(exc.__cause__, "operation_name", "")
        named = _ACTION.search(exc.message.partition("access denied for ")[2].partition(": ")[2])
        action = named[1] if named else f"{service}:{operation}"
        raise AccessDeniedError(
            exc.message,
            hint=f"ask for the action {action}: the environment's administrator policy grants it (output "
            "AdministratorPolicyArn of its stack iam); before there is one, an administrator of the account deploys",
        ) from exc


class CloudFormation:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    @property
    def _client(self) -> Any:
        return self._session.client("cloudformation")

    @property
    def region(self) -> str:
        return str(self._client.meta.region_name)

    def account(self) -> str:
        """Its number. Asked once and not repeated, so that wrong credentials and regions show at once."""
        _ = self.region  # which this question would do without
        with naming_errors("ask AWS who this is"):
            return str(self._session.client("sts", repeats=False).get_caller_identity()["Account"])

    # -- stacks ---------------------------------------------------------------------------------------------------

    def stack(self, name: str) -> Document | None:
        """By its name, or by its id, which also finds one that is deleted."""
        try:
            with administering(f"ask about the stack {name}"):
                found: Document = self._client.describe_stacks(StackName=name)["Stacks"][0]
                return found
        except AwsRefusedError as exc:
            if "does not exist" in exc.message:
                return None
            raise

    def summaries(self) -> list[Document]:
        """Of all stacks of the region that are not deleted, whatever has become of them."""
        states = self._client.meta.service_model.shape_for("StackStatus").enum
        there = [state for state in states if state != "DELETE_COMPLETE"]
        with administering("list the stacks"):
            pages = self._client.get_paginator("list_stacks").paginate(StackStatusFilter=there)
            return [one for page in pages for one in page["StackSummaries"]]

    def delete(self, stack_id: str) -> None:
        with administering(f"delete the stack {stack_id}"):
            self._client.delete_stack(StackName=stack_id)

    def events(self, stack_id: str, after: str | None = None) -> list[Document]:
        """The oldest first; those after the event of this id."""
        found: list[Document] = []
        with administering("read the stack's events"):
            for page in self._client.get_paginator("describe_stack_events").paginate(
                StackName=stack_id
            ):
                for event in page["StackEvents"]:
                    if event["EventId"] == after:
                        return found[::-1]
                    found.append(event)
        return found[::-1]

    def resources(self, stack_id: str) -> list[Document]:
        with administering("list the stack's resources"):
            pages = self._client.get_paginator("list_stack_resources").paginate(StackName=stack_id)
            return [one for page in pages for one in page["StackResourceSummaries"]]

    # -- change sets ----------------------------------------------------------------------------------------------

    def make_change_set(
        self, stack: str, name: str, template: str, parameters: Sequence[Document], *, is_new: bool
    ) -> str:
        """Its id. AWS makes it in the background."""
        with administering(f"prepare a change of {stack}"):
            answer = self._client.create_change_set(
                StackName=stack,
                ChangeSetName=name,
                ChangeSetType="CREATE" if is_new else "UPDATE",
                TemplateBody=template,
                Parameters=list(parameters),
                Capabilities=_CAPABILITIES,
            )
        return str(answer["Id"])

    def change_set(self, change_set_id: str) -> Document:
        """With all its changes."""
        whole: Document = {}
        more: Document = {}
        with administering("look at the change set"):
            while True:
                # Not the paginator, which would keep the changes and drop the rest.
                page = self._client.describe_change_set(
                    ChangeSetName=change_set_id, IncludePropertyValues=True, **more
                )
                changes = [*whole.get("Changes", []), *page.get("Changes", [])]
                whole = {**page, "Changes": changes}
                if not page.get("NextToken"):
                    return whole
                more = {"NextToken": page["NextToken"]}

    def drop_change_set(self, change_set_id: str) -> None:
        with administering("delete the change set"):
            self._client.delete_change_set(ChangeSetName=change_set_id)

    def execute(self, change_set_id: str) -> None:
        with administering("make the change"):
            self._client.execute_change_set(ChangeSetName=change_set_id)

    # -- exports --------------------------------------------------------------------------------------------------

    def exports(self) -> list[Document]:
        with administering("list the exports of stacks"):
            pages = self._client.get_paginator("list_exports").paginate()
            return [export for page in pages for export in page["Exports"]]

    def importers(self, export: str) -> list[str]:
        """The names of the stacks that use it."""
        try:
            with administering(f"ask who uses the export {export}"):
                pages = self._client.get_paginator("list_imports").paginate(ExportName=export)
                return [name for page in pages for name in page["Imports"]]
        except AwsRefusedError as exc:
            if "is not imported" in exc.message:
                return []
            raise
