"""Output of jobs in CloudWatch Logs, while they run and afterwards, through boto3 and the aws
command."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from emulator_endpoint import AWS_WORDS, Endpoint, until
from gates import Gate, no_traceback

GROUP = "/aws/batch/job"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    it = Gate(tmp_path / "gate")
    yield it
    it.close()


def stream_of(endpoint: Endpoint, job_id: str) -> str:
    return str(endpoint.job(job_id)["container"]["logStreamName"])


def messages(answer: Any) -> list[str]:
    return [event["message"] for event in answer["events"]]


def error_of(call: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return str(caught.value.response["Error"]["Code"])


# -- while it runs --------------------------------------------------------------------------------


def test_what_a_job_has_said_can_be_read_while_it_runs(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.1: the stream exists from RUNNING on, in /aws/batch/job; stderr is in it too."""
    script = f"echo one; echo two >&2; {gate.shell()[2]} echo three; printf no-newline"
    job_id = endpoint.run("sh", "-c", script)
    endpoint.wait(job_id, "RUNNING")
    assert until(lambda: endpoint.output(job_id), lambda lines: len(lines) == 2) == ["one", "two"]
    stream = stream_of(endpoint, job_id)
    answer = endpoint.logs.get_log_events(
        logGroupName=GROUP, logStreamName=stream, startFromHead=True
    )
    token = answer["nextForwardToken"]
    gate.open()
    endpoint.wait(job_id)
    answer = endpoint.logs.get_log_events(logGroupName=GROUP, logStreamName=stream, nextToken=token)
    assert messages(answer) == ["three", "no-newline"]
    second_answer = endpoint.logs.get_log_events(
        logGroupName=GROUP, logStreamName=stream, nextToken=answer["nextForwardToken"]
    )
    assert (
        second_answer["events"] == []
        and second_answer["nextForwardToken"] == answer["nextForwardToken"]
    )


def test_a_running_job_through_the_aws_command(endpoint: Endpoint, gate: Gate) -> None:
    """get-log-events, filter-log-events, describe-log-streams, describe-log-groups."""
    definition = endpoint.definition(
        "read-by-cli", "sh", "-c", f"echo hello from inside; {gate.shell()[2]}"
    )
    job_id = endpoint.submit(definition)
    endpoint.wait(job_id, "RUNNING")
    until(lambda: endpoint.output(job_id), bool)
    stream = stream_of(endpoint, job_id)

    def logs(*words: str) -> Any:
        return endpoint.aws("logs", *words)

    assert messages(
        logs("get-log-events", "--log-group-name", GROUP, "--log-stream-name", stream)
    ) == ["hello from inside"]
    answer = logs(
        "filter-log-events", "--log-group-name", GROUP, "--filter-pattern", '"from inside"'
    )["events"]
    assert [(event["logStreamName"], event["message"]) for event in answer] == [
        (stream, "hello from inside")
    ]
    (stream_document,) = logs(
        "describe-log-streams",
        "--log-group-name",
        GROUP,
        "--log-stream-name-prefix",
        "read-by-cli/default/",
    )["logStreams"]
    assert stream_document["logStreamName"] == stream and stream_document["arn"].endswith(
        f"log-group:{GROUP}:log-stream:{stream}"
    )
    assert (
        stream_document["firstEventTimestamp"]
        <= stream_document["lastEventTimestamp"]
        <= time.time() * 1000
    )
    groups = logs("describe-log-groups", "--log-group-name-prefix", "/aws/batch")["logGroups"]
    assert [group["logGroupName"] for group in groups] == [GROUP]
    assert endpoint.job(job_id)["status"] == "RUNNING"
    gate.open()
    endpoint.wait(job_id)


def test_a_follower_of_the_log_sees_every_line_once(endpoint: Endpoint) -> None:
    """By nextForwardToken, as `aws logs tail --follow` and other people's tools do."""
    job_id = endpoint.run("sh", "-c", "for i in $(seq 1 40); do echo line $i; sleep 0.03; done")
    stream = endpoint.wait(job_id, "RUNNING", "SUCCEEDED")["container"]["logStreamName"]
    lines: list[str] = []
    token: dict[str, str] = {}
    is_over = False
    while not is_over:
        is_over = endpoint.job(job_id)["status"] == "SUCCEEDED"
        answer = endpoint.logs.get_log_events(
            logGroupName=GROUP, logStreamName=stream, startFromHead=True, **token
        )
        lines += messages(answer)
        token = {"nextToken": answer["nextForwardToken"]}
    assert lines == [f"line {number}" for number in range(1, 41)]


# -- afterwards -----------------------------------------------------------------------------------


