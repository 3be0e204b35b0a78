"""Queues that cannot run a step, and queues on Fargate."""

from __future__ import annotations

import pytest
from cloud_lab import ENVIRONMENTS, Lab
from emulator_endpoint import Endpoint

ROLE = "arn:aws:iam::123456789012:role/lab-execution"


@pytest.fixture(scope="module", autouse=True)
def queues(endpoint: Endpoint) -> None:
    """Add queues to those of the lab: one on Fargate, one whose hosts are above its maxvCpus."""
    endpoint.batch.create_compute_environment(
        computeEnvironmentName="serverless-fleet",
        type="MANAGED",
        computeResources={
            "type": "FARGATE",
            "maxvCpus": 16,
            "subnets": ["subnet-0a"],
            "securityGroupIds": ["sg-0a"],
        },
    )
    endpoint.queue("serverless", "serverless-fleet")
    endpoint.queue("narrow", endpoint.environment("narrow-fleet", 2, ("c5.4xlarge",)))


def write(lab: Lab, step: str, settings: str = "") -> None:
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + settings)
    lab.write("pipeline.yaml", f"name: q\nimage: busybox\nsteps:\n  - {step}\n")


def refuse(lab: Lab, step: str, settings: str = "") -> str:
    """Return the message for a step, which `plan` and `run` have in common."""
    write(lab, step, settings)
    messages = {
        lab(command, "pipeline.yaml", "--engine", "aws", "--env", "lab", code=2).stderr
        for command in ("plan", "run")
    }
    assert len(messages) == 1
    return messages.pop()


@pytest.mark.slow
def test_a_step_that_no_host_of_its_queue_can_run_is_refused(lab: Lab) -> None:
    said = refuse(lab, "{name: a, command: echo, gpus: 1}")
    assert "asks for 1 vCPU, 512MiB and 1 GPU, and queue spot has no host for it" in said
    assert "spot-fleet: m3.medium, m6i, maxvCpus 256" in said
    assert "asks for 300 vCPUs" in refuse(lab, "{name: a, command: echo, cpus: 300}")
    assert "asks for 1 vCPU and 2TiB" in refuse(lab, "{name: a, command: echo, memory: 2TiB}")
    assert "queue narrow has no host" in refuse(lab, "{name: a, command: echo, queue: narrow}")


def test_steps_run_on_fargate(lab: Lab) -> None:
    step = (
        '{name: a, queue: serverless, memory: 3GiB, commands: ["echo l > out"], outputs: [out]}\n'
        "  - {name: b, queue: serverless, command: echo plain, needs: [a]}"
    )
    write(lab, step, f"    execution_role: {ROLE}\n")
    done = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
    assert "SUCCEEDED" in done.stdout
    assert (lab.folder / "out").read_text() == "l\n"
    assert "b: Fargate has no 512 MiB with 1 vCPUs; its children get 2,048 MiB" in done.stderr
    (job_id,) = [
        job["jobId"]
        for job in lab.endpoint.batch.list_jobs(
            jobQueue="serverless", filters=[{"name": "JOB_NAME", "values": ["q-*"]}]
        )["jobSummaryList"]
        if job["jobName"].endswith("-a")
    ]
    (job,) = lab.endpoint.batch.describe_jobs(jobs=[job_id])["jobs"]
    assert job["platformCapabilities"] == ["FARGATE"]


def test_a_step_survives_a_reclaim_on_fargate(lab: Lab) -> None:
    command = "test $AWS_BATCH_JOB_ATTEMPT = 2 || sleep 600"
    step = f"{{name: reclaimed, queue: serverless, memory: 2GiB, command: {command}}}"
    write(lab, step, f"    execution_role: {ROLE}\n")
    run = lab.run("--detach")
    (job,) = lab.endpoint.batch.list_jobs(
        jobQueue="serverless", filters=[{"name": "JOB_NAME", "values": [f"{run}-*"]}]
    )["jobSummaryList"]
    lab.endpoint.wait(job["jobId"], "RUNNING")
    lab("emulate", "reclaim", job["jobId"], "--notice", "0")
    ended = lab.endpoint.wait(job["jobId"])
    assert (ended["status"], len(ended["attempts"])) == ("SUCCEEDED", 2)


def test_what_fargate_does_not_have_is_refused_at_once(lab: Lab) -> None:
    said = refuse(
        lab,
        "{name: a, queue: serverless, command: echo, cpus: 3, shm: 1GiB, ulimits: {nofile: 9},"
        " mounts: [{path: /a, host: /b}, {path: /c, efs: fs-0123abcd}]}",
    )
    for problem in (
        "a child asks for 3 vCPUs and 512 MiB; Fargate has 1 with up to 8,192 MiB",
        "has no execution role",
        "has no shm",
        "has no ulimits",
        "has no mounts with `host` or `instance_store`",
    ):
        assert problem in said, problem
    assert "has no GPUs" in refuse(lab, "{name: a, queue: serverless, command: echo, gpus: 1}")
