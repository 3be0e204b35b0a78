"""aegea from PyPI: `aegea batch` creates queues, and submits, watches, lists and ends jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from peer_clients import QUEUE, Peer, said


@pytest.fixture
def peer(begin: Callable[..., Peer]) -> Peer:
    return begin("aegea", "process")


def run(peer: Peer, *words: str, code: int = 0) -> str:
    done = peer.run("aegea", "batch", *words)
    assert done.returncode == code, said(done)
    return done.stdout + done.stderr


def submit(peer: Peer, *words: str) -> str:
    """Submit a job and return its id, the last of what aegea prints."""
    done = peer.run("aegea", "batch", "submit", "--queue", QUEUE, "--memory-mb", "256", *words)
    assert done.returncode == 0, said(done)
    job: dict[str, str] = json.loads(done.stdout[done.stdout.index("{") :])
    return job["jobId"]


def describe(peer: Peer, job_id: str) -> Any:
    return peer.endpoint.wait(job_id)


def test_jobs_from_their_submission_to_their_output(peer: Peer) -> None:
    first = submit(peer, "--name", "first", "--command", "echo from aegea")
    assert "from aegea" in run(peer, "watch", first)
    second = submit(peer, "--name", "second", "--command", "true", "--depends-on", first)
    assert describe(peer, second)["status"] == "SUCCEEDED"
    listed = json.loads(run(peer, "ls", "--json"))
    assert {job["jobName"]: job["status"] for job in listed} == {
        "first": "SUCCEEDED",
        "second": "SUCCEEDED",
    }


def test_a_job_that_fails_and_one_that_is_ended(peer: Peer) -> None:
    bad = submit(peer, "--name", "bad", "--command", "echo not today; exit 3")
    assert "not today" in run(peer, "watch", bad, code=3)
    long = submit(peer, "--name", "long", "--command", "sleep 600")
    run(peer, "terminate", long, "--reason", "enough")
    job = describe(peer, long)
    assert (job["status"], job["statusReason"]) == ("FAILED", "enough")


def test_its_own_compute_environment_and_queue(peer: Peer) -> None:
    """It makes roles, a security group, a key pair and a launch template first."""
    size = ("--min-vcpus", "0", "--desired-vcpus", "0", "--max-vcpus", "4")
    kind = ("--type", "MANAGED", "--compute-type", "EC2", "--instance-types", "c5.large")
    run(peer, "create-compute-environment", "theirs", *kind, *size)
    run(peer, "create-queue", "their-queue", "--compute-environments", "theirs")
    job_id = submit(peer, "--queue", "their-queue", "--name", "hello", "--command", "true")
    job = describe(peer, job_id)
    assert (job["status"], job["jobQueue"].rpartition("/")[2]) == ("SUCCEEDED", "their-queue")
    assert "their-queue" in run(peer, "queues")
    run(peer, "delete-queue", "their-queue")
