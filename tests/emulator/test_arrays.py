"""Array jobs: the parent's life, its children, what is told of both (facts, 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import TERMINAL, Endpoint, until
from gates import Gate, no_traceback, one_at_a_time, refused, stays


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    it = Gate(tmp_path / "gate")
    yield it
    it.close()


def children(endpoint: Endpoint, job_id: str, size: int) -> list[Any]:
    return list(
        endpoint.batch.describe_jobs(jobs=[f"{job_id}:{index}" for index in range(size)])["jobs"]
    )


def summary(endpoint: Endpoint, job_id: str) -> dict[str, int]:
    """Only the states that some children are in."""
    counts = endpoint.job(job_id)["arrayProperties"]["statusSummary"]
    return {state: count for state, count in counts.items() if count}


@pytest.mark.parametrize("size", [1, 0, -1, 10_001])
def test_an_array_has_2_to_10000_children(endpoint: Endpoint, size: int) -> None:
    """facts, 2: 0 and 1 are refused, and so is more than the quota."""
    assert "size" in refused(lambda: endpoint.run("true", arrayProperties={"size": size}))


def test_the_largest_array_is_taken(endpoint: Endpoint) -> None:
    """facts, 2: 10,000 children."""
    job_id = endpoint.run(
        "sleep", "60", queue=one_at_a_time(endpoint, "large"), arrayProperties={"size": 10_000}
    )
    until(
        lambda: summary(endpoint, job_id),
        lambda counts: counts == {"RUNNING": 1, "RUNNABLE": 9_999},
    )
    endpoint.batch.terminate_job(jobId=job_id, reason="large enough")
    assert endpoint.wait(job_id)["arrayProperties"]["statusSummary"]["FAILED"] == 10_000


def test_array_properties_without_a_size_are_no_array(endpoint: Endpoint) -> None:
    """A choice: an empty arrayProperties means an ordinary job."""
    job = endpoint.wait(endpoint.run("true", arrayProperties={}))
    assert job["status"] == "SUCCEEDED" and "arrayProperties" not in job


def test_ids_of_children(endpoint: Endpoint) -> None:
    """facts, 2: <parent>:<index> from 0 on; their ARNs end the same way."""
    job_id = endpoint.run("true", arrayProperties={"size": 3}, name="family")
    parent = endpoint.wait(job_id)
    described_children = children(endpoint, job_id, 3)
    assert [child["jobId"] for child in described_children] == [
        f"{job_id}:{index}" for index in range(3)
    ]
    assert [child["jobArn"] for child in described_children] == [
        f"{parent['jobArn']}:{index}" for index in range(3)
    ]
    assert {child["jobName"] for child in described_children} == {"family"}
    assert parent["jobArn"].endswith(f":job/{job_id}")


def test_the_parent_is_pending_until_all_children_are_over(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 2: SUBMITTED, PENDING, then SUCCEEDED or FAILED; never RUNNABLE, STARTING, RUNNING."""
    job_id = endpoint.run(*gate.shell(), arrayProperties={"size": 3})
    seen = {endpoint.job(job_id)["status"]}
    until(lambda: summary(endpoint, job_id), lambda counts: counts == {"RUNNING": 3})
    seen.add(endpoint.job(job_id)["status"])
    gate.open(2)
    until(
        lambda: summary(endpoint, job_id), lambda counts: counts == {"RUNNING": 1, "SUCCEEDED": 2}
    )
    seen.add(endpoint.job(job_id)["status"])
    gate.open()
    until(
        lambda: endpoint.job(job_id)["status"], lambda state: seen.add(state) or state in TERMINAL
    )
    assert seen <= {"SUBMITTED", "PENDING", "SUCCEEDED"} and "PENDING" in seen