def test_each_attempt_has_a_stream_of_its_own(endpoint: Endpoint) -> None:
    """facts, 1.1 and 1.2: attempts[].container.logStreamName."""
    definition = endpoint.definition(
        "twice", "sh", "-c", "echo attempt $AWS_BATCH_JOB_ATTEMPT; exit 1"
    )
    job = endpoint.wait(endpoint.submit(definition, retryStrategy={"attempts": 2}))
    streams = [attempt["container"]["logStreamName"] for attempt in job["attempts"]]
    assert len(set(streams)) == 2 and job["container"]["logStreamName"] == streams[1]
    for number, stream in enumerate(streams, 1):
        assert messages(endpoint.logs.get_log_events(logGroupName=GROUP, logStreamName=stream)) == [
            f"attempt {number}"
        ]


def test_the_logs_of_an_array(endpoint: Endpoint) -> None:
    definition = endpoint.definition(
        "many-logs", "sh", "-c", "echo child $AWS_BATCH_JOB_ARRAY_INDEX"
    )
    job_id = endpoint.submit(definition, arrayProperties={"size": 12})
    endpoint.wait(job_id)
    pages = endpoint.logs.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP, logStreamNamePrefix="many-logs/", PaginationConfig={"PageSize": 5}
    )
    page_messages = [[event["message"] for event in page["events"]] for page in pages]
    assert [len(page) for page in page_messages] == [5, 5, 2]
    assert {message for page in page_messages for message in page} == {
        f"child {index}" for index in range(12)
    }
    pages = endpoint.logs.get_paginator("describe_log_streams").paginate(
        logGroupName=GROUP, logStreamNamePrefix="many-logs/", PaginationConfig={"PageSize": 5}
    )
    names = [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
    assert names == sorted(stream_of(endpoint, f"{job_id}:{index}") for index in range(12))


def test_times_and_bounds(endpoint: Endpoint, gate: Gate) -> None:
    """Of startTime and endTime the first is in, the second is not; the newest first without
    startFromHead."""
    job_id = endpoint.run("sh", "-c", f"for i in 1 2 3; do echo $i; {gate.shell()[2]} done")
    endpoint.wait(job_id, "RUNNING")
    for count in (1, 2, 3):
        # A line has the time at which it was read, so the next one is written when this one has
        # been.
        until(lambda: endpoint.output(job_id), lambda lines, count=count: len(lines) == count)
        time.sleep(0.01)
        gate.open()
    job = endpoint.wait(job_id)
    stream = stream_of(endpoint, job_id)

    def events(**members: Any) -> list[Any]:
        return list(
            endpoint.logs.get_log_events(logGroupName=GROUP, logStreamName=stream, **members)[
                "events"
            ]
        )

    times = [event["timestamp"] for event in events()]
    assert job["startedAt"] <= times[0] < times[1] < times[2] <= job["stoppedAt"]
    assert [event["message"] for event in events(startTime=times[1])] == ["2", "3"]
    assert [event["message"] for event in events(endTime=times[1])] == ["1"]
    assert [event["message"] for event in events(limit=1)] == ["3"]
    assert [event["message"] for event in events(limit=1, startFromHead=True)] == ["1"]


def test_a_job_that_says_nothing(endpoint: Endpoint) -> None:
    definition = endpoint.definition("silent", "true")
    job_id = endpoint.submit(definition)
    endpoint.wait(job_id)
    assert endpoint.output(job_id) == []
    (stream,) = endpoint.logs.describe_log_streams(
        logGroupName=GROUP, logStreamNamePrefix="silent/"
    )["logStreams"]
    assert "firstEventTimestamp" not in stream


def test_output_that_is_no_text(endpoint: Endpoint) -> None:
    job_id = endpoint.run("sh", "-c", r"printf 'a\377b\n\n\000c\r\n'")
    endpoint.wait(job_id)
    assert endpoint.output(job_id) == ["a\ufffdb", "\0c\r"]


# -- where a job logs -----------------------------------------------------------------------------


def test_a_group_and_a_prefix_of_the_definitions_own(endpoint: Endpoint) -> None:
    """logConfiguration: awslogs-group and awslogs-stream-prefix, which stands in for the
    definition's name."""
    endpoint.logs.create_log_group(logGroupName="/my/jobs")
    options = {"awslogs-group": "/my/jobs", "awslogs-stream-prefix": "mine"}
    container = {"logConfiguration": {"logDriver": "awslogs", "options": options}}
    job_id = endpoint.submit(
        endpoint.definition("elsewhere", "echo", "over here", container=container)
    )
    job = endpoint.wait(job_id)
    stream = job["container"]["logStreamName"]
    assert stream == f"mine/default/{job['container']['taskArn'].rpartition('/')[2]}"
    assert endpoint.output(job_id, "/my/jobs") == ["over here"]
    assert error_of(
        lambda: endpoint.logs.get_log_events(logGroupName=GROUP, logStreamName=stream)
    ) == ("ResourceNotFoundException")
    answer = endpoint.logs.filter_log_events(logGroupName="/my/jobs", logStreamNames=[stream])
    assert messages(answer) == ["over here"]
    groups = endpoint.logs.describe_log_groups(logGroupNamePrefix="/my/")["logGroups"]
    assert [group["logGroupName"] for group in groups] == ["/my/jobs"]
    # By its ARN too, as newer clients say it.
    answer = endpoint.logs.filter_log_events(logGroupIdentifier=groups[0]["logGroupArn"])
    assert messages(answer) == ["over here"]


def test_another_driver_leaves_nothing_in_cloudwatch(endpoint: Endpoint) -> None:
    container = {"logConfiguration": {"logDriver": "json-file"}}
    endpoint.wait(
        endpoint.submit(endpoint.definition("driver", "echo", "unseen", container=container))
    )
    streams = endpoint.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix="driver/")[
        "logStreams"
    ]
    assert streams == []


