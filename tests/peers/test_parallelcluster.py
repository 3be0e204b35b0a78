"""The commands of AWS ParallelCluster for AWS Batch: awsbsub, awsbstat, awsbhosts and others."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Callable
from typing import Any

import pytest
from peer_clients import QUEUE, Peer, said

SETTINGS = """\
[main]
cluster_name = lab

[cluster lab]
region = us-east-1
proxy = NONE
s3_bucket = peers
artifact_directory = cluster
batch_cli_requirements = aws-parallelcluster-awsbatch-cli>=1.0.0
compute_environment = {environment}
job_queue = {queue}
job_definition = {definition}
head_node_ip = 127.0.0.1
"""


@pytest.fixture
def peer(begin: Callable[..., Peer]) -> Peer:
    peer = begin("parallelcluster", "process")
    batch = peer.endpoint.batch
    # ParallelCluster's own definition has the old keys, which awsbsub overrides.
    container = {"vcpus": 1, "memory": 128, "resourceRequirements": []}
    peer.endpoint.definition("cluster", "true", container=container)
    queue = batch.describe_job_queues(jobQueues=[QUEUE])["jobQueues"][0]
    definition = batch.describe_job_definitions(jobDefinitionName="cluster")["jobDefinitions"][0]
    folder = peer.folder / ".parallelcluster"
    folder.mkdir()
    folder.joinpath("awsbatch-cli.cfg").write_text(
        SETTINGS.format(
            environment=queue["computeEnvironmentOrder"][0]["computeEnvironment"],
            queue=queue["jobQueueArn"],
            definition=definition["jobDefinitionArn"],
        )
    )
    return peer


def run(peer: Peer, *words: str) -> str:
    """Run a command at a terminal: without one, awsbsub reads a script from stdin."""
    master, terminal = pty.openpty()
    try:
        done = peer.run(*words, stdin=terminal)
    finally:
        os.close(master)
        os.close(terminal)
    assert done.returncode == 0, said(done)
    return done.stdout


def submit(peer: Peer, *words: str) -> str:
    match = re.search(r"Job ([0-9a-f-]{36})", run(peer, "awsbsub", *words))
    assert match is not None
    return match[1]


def wait(peer: Peer, job_id: str, *states: str) -> Any:
    return peer.endpoint.wait(job_id, *states)


def test_a_job_from_its_submission_to_its_output(peer: Peer) -> None:
    job_id = submit(peer, "-jn", "hello", "echo", "from", "the", "cluster")
    assert wait(peer, job_id)["status"] == "SUCCEEDED"
    listed = run(peer, "awsbstat", "-s", "ALL")
    assert job_id in listed and "SUCCEEDED" in listed and "hello" in listed
    details = run(peer, "awsbstat", job_id)
    assert re.search(r"^status\s*: SUCCEEDED$", details, re.MULTILINE), details
    assert "from the cluster" in run(peer, "awsbout", job_id)


def test_an_array_and_a_job_that_depends_on_it(peer: Peer) -> None:
    array = submit(peer, "-jn", "array", "-a", "3", "true")
    after = submit(peer, "-jn", "after", "-d", f"jobId={array}", "true")
    assert wait(peer, after)["status"] == "SUCCEEDED"
    listed = run(peer, "awsbstat", "-s", "ALL", "-e")
    assert [f"{array}:{index} " in listed for index in range(3)] == [True] * 3, listed


def test_a_job_that_is_killed(peer: Peer) -> None:
    job_id = submit(peer, "-jn", "long", "sleep", "60")
    wait(peer, job_id, "RUNNING")
    run(peer, "awsbkill", "-r", "enough", job_id)
    job = wait(peer, job_id)
    assert (job["status"], job["statusReason"]) == ("FAILED", "enough")


def test_queues(peer: Peer) -> None:
    listed = run(peer, "awsbqueues")
    assert QUEUE in listed and "VALID" in listed


def test_hosts(peer: Peer) -> None:
    """awsbhosts joins what Batch, ECS and EC2 say about an instance."""
    job_id = submit(peer, "-jn", "long", "sleep", "600")
    wait(peer, job_id, "RUNNING")
    instances = [
        instance
        for reservation in peer.endpoint.client("ec2").describe_instances()["Reservations"]
        for instance in reservation["Instances"]
        if instance["State"]["Name"] == "running"
    ]
    (host,) = instances
    listed = run(peer, "awsbhosts").splitlines()
    (row,) = [line.split() for line in listed if host["InstanceId"] in line]
    assert row[1:3] == [host["InstanceType"], host["PrivateIpAddress"]]
    assert row[-1] == "1", "jobs that run on it"
    details = run(peer, "awsbhosts", host["InstanceId"])
    assert re.search(r"^runningJobs\s*: 1$", details, re.MULTILINE), details
    run(peer, "awsbkill", job_id)
    wait(peer, job_id)
