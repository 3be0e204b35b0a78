"""ListJobs and DescribeJobs: the odd defaults, the filters, the pages, the limits (facts, 1.2
and 6)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from emulator_answers import held_to_account, refused
from emulator_endpoint import Endpoint, until


class Jobs(NamedTuple):
    """One queue with a bit of everything: what has ended, what runs, what waits. In the order of
    submission."""

    succeeded: str
    failed: str
    array: str
    running: str
    waiting: str
    #: milliseconds, between the failed one and the array
    between_ms: int


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


@pytest.fixture(scope="module")
def jobs(endpoint: Endpoint) -> Jobs:
    endpoint.queue("mixed", endpoint.environment("narrow", vcpus=4))
    endpoint.definition("other", "true")
    succeeded = endpoint.run("true", queue="mixed", name="Alpha-1")
    endpoint.wait(succeeded)
    failed = endpoint.submit(endpoint.definition("other-kind", "false"), "mixed", name="alpha-2")
    endpoint.wait(failed)
    time.sleep(0.01)
    between_ms = int(time.time() * 1000)
    time.sleep(0.01)
    array = endpoint.run("sleep", "600", queue="mixed", name="Array", arrayProperties={"size": 3})
    running = endpoint.run("sleep", "600", queue="mixed", name="beta")
    waiting = endpoint.run("sleep", "600", queue="mixed", name="gamma")
    for job_id in (running, *(f"{array}:{index}" for index in range(3))):
        endpoint.wait(job_id, "RUNNING")
    return Jobs(succeeded, failed, array, running, waiting, between_ms)


def listed(endpoint: Endpoint, queue: str = "mixed", **request: Any) -> list[str]:
    return [
        summary["jobId"]
        for summary in endpoint.batch.list_jobs(jobQueue=queue, **request)["jobSummaryList"]
    ]


def filtered(
    endpoint: Endpoint, name: str, *values: str, queue: str = "mixed", **request: Any
) -> list[str]:
    return listed(endpoint, queue, filters=[{"name": name, "values": list(values)}], **request)


def test_only_what_runs_without_a_status(endpoint: Endpoint, jobs: Jobs) -> None:
    """6: no jobStatus means RUNNING."""
    assert listed(endpoint) == [jobs.running]
    arn = "arn:aws:batch:us-east-1:123456789012:job-queue/mixed"
    assert listed(endpoint, arn) == [jobs.running]


def test_by_status(endpoint: Endpoint, jobs: Jobs) -> None:
    """6; and 2: an array's parent is PENDING while its children run."""
    for status, expected in {
        "SUBMITTED": [],
        "PENDING": [jobs.array],
        "RUNNABLE": [jobs.waiting],
        "STARTING": [],
        "RUNNING": [jobs.running],
        "SUCCEEDED": [jobs.succeeded],
        "FAILED": [jobs.failed],
    }.items():
        assert listed(endpoint, jobStatus=status) == expected, status
    with refused("SUBMITTED, PENDING"):
        listed(endpoint, jobStatus="DONE")


def test_children(endpoint: Endpoint, jobs: Jobs) -> None:
    """6 and 2: arrayJobId lists children; there too the default is RUNNING, and there are no
    filters."""
    children = endpoint.batch.list_jobs(arrayJobId=jobs.array)["jobSummaryList"]
    assert [summary["jobId"] for summary in children] == [
        f"{jobs.array}:{index}" for index in range(3)
    ]
    assert [summary["arrayProperties"] for summary in children] == [
        {"index": index} for index in range(3)
    ]
    assert (
        endpoint.batch.list_jobs(arrayJobId=jobs.array, jobStatus="FAILED")["jobSummaryList"] == []
    )
    assert endpoint.batch.list_jobs(arrayJobId=jobs.running)["jobSummaryList"] == []
    with refused("filters"):
        endpoint.batch.list_jobs(
            arrayJobId=jobs.array, filters=[{"name": "JOB_NAME", "values": ["a"]}]
        )


@pytest.mark.parametrize(
    "request_",
    [{}, {"jobQueue": "mixed", "arrayJobId": "x"}, {"jobQueue": "mixed", "multiNodeJobId": "x"}],
    ids=str,
)
def test_exactly_one_thing_to_list(endpoint: Endpoint, request_: dict[str, str]) -> None:
    """6: a queue, an array or a multi-node job. The last ones are not served, so none has nodes."""
    with refused("exactly one of"):
        endpoint.batch.list_jobs(**request_)
    assert endpoint.batch.list_jobs(multiNodeJobId="x")["jobSummaryList"] == []


def test_names(endpoint: Endpoint, jobs: Jobs) -> None:
    """6: JOB_NAME takes no notice of case; a final * stands for anything; newest first, of any
    status."""
    assert filtered(endpoint, "JOB_NAME", "ALPHA-1") == [jobs.succeeded]
    assert filtered(endpoint, "JOB_NAME", "alpha*") == [jobs.failed, jobs.succeeded]
    assert filtered(endpoint, "JOB_NAME", "alpha") == []
    assert filtered(endpoint, "JOB_NAME", "*") == [
        jobs.waiting,
        jobs.running,
        jobs.array,
        jobs.failed,
        jobs.succeeded,
    ]
    assert filtered(endpoint, "JOB_NAME", "a*", jobStatus="RUNNING") == [
        jobs.array,
        jobs.failed,
        jobs.succeeded,
    ]