def test_the_parent_fails_only_when_all_children_are_over(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 2: no fail-fast, and a child's failure does not stop its siblings; `Array Child Job
    failed` (1.8)."""
    script = "test $AWS_BATCH_JOB_ARRAY_INDEX = 1 && exit 7; "
    job_id = endpoint.run("sh", "-c", script + gate.shell()[2], arrayProperties={"size": 3})
    until(lambda: summary(endpoint, job_id), lambda counts: counts == {"RUNNING": 2, "FAILED": 1})
    stays(lambda: endpoint.job(job_id)["status"], "PENDING")
    gate.open(2)
    parent = endpoint.wait(job_id)
    assert (parent["status"], parent["statusReason"]) == ("FAILED", "Array Child Job failed")
    assert [child["status"] for child in children(endpoint, job_id, 3)] == [
        "SUCCEEDED",
        "FAILED",
        "SUCCEEDED",
    ]


def test_what_is_told_of_a_parent(endpoint: Endpoint) -> None:
    """facts, 2: size, statusSummary, statusSummaryLastUpdatedAt; DescribeJobs on it does not
    list the children."""
    job_id = endpoint.run("true", arrayProperties={"size": 4})
    parent = endpoint.wait(job_id)
    array = parent["arrayProperties"]
    assert (array["size"], array["statusSummary"]["SUCCEEDED"]) == (4, 4)
    assert sum(array["statusSummary"].values()) == 4
    assert set(array["statusSummary"]) == {
        "SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED", "FAILED",
    }  # fmt: skip
    assert array["statusSummaryLastUpdatedAt"] >= parent["createdAt"]
    assert "index" not in array and parent["attempts"] == []
    assert "taskArn" not in parent["container"] and "logStreamName" not in parent["container"]
    assert len(endpoint.batch.describe_jobs(jobs=[job_id])["jobs"]) == 1


def test_what_is_told_of_a_child(endpoint: Endpoint) -> None:
    """facts, 2: its index, as AWS sends it; createdAt is when the parent became PENDING (1.2)."""
    job_id = endpoint.run(
        "sh", "-c", "exit $AWS_BATCH_JOB_ARRAY_INDEX", arrayProperties={"size": 2}
    )
    created = endpoint.wait(job_id)["createdAt"]
    first, second = children(endpoint, job_id, 2)
    assert (first["arrayProperties"], second["arrayProperties"]) == (
        {"statusSummary": {}, "index": 0},
        {"statusSummary": {}, "index": 1},
    )
    assert (first["container"]["exitCode"], second["container"]["exitCode"]) == (0, 1)
    assert first["createdAt"] >= created and first["startedAt"] <= first["stoppedAt"]
    assert first["container"]["taskArn"] != second["container"]["taskArn"]


def test_each_child_knows_itself(endpoint: Endpoint) -> None:
    """facts, 2 and 3: AWS_BATCH_JOB_ARRAY_INDEX, AWS_BATCH_JOB_ARRAY_SIZE; AWS_BATCH_JOB_ID is
    the child's."""
    script = "echo $AWS_BATCH_JOB_ARRAY_INDEX $AWS_BATCH_JOB_ARRAY_SIZE $AWS_BATCH_JOB_ID"
    job_id = endpoint.run("sh", "-c", script, arrayProperties={"size": 3})
    endpoint.wait(job_id)
    for index in range(3):
        assert endpoint.output(f"{job_id}:{index}") == [f"{index} 3 {job_id}:{index}"]


def test_each_child_is_tried_by_itself(endpoint: Endpoint) -> None:
    """facts, 2: the strategy is each child's, and the parent is not retried."""
    script = "test $AWS_BATCH_JOB_ATTEMPT -gt $AWS_BATCH_JOB_ARRAY_INDEX"
    job_id = endpoint.run(
        "sh", "-c", script, arrayProperties={"size": 4}, retryStrategy={"attempts": 3}
    )
    assert endpoint.wait(job_id)["status"] == "FAILED"
    described_children = children(endpoint, job_id, 4)
    assert [len(child["attempts"]) for child in described_children] == [1, 2, 3, 3]
    assert [child["status"] for child in described_children] == [
        "SUCCEEDED",
        "SUCCEEDED",
        "SUCCEEDED",
        "FAILED",
    ]
    assert {child["retryStrategy"]["attempts"] for child in described_children} == {3}
    assert endpoint.job(job_id)["attempts"] == []


def test_resources_are_each_childs(endpoint: Endpoint) -> None:
    """facts, 2: there is no limit but capacity: with 8 vCPUs two children of 4 run, and not
    three."""
    definition = endpoint.definition("wide", "sleep", "60", vcpus=4)
    job_id = endpoint.submit(definition, arrayProperties={"size": 3})
    until(lambda: summary(endpoint, job_id), lambda counts: counts == {"RUNNING": 2, "RUNNABLE": 1})
    endpoint.batch.terminate_job(jobId=job_id, reason="seen")
    endpoint.wait(job_id)


def test_list_jobs_of_an_array(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 2: arrayJobId lists children; without jobStatus only those that RUN; filters are
    not for children."""
    queue = one_at_a_time(endpoint, "listed")
    job_id = endpoint.run(
        *gate.shell("exit $AWS_BATCH_JOB_ARRAY_INDEX"), queue=queue, arrayProperties={"size": 4}
    )

    def listed(**members: Any) -> list[Any]:
        return list(endpoint.batch.list_jobs(arrayJobId=job_id, **members)["jobSummaryList"])

    gate.open(2)
    until(lambda: summary(endpoint, job_id).get("FAILED"), lambda failed: failed == 1)
    (running,) = until(listed, lambda summaries: len(summaries) == 1)
    assert (running["jobId"], running["status"]) == (f"{job_id}:2", "RUNNING")
    assert running["arrayProperties"] == {"index": 2}
    (failed,) = listed(jobStatus="FAILED")
    assert failed["container"] == {"exitCode": 1}
    assert [child["jobId"] for child in listed(jobStatus="SUCCEEDED")] == [f"{job_id}:0"]
    assert [child["jobId"] for child in listed(jobStatus="RUNNABLE")] == [f"{job_id}:3"]
    assert "filters" in refused(lambda: listed(filters=[{"name": "JOB_NAME", "values": ["job"]}]))
    # In its queue the array is one job, and its children are not there.
    (parent,) = endpoint.batch.list_jobs(jobQueue=queue, jobStatus="PENDING")["jobSummaryList"]
    assert (parent["jobId"], parent["arrayProperties"]["size"]) == (job_id, 4)
    assert endpoint.batch.list_jobs(jobQueue=queue)["jobSummaryList"] == []
    gate.open(2)
    endpoint.wait(job_id)


def test_children_come_in_pages(endpoint: Endpoint) -> None:
    """facts, 2 and 6: nextToken leads through all of them, and a stranger has none."""
    job_id = endpoint.run("true", arrayProperties={"size": 25})
    endpoint.wait(job_id)
    pages = endpoint.batch.get_paginator("list_jobs").paginate(
        arrayJobId=job_id, jobStatus="SUCCEEDED", PaginationConfig={"PageSize": 10}
    )
    job_ids = [
        [child["arrayProperties"]["index"] for child in page["jobSummaryList"]] for page in pages
    ]
    assert [len(page) for page in job_ids] == [10, 10, 5]
    assert [index for page in job_ids for index in page] == list(range(25))
    for stranger in ("nonsense", f"{job_id}:0", endpoint.run("true")):
        assert endpoint.batch.list_jobs(arrayJobId=stranger)["jobSummaryList"] == []


def test_tags_stay_with_the_parent(endpoint: Endpoint) -> None:
    """facts, 2: children have none, and TagResource refuses them."""
    job_id = endpoint.run("true", arrayProperties={"size": 2}, tags={"team": "a"})
    assert endpoint.wait(job_id)["tags"] == {"team": "a"}
    child = endpoint.job(f"{job_id}:0")
    assert child["tags"] == {}
    refused(lambda: endpoint.batch.tag_resource(resourceArn=child["jobArn"], tags={"x": "y"}))
    refused(lambda: endpoint.batch.list_tags_for_resource(resourceArn=child["jobArn"]))
    endpoint.batch.tag_resource(resourceArn=endpoint.job(job_id)["jobArn"], tags={"x": "y"})
    assert endpoint.job(job_id)["tags"] == {"team": "a", "x": "y"}


def test_every_child_runs_exactly_once(endpoint: Endpoint, tmp_path: Path) -> None:
    script = f"echo $AWS_BATCH_JOB_ARRAY_INDEX >> {tmp_path}/ran"
    job_id = endpoint.run("sh", "-c", script, arrayProperties={"size": 300})
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert Counter((tmp_path / "ran").read_text().split()) == Counter(map(str, range(300)))


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
