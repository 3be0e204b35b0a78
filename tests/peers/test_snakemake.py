"""Snakemake from PyPI with its aws-batch executor and its S3 storage: each job is a process.

The executor asks for privileged containers, which some Docker installations refuse. Processes share
a machine, so Snakemake's --precommand moves each job to a separate folder first.
"""

from __future__ import annotations

from collections.abc import Callable

from peer_clients import Peer, said
from peer_workflows import prepare_snakemake, run_snakemake

#: for jobs that take seconds
OFTEN = ("--seconds-between-status-checks", "1")


def prepared(begin: Callable[..., Peer]) -> Peer:
    peer = begin("snakemake", "process")
    prepare_snakemake(peer)
    return peer


def test_a_workflow(begin: Callable[..., Peer]) -> None:
    peer = prepared(begin)
    done = run_snakemake(peer, *OFTEN)
    assert done.returncode == 0, said(done)
    made = {
        key: content for key, content in peer.objects("snakemake/").items() if key.endswith(".txt")
    }
    assert made == {
        "snakemake/squares/3.txt": b"9\n",
        "snakemake/squares/4.txt": b"16\n",
        "snakemake/total.txt": b"25\n",
    }

    jobs = peer.jobs()
    assert [job["status"] for job in jobs] == ["SUCCEEDED"] * 3, jobs
    assert sorted(job["jobName"].split("-")[1] for job in jobs) == ["square", "square", "total"]
    # It registers a definition for each job, and takes it away again.
    calls = peer.counted.by_operation
    assert [
        calls[name] for name in ("registerjobdefinition", "submitjob", "deregisterjobdefinition")
    ] == [3, 3, 3]
    assert not peer.endpoint.batch.describe_job_definitions(status="ACTIVE")["jobDefinitions"]


def test_a_job_that_fails(begin: Callable[..., Peer]) -> None:
    peer = prepared(begin)
    done = run_snakemake(peer, *OFTEN, "--", "broken.txt")
    assert done.returncode == 1, said(done)
    assert (
        "AWS Batch job failed. Code: 1, Msg: Essential container in task exited" in done.stderr
    ), said(done)

    (job,) = peer.jobs()
    assert (job["status"], job["container"]["exitCode"]) == ("FAILED", 1)
    assert any("no file today" in line for line in peer.endpoint.output(job["jobId"]))
    assert not [key for key in peer.objects("snakemake/") if key.endswith("broken.txt")]
