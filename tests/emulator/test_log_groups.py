"""The log groups of jobs as whole groups of CloudWatch Logs: retention, tags, queries, deletion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from emulator_answers import held_to_account
from emulator_endpoint import Endpoint

GROUP = "/aws/batch/job"
NOT_FOUND = "ResourceNotFoundException"


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


def error_of(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


def log_to(endpoint: Endpoint, group: str, **options: str) -> str:
    """Submit a job that writes `over here` to a log group."""
    configuration = {"logDriver": "awslogs", "options": {"awslogs-group": group, **options}}
    definition = endpoint.definition(
        "logs-elsewhere", "echo", "over here", container={"logConfiguration": configuration}
    )
    return endpoint.submit(definition)


def find_group(endpoint: Endpoint, name: str = GROUP) -> Any:
    groups = endpoint.logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return next((group for group in groups if group["logGroupName"] == name), None)


# -- a group must exist ---------------------------------------------------------------------------


def test_a_job_whose_log_group_does_not_exist_fails(endpoint: Endpoint) -> None:
    job = endpoint.wait(log_to(endpoint, "/nowhere"))
    assert (job["status"], job["statusReason"]) == ("FAILED", "Task failed to start")
    assert job["container"]["reason"].startswith("CannotStartContainerError: ")
    assert "The specified log group does not exist." in job["container"]["reason"]
    assert "logStreamName" not in job["container"]
    assert find_group(endpoint, "/nowhere") is None
    assert error_of(lambda: endpoint.logs.describe_log_streams(logGroupName="/nowhere")) == (
        NOT_FOUND
    )


def test_a_group_that_the_user_has_created(endpoint: Endpoint) -> None:
    endpoint.logs.create_log_group(logGroupName="/users")
    job_id = log_to(endpoint, "/users")
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert endpoint.output(job_id, "/users") == ["over here"]
    endpoint.logs.delete_log_group(logGroupName="/users")
    assert find_group(endpoint, "/users") is None
    assert error_of(lambda: endpoint.output(job_id, "/users")) == NOT_FOUND
    assert endpoint.wait(log_to(endpoint, "/users"))["status"] == "FAILED"


def test_a_group_that_the_job_creates(endpoint: Endpoint) -> None:
    job_id = log_to(endpoint, "/made-by-job", **{"awslogs-create-group": "true"})
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert endpoint.output(job_id, "/made-by-job") == ["over here"]
    code = error_of(lambda: endpoint.logs.create_log_group(logGroupName="/made-by-job"))
    assert code == "ResourceAlreadyExistsException"


def test_a_group_of_a_stack(endpoint: Endpoint) -> None:
    """The end of the stack is the end of its group, and of the streams of jobs in it."""
    stacks = endpoint.client("cloudformation")
    template = (
        '{"Resources": {"Logs": {"Type": "AWS::Logs::LogGroup", '
        '"Properties": {"LogGroupName": "/of-stack"}}}}'
    )
    stacks.create_stack(StackName="logs", TemplateBody=template)
    job_id = log_to(endpoint, "/of-stack")
    endpoint.wait(job_id)
    assert endpoint.output(job_id, "/of-stack") == ["over here"]
    stacks.delete_stack(StackName="logs")
    assert find_group(endpoint, "/of-stack") is None
    assert error_of(lambda: endpoint.output(job_id, "/of-stack")) == NOT_FOUND
    assert endpoint.wait(log_to(endpoint, "/of-stack"))["status"] == "FAILED"
    endpoint.logs.create_log_group(logGroupName="/of-stack")
    new = log_to(endpoint, "/of-stack")
    assert endpoint.wait(new)["status"] == "SUCCEEDED"
    streams = endpoint.logs.describe_log_streams(logGroupName="/of-stack")["logStreams"]
    assert len(streams) == 1


def test_a_waiting_job_keeps_its_group_over_a_restart(start: Callable[..., Endpoint]) -> None:
    """moto's groups are lost then, but not those that jobs have logged to."""
    first = start()
    first.queue("queue", first.environment("cpu"))
    first.logs.create_log_group(logGroupName="/users")
    job_id = log_to(first, "/users")
    first.wait(job_id)
    first.stop()
    second = start()
    assert second.output(job_id, "/users") == ["over here"]
    assert second.wait(log_to(second, "/users"))["status"] == "SUCCEEDED"


# -- what a group has -----------------------------------------------------------------------------