def test_definitions(endpoint: Endpoint, jobs: Jobs) -> None:
    """6: JOB_DEFINITION takes notice of case; a name means all revisions, an ARN the one, and
    takes no *."""
    arn = "arn:aws:batch:us-east-1:123456789012:job-definition/other-kind"
    assert filtered(endpoint, "JOB_DEFINITION", "other-kind") == [jobs.failed]
    assert filtered(endpoint, "JOB_DEFINITION", "other*") == [jobs.failed]
    assert filtered(endpoint, "JOB_DEFINITION", "Other*") == []
    assert filtered(endpoint, "JOB_DEFINITION", f"{arn}:1") == [jobs.failed]
    assert filtered(endpoint, "JOB_DEFINITION", f"{arn}*") == []
    # `any` has a revision for each of them.
    assert filtered(endpoint, "JOB_DEFINITION", "any") == [
        jobs.waiting,
        jobs.running,
        jobs.array,
        jobs.succeeded,
    ]


def test_times(endpoint: Endpoint, jobs: Jobs) -> None:
    """6: BEFORE_CREATED_AT and AFTER_CREATED_AT, in milliseconds, as a string."""
    between = str(jobs.between_ms)
    assert filtered(endpoint, "BEFORE_CREATED_AT", between) == [jobs.failed, jobs.succeeded]
    assert filtered(endpoint, "AFTER_CREATED_AT", between) == [
        jobs.waiting,
        jobs.running,
        jobs.array,
    ]
    for wrong in ("yesterday", "", "-1", "9" * 5000):
        with refused("milliseconds"):
            filtered(endpoint, "AFTER_CREATED_AT", wrong)


def test_shares(endpoint: Endpoint) -> None:
    """6: SHARE_IDENTIFIER is the one filter beside which jobStatus counts."""
    policy = endpoint.batch.create_scheduling_policy(name="listed")["arn"]
    endpoint.queue("shared", "cpu", schedulingPolicyArn=policy)
    definition = endpoint.definition("shared", "sh", "-c", "exit $CODE")
    codes = {"0": [{"name": "CODE", "value": "0"}], "1": [{"name": "CODE", "value": "1"}]}
    ids = [
        endpoint.submit(
            definition,
            "shared",
            shareIdentifier=share,
            schedulingPriorityOverride=0,
            containerOverrides={"environment": codes[code]},
        )
        for share, code in (("a", "0"), ("a", "1"), ("b", "0"))
    ]
    for job_id in ids:
        endpoint.wait(job_id)
    assert filtered(endpoint, "SHARE_IDENTIFIER", "a", queue="shared") == [ids[1], ids[0]]
    assert filtered(endpoint, "SHARE_IDENTIFIER", "a", queue="shared", jobStatus="FAILED") == [
        ids[1]
    ]
    assert filtered(endpoint, "SHARE_IDENTIFIER", "a", queue="shared", jobStatus="RUNNING") == []
    summary = endpoint.batch.list_jobs(jobQueue="shared", jobStatus="FAILED")["jobSummaryList"][0]
    assert summary["shareIdentifier"] == "a"


def test_filters_that_are_none(endpoint: Endpoint, jobs: Jobs) -> None:
    """6: one filter a call; names of filters take notice of case."""
    name_filter = {"name": "JOB_NAME", "values": ["a"]}
    with refused("at most one"):
        listed(endpoint, filters=[name_filter, name_filter])
    for wrong in ("job_name", "COLOUR", ""):
        with refused("name must be one of JOB_NAME"):
            filtered(endpoint, wrong, "a")
    with refused("name must be one of JOB_NAME"):
        listed(endpoint, filters=[{"values": ["a"]}])
    with refused("values must not be empty"):
        filtered(endpoint, "JOB_NAME")


def test_filters_that_are_none_in_an_empty_queue(start: Callable[..., Endpoint]) -> None:
    """6: what is wrong with a request is so whatever there is to list."""
    endpoint = start("--cpus", "1", "--memory", "1GiB")
    endpoint.queue("empty", endpoint.environment("any"))
    for filter in ({"values": ["a"]}, {"name": "COLOUR", "values": ["a"]}, {"name": "JOB_NAME"}):
        with refused("filters"):
            listed(endpoint, "empty", filters=[filter])


