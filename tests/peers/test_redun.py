"""redun from PyPI with its aws_batch executor: its jobs and array jobs are containers."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from peer_clients import Peer, said
from peer_workflows import prepare_redun, run_redun

KEPT_AS = "s3://peers/letters.txt"


def prepared(begin: Callable[..., Peer], image: str, least_array: int) -> Peer:
    """``least_array``: how many equal tasks are bundled at the least; 0: it bundles none."""
    peer = begin("redun", "docker")
    # It waits as long as job_stale_time for more equal tasks before it bundles what it has.
    prepare_redun(
        peer, image, job_monitor_interval=0.5, job_stale_time=5, min_array_size=least_array
    )
    return peer


def test_every_task_a_job(begin: Callable[..., Peer], image: str) -> None:
    peer = prepared(begin, image, least_array=0)
    done = run_redun(peer, "main", "--kept-as", KEPT_AS, "--count", "4")
    assert done.returncode == 0, said(done)
    assert ast.literal_eval(done.stdout) == {"squares": [0, 1, 4, 9], "total": 14, "letters": "9\n"}
    assert peer.objects("letters.txt") == {"letters.txt": b"9\n"}

    jobs = peer.jobs()
    assert [job["status"] for job in jobs] == ["SUCCEEDED"] * 6, jobs
    assert not any("arrayProperties" in job for job in jobs)
    assert {job["container"]["image"] for job in jobs} == {image}
    assert peer.counted.by_operation["submitjob"] == 6


def test_equal_tasks_as_an_array_job(begin: Callable[..., Peer], image: str) -> None:
    peer = prepared(begin, image, least_array=3)
    done = run_redun(peer, "main", "--kept-as", KEPT_AS)
    assert done.returncode == 0, said(done)
    assert ast.literal_eval(done.stdout) == {
        "squares": [0, 1, 4, 9, 16, 25],
        "total": 55,
        "letters": "9\n",
    }

    arrays = [job for job in peer.jobs() if "arrayProperties" in job]
    assert [(job["status"], job["arrayProperties"]["size"]) for job in arrays] == [("SUCCEEDED", 6)]
    assert arrays[0]["arrayProperties"]["statusSummary"]["SUCCEEDED"] == 6
    # one of six children, `total`, and the script
    assert peer.counted.by_operation["submitjob"] == 3


@pytest.mark.parametrize("least_array", [0, 3])
def test_a_task_that_fails(begin: Callable[..., Peer], image: str, least_array: int) -> None:
    peer = prepared(begin, image, least_array)
    done = run_redun(peer, "broken")
    assert done.returncode == 1, said(done)
    # What the task has raised comes back by S3, what its container wrote by CloudWatch Logs.
    assert "ValueError: no square of -3 today" in done.stderr, said(done)
    assert "*** CloudWatch logs for AWS Batch job" in done.stderr, said(done)
    assert "redun :: version" in done.stderr.partition("*** CloudWatch logs")[2], said(done)

    jobs = peer.jobs()
    assert sorted(job["status"] for job in jobs) == (
        ["FAILED"] if least_array else ["FAILED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"]
    )
    (failed,) = (job for job in jobs if job["status"] == "FAILED")
    if least_array:
        assert failed["arrayProperties"]["statusSummary"]["FAILED"] == 1
        failed = peer.endpoint.job(f"{failed['jobId']}:2")
    assert failed["container"]["exitCode"] == 1