def test_retention_and_tags(endpoint: Endpoint) -> None:
    logs = endpoint.logs
    logs.put_retention_policy(logGroupName=GROUP, retentionInDays=30)
    group = find_group(endpoint)
    assert group["retentionInDays"] == 30
    logs.delete_retention_policy(logGroupName=GROUP)
    assert "retentionInDays" not in find_group(endpoint)
    arn = group["arn"].removesuffix(":*")
    logs.tag_resource(resourceArn=arn, tags={"team": "a"})
    assert logs.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "a"}
    assert logs.list_tags_log_group(logGroupName=GROUP)["tags"] == {"team": "a"}


def test_streams_of_users_beside_those_of_jobs(endpoint: Endpoint) -> None:
    logs = endpoint.logs
    job_id = endpoint.run("echo", "of a job")
    endpoint.wait(job_id)
    logs.create_log_stream(logGroupName=GROUP, logStreamName="mine")
    event = {"timestamp": int(time.time() * 1000), "message": "of a user"}
    logs.put_log_events(logGroupName=GROUP, logStreamName="mine", logEvents=[event])
    pages = logs.get_paginator("describe_log_streams").paginate(
        logGroupName=GROUP, PaginationConfig={"PageSize": 1}
    )
    streams = [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
    own = endpoint.job(job_id)["container"]["logStreamName"]
    assert {"mine", own} <= set(streams)
    assert streams == sorted(streams)
    read = logs.get_log_events(logGroupName=GROUP, logStreamName="mine")["events"]
    assert [entry["message"] for entry in read] == ["of a user"]
    found = logs.filter_log_events(logGroupName=GROUP, logStreamNames=["mine"])["events"]
    assert [entry["message"] for entry in found] == ["of a user"]
    assert endpoint.output(job_id) == ["of a job"]
    logs.delete_log_stream(logGroupName=GROUP, logStreamName="mine")
    described = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix="mine")
    assert described["logStreams"] == []


def test_a_deleted_stream(endpoint: Endpoint) -> None:
    kept, deleted = (endpoint.run("echo", "a line of its own") for _ in range(2))
    for job_id in (kept, deleted):
        endpoint.wait(job_id)
    stream = endpoint.job(deleted)["container"]["logStreamName"]
    endpoint.logs.delete_log_stream(logGroupName=GROUP, logStreamName=stream)
    assert error_of(lambda: endpoint.output(deleted)) == NOT_FOUND
    again = error_of(
        lambda: endpoint.logs.delete_log_stream(logGroupName=GROUP, logStreamName=stream)
    )
    assert again == NOT_FOUND
    assert endpoint.output(kept) == ["a line of its own"]
    found = endpoint.logs.filter_log_events(logGroupName=GROUP, filterPattern='"of its own"')
    assert len(found["events"]) == 1


def test_a_query(endpoint: Endpoint) -> None:
    job_id = endpoint.run("sh", "-c", "echo needle 1; echo hay; echo needle 2")
    endpoint.wait(job_id)
    now_s = int(time.time())
    query_id = endpoint.logs.start_query(
        logGroupName=GROUP,
        startTime=now_s - 600,
        endTime=now_s + 1,
        queryString="fields @message, @logStream | filter @message like /needle/ "
        "| sort @message asc",
    )["queryId"]
    answer = endpoint.logs.get_query_results(queryId=query_id)
    assert answer["status"] == "Complete"
    rows = [{cell["field"]: cell["value"] for cell in row} for row in answer["results"]]
    assert [row["@message"] for row in rows] == ["needle 1", "needle 2"]
    assert {row["@logStream"] for row in rows} == {
        endpoint.job(job_id)["container"]["logStreamName"]
    }
    described = endpoint.logs.describe_queries(logGroupName=GROUP)["queries"]
    assert query_id in [query["queryId"] for query in described]
    malformed = error_of(
        lambda: endpoint.logs.start_query(
            logGroupName=GROUP, startTime=0, endTime=now_s, queryString="parse @message '*'"
        )
    )
    assert malformed == "MalformedQueryException"


def test_deleting_the_group_of_all_jobs(start: Callable[..., Endpoint]) -> None:
    """All streams go. AWS Batch creates the group again for the next job."""
    endpoint = start()
    endpoint.queue("queue", endpoint.environment("cpu"))
    old = endpoint.run("echo", "old")
    endpoint.wait(old)
    endpoint.logs.delete_log_group(logGroupName=GROUP)
    assert find_group(endpoint) is None
    assert error_of(lambda: endpoint.logs.describe_log_streams(logGroupName=GROUP)) == NOT_FOUND
    new = endpoint.run("echo", "new")
    endpoint.wait(new)
    assert endpoint.output(new) == ["new"]
    assert error_of(lambda: endpoint.output(old)) == NOT_FOUND
    assert find_group(endpoint) is not None
    endpoint.stop()
    again = start()
    assert again.output(new) == ["new"]
    assert error_of(lambda: again.output(old)) == NOT_FOUND