def test_pages(endpoint: Endpoint, jobs: Jobs) -> None:
    """6: maxResults 1..1000; with a filter 1..100."""
    for most, request in ((1000, {}), (1000, {"jobStatus": "FAILED"}), (100, {"filters": [ALL]})):
        listed(endpoint, maxResults=most, **request)
        for wrong in (0, -1, most + 1):
            with refused(f"maxResults should be between 1 and {most}"):
                listed(endpoint, maxResults=wrong, **request)
    pages = list(
        endpoint.batch.get_paginator("list_jobs").paginate(
            jobQueue="mixed", filters=[ALL], maxResults=2
        )
    )
    assert [len(page["jobSummaryList"]) for page in pages] == [2, 2, 1]
    assert [summary["jobId"] for page in pages for summary in page["jobSummaryList"]] == filtered(
        endpoint, "JOB_NAME", "*"
    )
    with refused("nextToken"):
        listed(endpoint, nextToken="made up")


ALL = {"name": "JOB_NAME", "values": ["*"]}


def test_a_page_is_1000_by_default_and_100_with_a_filter(endpoint: Endpoint) -> None:
    """6, on the children of an array and on jobs."""
    endpoint.queue("stuck", endpoint.environment("off", vcpus=1, minvCpus=0))
    endpoint.batch.update_compute_environment(computeEnvironment="off", state="DISABLED")
    array = endpoint.run("true", queue="stuck", arrayProperties={"size": 1001})
    page = endpoint.batch.list_jobs(arrayJobId=array, jobStatus="RUNNABLE")
    assert len(page["jobSummaryList"]) == 1000
    second_page = endpoint.batch.list_jobs(
        arrayJobId=array, jobStatus="RUNNABLE", nextToken=page["nextToken"]
    )
    assert [summary["jobId"] for summary in second_page["jobSummaryList"]] == [f"{array}:1000"]
    definition = endpoint.definition("many", "true")
    for _ in range(100):
        endpoint.submit(definition, "stuck")
    assert len(filtered(endpoint, "JOB_NAME", "*", queue="stuck")) == 100
    assert len(listed(endpoint, "stuck", jobStatus="RUNNABLE")) == 100


def test_a_summary(endpoint: Endpoint, jobs: Jobs) -> None:
    """1.2: the members of a JobSummary."""
    (failed,) = endpoint.batch.list_jobs(jobQueue="mixed", jobStatus="FAILED")["jobSummaryList"]
    job = endpoint.job(jobs.failed)
    for member in (
        "jobArn",
        "jobId",
        "jobName",
        "createdAt",
        "status",
        "statusReason",
        "startedAt",
        "stoppedAt",
    ):
        assert failed[member] == job[member], member
    assert failed["jobDefinition"] == job["jobDefinition"]
    assert failed["container"]["exitCode"] == 1
    (array,) = endpoint.batch.list_jobs(jobQueue="mixed", jobStatus="PENDING")["jobSummaryList"]
    assert array["arrayProperties"]["size"] == 3


# -- DescribeJobs ---------------------------------------------------------------------------------


def test_describe_takes_1_to_100_ids(endpoint: Endpoint, jobs: Jobs) -> None:
    """6: with AWS's own text, blanks and all. 1.2: ids that nobody has are left out."""
    with refused("Maximum number of jobs supported is  100 ."):
        endpoint.batch.describe_jobs(jobs=["x"] * 101)
    with refused("empty"):
        endpoint.batch.describe_jobs(jobs=[])
    answer = endpoint.batch.describe_jobs(
        jobs=[jobs.failed, "x" * 36, f"{jobs.array}:2", f"{jobs.array}:3", jobs.running]
    )
    assert [job["jobId"] for job in answer["jobs"]] == [
        jobs.failed,
        f"{jobs.array}:2",
        jobs.running,
    ]
    unknown = [f"{jobs.array}:{index}" for index in ("3", "-1", "01", "", "x", "9" * 5000)]
    assert endpoint.batch.describe_jobs(jobs=[*unknown, f"{jobs.running}:0", "", ":"])["jobs"] == []
    children = [f"{jobs.array}:{index}" for index in range(3)]
    assert len(endpoint.batch.describe_jobs(jobs=(children * 34)[:100])["jobs"]) == 3


def test_ids_look_as_aws_has_them(endpoint: Endpoint, jobs: Jobs) -> None:
    """5.4: the pattern of a job's id, and of a child's."""
    pattern = r"[a-f0-9]{8}(-[a-f0-9]{4}){3}-[a-f0-9]{12}(:[0-9]+)?(#[0-9]+)?"
    for job_id in (jobs.failed, f"{jobs.array}:2"):
        job = endpoint.job(job_id)
        assert re.fullmatch(pattern, job["jobId"])
        assert job["jobArn"] == f"arn:aws:batch:us-east-1:123456789012:job/{job_id}"


def test_what_is_listed_changes_with_the_job(endpoint: Endpoint) -> None:
    """6: a job is in one list at a time."""
    gate = endpoint.folder / "listed"
    job_id = endpoint.run("sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done")
    endpoint.wait(job_id, "RUNNING")
    assert job_id in listed(endpoint, "queue")
    gate.touch()
    endpoint.wait(job_id)
    assert job_id not in listed(endpoint, "queue")
    until(
        lambda: listed(endpoint, "queue", jobStatus="SUCCEEDED"), lambda job_ids: job_id in job_ids
    )
