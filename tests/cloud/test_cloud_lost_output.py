"""Output that a host loses when it dies, of a command whose success is on S3: `logs` says so."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cloud_lab import BUCKET, PATH, Lab
from emulator_endpoint import Endpoint, until

PIPELINE = """\
name: lost
image: busybox
env: {{AWS_ENDPOINT_URL_S3: "{s3}"}}
defaults: {{memory: 256MiB}}
steps:
  - name: a
    commands: ["sh '{folder}/job.sh'"]
"""
JOB = """\
cd "$(dirname "$0")"
touch begun
until test -e go; do sleep 0.1; done
echo said
echo x >> ran
"""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Endpoint]:
    """Has S3 in its memory, and outlives the endpoint that runs the jobs."""
    endpoint = Endpoint(tmp_path / "s3")
    endpoint.client("s3").create_bucket(Bucket=BUCKET)
    yield endpoint
    endpoint.stop(signal.SIGKILL)


@contextmanager
def start_endpoint(folder: Path) -> Iterator[Endpoint]:
    endpoint = Endpoint(folder, "--cpus", "2", "--memory", "2GiB", environ={"PATH": PATH})
    try:
        yield endpoint
    finally:
        endpoint.stop(signal.SIGKILL)


def has_success_record(s3: Endpoint) -> bool:
    listed = s3.client("s3").list_objects_v2(Bucket=BUCKET)
    return any("/done/" in entry["Key"] for entry in listed.get("Contents", ()))


def test_logs_names_the_command_whose_output_died_with_its_host(
    tmp_path: Path, s3: Endpoint
) -> None:
    folder = tmp_path / "yard"
    folder.mkdir()
    with start_endpoint(tmp_path / "endpoint") as endpoint:
        endpoint.queue("spot", endpoint.environment("spot-fleet"))
        lab = Lab(folder, endpoint)
        lab.environ["AWS_ENDPOINT_URL_S3"] = s3.url
        lab.write("pipeline.yaml", PIPELINE.format(s3=s3.url, folder=folder))
        lab.write("job.sh", JOB)
        run = lab.run("--detach")
        until((folder / "begun").exists, bool)
        # It reads nothing more, and its pipes stay open, as those of a process that is being
        # killed do for a while.
        endpoint.process.send_signal(signal.SIGSTOP)
        (folder / "go").touch()
        until((folder / "ran").exists, bool)
    # The worker goes on until the next endpoint ends it.
    until(lambda: has_success_record(s3), bool)

    with start_endpoint(tmp_path / "endpoint") as lab.endpoint:
        lab.environ.update(lab.endpoint.variables)
        assert lab.ended(run) == "SUCCEEDED"
        assert (folder / "ran").read_text() == "x\n"
        assert lab("logs", run).stdout == (
            "batchyard-worker: command 0 succeeded earlier and is not run again; "
            "if its host died, the end of its output may be missing\n"
        )
