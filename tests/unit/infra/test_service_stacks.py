"""The deletion of a service's stack, on a CloudFormation that takes its time."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError
from scripted_cloudformation import Listener, Scripted

from batchyard.services.operations import Services
from batchyard.services.service import stack_name, stack_title


class Client:
    """CloudFormation as boto3 shows it."""

    def __init__(self, aws: Scripted) -> None:
        self._aws = aws

    def describe_stacks(self, **request: str) -> dict[str, Any]:
        stack = self._aws.stack(request["StackName"])
        if stack is None:
            error = {"Code": "ValidationError", "Message": "Stack does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")  # type: ignore[typeddict-item]
        return {"Stacks": [stack]}

    def get_paginator(self, operation: str) -> Client:
        return self

    def paginate(self, **request: str) -> list[dict[str, Any]]:
        return [{"StackEvents": self._aws.events(request["StackName"])[::-1]}]


class Session:
    region = "eu-central-1"

    def __init__(self, client: Client) -> None:
        self._client = client

    def client(self, service: str) -> Client:
        return self._client


def test_a_deletion_that_is_in_progress_is_waited_for_and_not_repeated() -> None:
    aws = Scripted(stack_name("dev", "web"), description=stack_title("dev", "web"))
    aws.happen(("", "DELETE_IN_PROGRESS", "User Initiated"))
    aws.steps = [("", "DELETE_COMPLETE", "")]
    session: Any = Session(Client(aws))
    front = Listener()
    services = Services(session, "dev", front, aws.sleep)
    assert services.find_to_delete("web") is None
    assert "delete" not in " ".join(aws.calls) and aws.calls == ["sleep"]
    assert "DELETE_IN_PROGRESS" in front.said[0]
