"""Answers that end in the middle of their body."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloud_lab import Lab, opened, set_faults
from emulator_endpoint import Endpoint

PIPELINE = """\
name: cut
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: first, array: 2, command: echo one}
"""


@pytest.fixture(scope="module")
def kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    endpoint = opened(tmp_path_factory.mktemp("kind"), "--cpus", "4", "--faults", "seed=1")
    yield endpoint
    endpoint.stop(signal.SIGKILL)


@pytest.fixture(autouse=True)
def remove_faults(kind: Endpoint) -> Iterator[None]:
    yield
    set_faults(kind, "")


def test_cut_answers_of_aws_batch_are_asked_for_again(tmp_path: Path, kind: Endpoint) -> None:
    lab = Lab(tmp_path, kind)
    lab.write("pipeline.yaml", PIPELINE)
    operations = ("SubmitJob", "DescribeJobs", "DescribeJobQueues", "DescribeJobDefinitions")
    set_faults(kind, ",".join(f"cut@{operation}=2x" for operation in operations))
    run = lab.run()
    assert lab.status(run)["state"] == "SUCCEEDED"
    assert {name: count for name, count in lab.job_names().items() if run in name} == {
        f"{run}-first": 1
    }


@pytest.mark.slow
def test_cut_answers_of_other_services_are_asked_for_again(tmp_path: Path, kind: Endpoint) -> None:
    """S3 and CloudFormation answer in XML, and CloudWatch Logs in JSON."""
    lab = Lab(tmp_path, kind)
    lab.write("pipeline.yaml", PIPELINE)
    run = lab.run()
    set_faults(kind, "cut@logs=2x,cut@s3:GET=2x")
    assert lab("logs", run, "first:1").stdout == "one\n"
    set_faults(kind, "cut@cloudformation=2x")
    lab("environments")


@pytest.mark.slow
def test_cut_bodies_of_objects_are_asked_for_again(tmp_path: Path, kind: Endpoint) -> None:
    lab = Lab(tmp_path, kind)
    lab.write("pipeline.yaml", PIPELINE.replace("echo one", "false"))
    run = lab.run(code=1)
    # Elsewhere all that is known of the run is in objects of S3.
    elsewhere = Lab(tmp_path / "elsewhere", kind)
    set_faults(kind, "cut@s3:GET=3x")
    assert elsewhere.json("status", run, "--env", "lab")["state"] == "FAILED"
    set_faults(kind, "cut@s3:GET=1")
    done = Lab(tmp_path / "third", kind)("status", run, "--env", "lab", code=3)
    set_faults(kind, "")
    assert "could not" in done.stderr and "s3://lab-runs" in done.stderr


def test_only_cut_answers(tmp_path: Path, kind: Endpoint) -> None:
    lab = Lab(tmp_path, kind)
    lab.write("pipeline.yaml", PIPELINE)
    run = lab.run()
    set_faults(kind, "cut@sts=1,cut@cloudformation=1")
    # The first call of this command is not repeated by botocore.
    done = lab("deploy", "--env", "fresh", "--yes", code=None)
    set_faults(kind, "")
    assert done.returncode == 3 and "Connection was closed" in done.stderr
    assert lab.status(run)["state"] == "SUCCEEDED"