def test_groups_of_others_are_there_beside_those_of_jobs(endpoint: Endpoint) -> None:
    """What is not about jobs goes to the rest of the endpoint, and keeps working."""
    endpoint.logs.create_log_group(logGroupName="/app/web")
    endpoint.logs.create_log_stream(logGroupName="/app/web", logStreamName="one")
    event = {"timestamp": int(time.time() * 1000), "message": "from the app"}
    endpoint.logs.put_log_events(logGroupName="/app/web", logStreamName="one", logEvents=[event])
    assert messages(endpoint.logs.get_log_events(logGroupName="/app/web", logStreamName="one")) == [
        "from the app"
    ]

    def groups(**members: Any) -> list[str]:
        return [
            group["logGroupName"]
            for group in endpoint.logs.describe_log_groups(**members)["logGroups"]
        ]

    assert {"/app/web", GROUP} <= set(groups()) and groups() == sorted(groups())
    assert groups(logGroupNamePrefix="/app") == ["/app/web"]
    assert groups(logGroupNamePattern="batch/j") == [GROUP]
    assert groups(logGroupNamePattern="web") == ["/app/web"]


def test_unsigned_requests_reach_the_logs(endpoint: Endpoint) -> None:
    """--no-sign-request: there is no signature to tell the service by."""
    words = [
        *AWS_WORDS,
        "logs",
        "describe-log-groups",
        "--no-sign-request",
        "--query",
        "logGroups[].logGroupName",
    ]
    done = subprocess.run(words, env=endpoint.environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and GROUP in done.stdout, done.stderr


# -- mistakes -------------------------------------------------------------------------------------


def test_what_is_not_there(endpoint: Endpoint) -> None:
    job_id = endpoint.run("true")
    endpoint.wait(job_id)
    stream = stream_of(endpoint, job_id)
    for group, name in (
        (GROUP, "no/such/stream"),
        (GROUP, f"other/default/{stream[-32:]}"),
        ("/no/group", stream),
    ):
        call = {"logGroupName": group, "logStreamName": name}
        assert (
            error_of(lambda call=call: endpoint.logs.get_log_events(**call))
            == "ResourceNotFoundException"
        )


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("get_log_events", {"logStreamName": "x", "limit": 10_001}),
        ("filter_log_events", {"nextToken": "nonsense"}),
        ("filter_log_events", {"logStreamNames": ["a"], "logStreamNamePrefix": "a"}),
        ("filter_log_events", {"filterPattern": "{ $.a ="}),
        ("describe_log_streams", {"nextToken": "nonsense"}),
        ("describe_log_streams", {"orderBy": "LastEventTime", "logStreamNamePrefix": "x"}),
        ("describe_log_streams", {"orderBy": "Size"}),
        ("describe_log_streams", {"limit": 51}),
    ],
)
def test_bad_requests(endpoint: Endpoint, operation: str, members: dict[str, Any]) -> None:
    act = getattr(endpoint.logs, operation)
    assert error_of(lambda: act(logGroupName=GROUP, **members)) == "InvalidParameterException"


@pytest.mark.parametrize("value", ["5", -1, None, 1.5, True])
def test_members_of_a_wrong_type(endpoint: Endpoint, value: object) -> None:
    """No traceback, whatever comes: boto3 would not send these."""
    import http.client
    import json

    for operation in ("GetLogEvents", "FilterLogEvents", "DescribeLogStreams", "DescribeLogGroups"):
        for member in (
            "limit",
            "nextToken",
            "logStreamNames",
            "logStreamName",
            "startTime",
            "logGroupNamePrefix",
        ):
            connection = http.client.HTTPConnection(
                endpoint.url.removeprefix("http://"), timeout=300
            )
            headers = {
                "X-Amz-Target": f"Logs_20140328.{operation}",
                "Content-Type": "application/x-amz-json-1.1",
            }
            connection.request(
                "POST", "/", json.dumps({"logGroupName": GROUP, member: value}), headers
            )
            answer = connection.getresponse()
            answer.read()
            connection.close()
            assert answer.status in (200, 400), (operation, member, value)


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
