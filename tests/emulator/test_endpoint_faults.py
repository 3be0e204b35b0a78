"""Faults of a real endpoint, as its clients meet them."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

import botocore.exceptions
import pytest
from emulator_endpoint import Endpoint, until


def set_faults(endpoint: Endpoint, text: str) -> None:
    body = json.dumps({"faults": text}).encode()
    request = urllib.request.Request(f"{endpoint.url}/_batchyard/faults", body)
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == {"faults": text}


@pytest.fixture(autouse=True)
def remove_faults(endpoint: Endpoint) -> Any:
    yield
    set_faults(endpoint, "")


def list_ids(endpoint: Endpoint) -> list[str]:
    filters = [{"name": "AFTER_CREATED_AT", "values": ["0"]}]
    jobs = endpoint.batch.list_jobs(jobQueue="queue", filters=filters)["jobSummaryList"]
    return [job["jobId"] for job in jobs]


def test_jobs_appear_late(endpoint: Endpoint) -> None:
    set_faults(endpoint, "describe-lag=600,list-lag=600")
    job_id = endpoint.run("true", arrayProperties={"size": 2})
    children = {"arrayJobId": job_id, "jobStatus": "SUCCEEDED"}
    assert endpoint.batch.describe_jobs(jobs=[job_id, f"{job_id}:0"])["jobs"] == []
    assert job_id not in list_ids(endpoint)
    assert endpoint.batch.list_jobs(**children)["jobSummaryList"] == []
    set_faults(endpoint, "describe-lag=0.3,list-lag=0.3")
    until(lambda: list_ids(endpoint), lambda ids: job_id in ids)
    until(lambda: endpoint.batch.describe_jobs(jobs=[job_id])["jobs"], bool)
    endpoint.wait(job_id)
    assert len(endpoint.batch.list_jobs(**children)["jobSummaryList"]) == 2


def test_a_log_stream_appears_late(endpoint: Endpoint) -> None:
    set_faults(endpoint, "log-lag=600")
    job_id = endpoint.run("echo", "hello")
    stream = endpoint.wait(job_id)["container"]["logStreamName"]
    with pytest.raises(endpoint.logs.exceptions.ResourceNotFoundException):
        endpoint.output(job_id)
    group = {"logGroupName": "/aws/batch/job"}
    names = {"logStreamNamePrefix": stream}
    assert endpoint.logs.describe_log_streams(**group, **names)["logStreams"] == []
    assert endpoint.logs.filter_log_events(**group, **names)["events"] == []
    set_faults(endpoint, "log-lag=0.01")
    assert endpoint.output(job_id) == ["hello"]


@pytest.mark.parametrize(
    "command", [("echo", "hello"), ("sh", "-c", "echo hello; sleep 0.5; echo hello")]
)
def test_log_events_appear_late(endpoint: Endpoint, command: tuple[str, ...]) -> None:
    set_faults(endpoint, "event-lag=600")
    job_id = endpoint.run(*command)
    stream = endpoint.wait(job_id)["container"]["logStreamName"]
    names = {"logGroupName": "/aws/batch/job", "logStreamNamePrefix": stream}
    assert endpoint.output(job_id) == [], "the stream exists, and is empty"
    assert endpoint.logs.filter_log_events(**names)["events"] == []
    assert len(endpoint.logs.describe_log_streams(**names)["logStreams"]) == 1
    set_faults(endpoint, "event-lag=0.01")
    lines = until(lambda: endpoint.output(job_id), bool)
    assert set(lines) == {"hello"}
    set_faults(endpoint, "")


def test_answers_are_cut(endpoint: Endpoint) -> None:
    s3 = endpoint.client("s3")
    s3.create_bucket(Bucket="cut")
    s3.put_object(Bucket="cut", Key="key", Body=b"0123456789" * 1000)
    set_faults(endpoint, "cut@s3=1x,cut@DescribeJobs=1x")
    body = s3.get_object(Bucket="cut", Key="key")["Body"]
    with pytest.raises(botocore.exceptions.ResponseStreamingError):
        body.read()
    # botocore does not compare the length, and takes a half of a document for an empty one.
    assert "jobs" not in endpoint.batch.describe_jobs(jobs=["x"])
    assert "jobs" in endpoint.batch.describe_jobs(jobs=["x"])
    assert s3.get_object(Bucket="cut", Key="key")["Body"].read() == b"0123456789" * 1000


def test_a_burst_of_throttling_outlasts_a_patient_client(endpoint: Endpoint) -> None:
    set_faults(endpoint, "throttle@DescribeJobs=1x,burst=600")
    for _ in range(3):
        with pytest.raises(endpoint.batch.exceptions.ClientError) as error:
            endpoint.batch.describe_jobs(jobs=["x"])
        assert error.value.response["Error"]["Code"] == "TooManyRequestsException"
    assert endpoint.batch.describe_job_queues()["jobQueues"]


SHOW_CREDENTIALS = """
import boto3, os, time
assert "AWS_ACCESS_KEY_ID" not in os.environ
batch = boto3.client("batch", "us-east-1")
batch.describe_job_queues()
credentials = boto3.Session().get_credentials().get_frozen_credentials()
keys = dict(zip(("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), credentials))
old_batch = boto3.client("batch", "us-east-1", **keys)
print("begins")
while True:
    try:
        old_batch.describe_job_queues()
    except old_batch.exceptions.ClientError as exc:
        print(exc.response["Error"]["Code"])
        break
    time.sleep(0.1)
batch.describe_job_queues()
print("renewed")
"""


def test_credentials_of_a_job_expire_and_are_renewed(endpoint: Endpoint) -> None:
    set_faults(endpoint, "credentials=2")
    job_id = endpoint.run(sys.executable, "-c", SHOW_CREDENTIALS)
    job = endpoint.wait(job_id)
    assert endpoint.output(job_id) == ["begins", "ExpiredTokenException", "renewed"]
    assert job["status"] == "SUCCEEDED"


def test_expired_credentials_of_a_client(endpoint: Endpoint) -> None:
    set_faults(endpoint, "expire=1")
    for service, call in (("batch", "describe_jobs"), ("s3", "list_buckets"), ("sts", "")):
        client = endpoint.client(service)
        arguments = {"jobs": ["x"]} if service == "batch" else {}
        with pytest.raises(client.exceptions.ClientError) as error:
            getattr(client, call or "get_caller_identity")(**arguments)
        assert error.value.response["Error"]["Code"].startswith("ExpiredToken")


def test_lines_of_jobs_in_non_blocking_mode_are_dropped(endpoint: Endpoint) -> None:
    outputs = {}
    for mode in ("blocking", "non-blocking", None):
        log_options = {} if mode is None else {"mode": mode}
        definition = endpoint.definition(
            f"lines-{mode}",
            *("seq", "1000"),
            container={"logConfiguration": {"logDriver": "awslogs", "options": log_options}},
        )
        job_id = endpoint.submit(definition)
        endpoint.wait(job_id)
        set_faults(endpoint, "drop-logs=0.3")
        outputs[mode] = endpoint.output(job_id)
        assert endpoint.output(job_id) == outputs[mode]
        set_faults(endpoint, "")
        assert len(endpoint.output(job_id)) == 1000
    assert len(outputs["blocking"]) == 1000
    assert 600 < len(outputs["non-blocking"]) < 800
    assert 600 < len(outputs[None]) < 800


def test_jobs_with_a_region(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "1", "--job-region", "--region", "eu-west-1")
    endpoint.queue("queue", endpoint.environment("cpu"))
    job_id = endpoint.run("sh", "-c", "echo $AWS_REGION $AWS_DEFAULT_REGION")
    endpoint.wait(job_id)
    assert endpoint.output(job_id) == ["eu-west-1 eu-west-1"]


@pytest.mark.slow
def test_the_option_takes_the_same_text(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "1", "--faults", "error@ListJobs=1,seed=1")
    done = endpoint.aws("batch", "list-jobs", "--job-queue", "queue", check=False)
    assert done.returncode != 0 and "ServerException" in done.stderr
    assert endpoint.aws("batch", "describe-job-queues") == {"jobQueues": []}
