"""EventBridge: rules on the endpoint receive the state changes of jobs."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from emulator_endpoint import Endpoint, until

ACCOUNT = "123456789012"
PATTERN = {"source": ["aws.batch"], "detail-type": ["Batch Job State Change"]}


class Inbox:
    """A queue of SQS, and what has arrived in it."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self._sqs = endpoint.client("sqs")
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        self.arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"
        self.bodies: list[Any] = []

    def receive(self) -> list[Any]:
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            self.bodies.append(json.loads(message["Body"]))
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return self.bodies


def add_rule(endpoint: Endpoint, name: str, detail: dict[str, Any], *targets: Any) -> None:
    events = endpoint.client("events")
    events.put_rule(Name=name, EventPattern=json.dumps({**PATTERN, "detail": detail}))
    entries = [{"Id": str(number), **target} for number, target in enumerate(targets)]
    events.put_targets(Rule=name, Targets=entries)


@pytest.fixture
def inbox(endpoint: Endpoint, request: pytest.FixtureRequest) -> Inbox:
    return Inbox(endpoint, request.node.name.partition("[")[0][:80])


def test_every_change_of_a_job_is_an_event(endpoint: Endpoint, inbox: Inbox) -> None:
    add_rule(endpoint, "changes", {"jobName": ["watched"]}, {"Arn": inbox.arn})
    job_id = endpoint.run("echo", "x", name="watched", tags={"team": "a"})
    endpoint.run("true", name="other")
    until(inbox.receive, lambda bodies: len(bodies) >= 4)
    events = inbox.bodies
    states = [event["detail"]["status"] for event in events]
    assert states == ["RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED"]
    first, last = events[0], events[-1]
    assert {key: first[key] for key in ("source", "detail-type", "account", "region")} == {
        "source": "aws.batch",
        "detail-type": "Batch Job State Change",
        "account": ACCOUNT,
        "region": "us-east-1",
    }
    assert first["resources"] == [f"arn:aws:batch:us-east-1:{ACCOUNT}:job/{job_id}"]
    assert "stoppedAt" not in first["detail"] and "exitCode" not in first["detail"]["container"]
    assert last["detail"]["container"]["exitCode"] == 0
    assert last["detail"]["tags"] == {"team": "a"}
    assert len({event["id"] for event in events}) == 4


def test_children_and_their_array_have_events(endpoint: Endpoint, inbox: Inbox) -> None:
    add_rule(endpoint, "children", {"jobName": ["wide"]}, {"Arn": inbox.arn})
    job_id = endpoint.run("true", name="wide", arrayProperties={"size": 3})

    def receive_states() -> dict[str, list[str]]:
        states: dict[str, list[str]] = {}
        for event in inbox.receive():
            states.setdefault(event["detail"]["jobId"], []).append(event["detail"]["status"])
        return states

    states = until(receive_states, lambda states: sum(map(len, states.values())) >= 14)
    assert states.pop(job_id) == ["PENDING", "SUCCEEDED"]
    passed = ["RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED"]
    assert states == {f"{job_id}:{index}": passed for index in range(3)}


def test_sns_lambda_and_transformed_input(endpoint: Endpoint, inbox: Inbox) -> None:
    sns = endpoint.client("sns")
    topic = sns.create_topic(Name="jobs")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=inbox.arn)
    short = {
        "InputPathsMap": {"name": "$.detail.jobName", "status": "$.detail.status"},
        "InputTemplate": '{"text": "<name> is <status>"}',
    }
    function = make_function(endpoint)
    add_rule(
        *(endpoint, "failures", {"jobName": ["bad"], "status": ["FAILED"]}),
        {"Arn": topic},
        {"Arn": inbox.arn, "InputTransformer": short},
        {"Arn": function},
        {"Arn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:no-such-queue"},
    )
    job_id = endpoint.run("false", name="bad")
    until(inbox.receive, lambda bodies: len(bodies) >= 2)
    by_topic = [json.loads(body["Message"]) for body in inbox.bodies if "Message" in body]
    assert [event["detail"]["jobId"] for event in by_topic] == [job_id]
    assert {"text": "bad is FAILED"} in inbox.bodies
    # moto runs no code of functions. A target that cannot be reached has a line on stderr.
    messages = until(endpoint.said.read_text, lambda text: "no-such-queue" in text)
    assert f"no event to arn:aws:sqs:us-east-1:{ACCOUNT}:no-such-queue: " in messages
    assert f"no event to {function}" not in messages


def make_function(endpoint: Endpoint) -> str:
    role = endpoint.client("iam").create_role(RoleName="notify", AssumeRolePolicyDocument="{}")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("code.py", "def handle(event, context): pass")
    answer = endpoint.client("lambda").create_function(
        FunctionName="notify",
        Runtime="python3.12",
        Role=role["Role"]["Arn"],
        Handler="code.handle",
        Code={"ZipFile": archive.getvalue()},
    )
    return str(answer["FunctionArn"])
