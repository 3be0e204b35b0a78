"""Jobs know their region also where the ECS agent does not set it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from cloud_lab import Lab, opened
from emulator_endpoint import Endpoint

PIPELINE = """\
name: where
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: plain, command: "echo $AWS_REGION $AWS_DEFAULT_REGION"}
  - name: listed
    commands: ["python -c 'import boto3; print(boto3.Session().region_name)' > region"]
    outputs: [region]
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """An endpoint as with ECS agents before 1.104."""
    it = opened(tmp_path_factory.mktemp("endpoint"), "--no-job-region")
    try:
        yield it
    finally:
        it.stop(signal.SIGKILL)


@pytest.mark.slow
def test_worker_and_commands_have_the_region_of_the_environment(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    run = lab.run()
    assert "us-east-1 us-east-1" in lab("logs", run, "plain").stdout.splitlines()
    assert (lab.folder / "region").read_text() == "us-east-1\n"
