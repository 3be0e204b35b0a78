"""CloudFormation: stacks, change sets, events, resources and exports, in AWS's shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from batchyard.aws.session import AccessDeniedError, AwsRefusedError, AwsSession, naming_errors
from batchyard.environments import STACKS

Document = dict[str, Any]

_ACTION = re.compile(r"\b([a-z][a-z0-9-]+:[A-Z][A-Za-z]+)\b")
#: The templates contain IAM resources; `deploy` shows their changes before it makes them.
_CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"]


def read_outputs(environment: str, session: AwsSession | None = None) -> dict[str, str]:
    """Return the outputs of an environment's stacks, and `Region`; {} if none is deployed."""
    session = session or AwsSession(None)
    outputs: dict[str, str] = {}
    for stack in STACKS:
        try:
            with naming_errors(f"describe the stack {environment}-{stack}"):
                answer = session.client("cloudformation").describe_stacks(
                    StackName=f"{environment}-{stack}"
                )
        except AwsRefusedError as exc:
            if "does not exist" not in exc.message:
                raise
            continue
        for output in answer["Stacks"][0].get("Outputs", []):
            outputs[output["OutputKey"]] = output["OutputValue"]
    if not outputs:
        return {}
    return {**outputs, "Region": session.client("cloudformation").meta.region_name}


@contextmanager
def naming_admin_errors(doing: str, service: str = "cloudformation") -> Iterator[None]:
    """Like naming_errors, for calls that only the administrator policy allows."""
    try:
        with naming_errors(doing):
            yield
    except AccessDeniedError as exc:
        operation = getattr(exc.__cause__, "operation_name", "")
        match = _ACTION.search(exc.message.partition("access denied for ")[2].partition(": ")[2])
        action = match[1] if match else f"{service}:{operation}"
        raise AccessDeniedError(
            exc.message,
            hint=f"ask for the action {action}: the environment's administrator policy grants it"
            " (output AdministratorPolicyArn of its stack iam); before there is one, an"
            " administrator of the account deploys",
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
        """Return the account's number. Not repeated, so that wrong credentials show at once."""
        _ = self.region  # raises NoRegionError, which STS would not
        with naming_errors("read the identity of the caller"):
            return str(self._session.client("sts", repeats=False).get_caller_identity()["Account"])

    # -- stacks ----------------------------------------------------------------------------------

    def stack(self, name: str) -> Document | None:
        """Return a stack by name or id; None if it does not exist. An id finds deleted stacks."""
        try:
            with naming_admin_errors(f"describe the stack {name}"):
                stack: Document = self._client.describe_stacks(StackName=name)["Stacks"][0]
                return stack
        except AwsRefusedError as exc:
            if "does not exist" in exc.message:
                return None
            raise

    def summaries(self) -> list[Document]:
        """Return the summaries of all stacks of the region that are not deleted."""
        states = self._client.meta.service_model.shape_for("StackStatus").enum
        existing = [state for state in states if state != "DELETE_COMPLETE"]
        with naming_admin_errors("list the stacks"):
            pages = self._client.get_paginator("list_stacks").paginate(StackStatusFilter=existing)
            return [summary for page in pages for summary in page["StackSummaries"]]

    def delete(self, stack_id: str) -> None:
        with naming_admin_errors(f"delete the stack {stack_id}"):
            self._client.delete_stack(StackName=stack_id)

    def events(self, stack_id: str, last_id: str | None = None) -> list[Document]:
        """Return the events after the one with ``last_id``, oldest first."""
        events: list[Document] = []
        with naming_admin_errors("read the stack's events"):
            for page in self._client.get_paginator("describe_stack_events").paginate(
                StackName=stack_id
            ):
                for event in page["StackEvents"]:
                    if event["EventId"] == last_id:
                        return events[::-1]
                    events.append(event)
        return events[::-1]

    def resources(self, stack_id: str) -> list[Document]:
        with naming_admin_errors("list the stack's resources"):
            pages = self._client.get_paginator("list_stack_resources").paginate(StackName=stack_id)
            return [summary for page in pages for summary in page["StackResourceSummaries"]]

    def template(self, stack: str) -> str:
        """Return the text of a stack's template."""
        with naming_admin_errors(f"read the template of {stack}"):
            body = self._client.get_template(StackName=stack)["TemplateBody"]
        # boto3 parses a template in JSON.
        return body if isinstance(body, str) else json.dumps(body)

    # -- change sets -----------------------------------------------------------------------------

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
        """Create a change set and return its id. AWS completes it in the background."""
        with naming_admin_errors(f"prepare a change of {stack}"):
            answer = self._client.create_change_set(
                StackName=stack,
                ChangeSetName=name,
                ChangeSetType="CREATE" if is_new else "UPDATE",
                TemplateBody=template,
                Parameters=list(parameters),
                Capabilities=_CAPABILITIES,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            )
        return str(answer["Id"])

    def change_set(self, change_set_id: str) -> Document:
        """Return a change set with all its changes."""
        change_set: Document = {}
        next_token: Document = {}
        with naming_admin_errors("describe the change set"):
            while True:
                # boto3's paginator would return only the changes.
                page = self._client.describe_change_set(
                    ChangeSetName=change_set_id, IncludePropertyValues=True, **next_token
                )
                changes = [*change_set.get("Changes", []), *page.get("Changes", [])]
                change_set = {**page, "Changes": changes}
                if not page.get("NextToken"):
                    return change_set
                next_token = {"NextToken": page["NextToken"]}

    def change_set_names(self, stack_id: str) -> list[str]:
        """Return the names of the change sets of a stack."""
        with naming_admin_errors("list the change sets"):
            pages = self._client.get_paginator("list_change_sets").paginate(StackName=stack_id)
            return [entry["ChangeSetName"] for page in pages for entry in page["Summaries"]]

    def drop_change_set(self, change_set_id: str) -> None:
        with naming_admin_errors("delete the change set"):
            self._client.delete_change_set(ChangeSetName=change_set_id)

    def execute(self, change_set_id: str) -> None:
        with naming_admin_errors("make the change"):
            self._client.execute_change_set(ChangeSetName=change_set_id)

    # -- exports ---------------------------------------------------------------------------------

    def exports(self) -> list[Document]:
        with naming_admin_errors("list the exports of stacks"):
            pages = self._client.get_paginator("list_exports").paginate()
            return [export for page in pages for export in page["Exports"]]

    def importers(self, export: str) -> list[str]:
        """Return the names of the stacks that import an export."""
        try:
            with naming_admin_errors(f"list the importers of {export}"):
                pages = self._client.get_paginator("list_imports").paginate(ExportName=export)
                return [name for page in pages for name in page["Imports"]]
        except AwsRefusedError as exc:
            if "is not imported" in exc.message:
                return []
            raise
