"""`emulate --volume` and a definition's volumes, in real containers; and what is refused before
anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import Endpoint

from command_yard import Yard

#: made by .ci/docker-engine
IMAGE = "batchyard-test:latest"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--volume", "/tmp"], "--volume is for jobs that are containers"),
        (
            ["--runner", "docker", "--volume", "/tmp", "--volume", "/no/such"],
            "/no/such does not exist",
        ),
        (
            ["--runner", "docker", "--volume", "data:/data"],
            "'data:/data' is not of the form HOST[:CONTAINER][:ro]",
        ),
        (
            ["--runner", "docker", "--volume", "/tmp:/x", "--volume", "/usr:/x"],
            "/tmp is already mounted at /x",
        ),
    ],
)
def test_what_cannot_be_given_is_said(yard: Yard, flags: list[str], message: str) -> None:
    done = yard("emulate", "--port", "0", *flags, code=2)
    assert message in done.stderr and done.stdout == ""
    assert not (yard.folder / ".batchyard").exists()


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this machine, with spaces, letters beyond ASCII and a comma in its name."""
    it = tmp_path_factory.mktemp("disks") / "a dïsk, mine"
    it.mkdir()
    (it / "given").write_text("from outside\n")
    return it


@pytest.fixture(scope="module")
def boxes(
    tmp_path_factory: pytest.TempPathFactory, docker_engine: None, disk: Path
) -> Iterator[Endpoint]:
    volumes = [str(disk), f"{disk}:/kept:ro", f"{disk}:/shared"]
    flags = [word for volume in volumes for word in ("--volume", volume)]
    it = Endpoint(
        tmp_path_factory.mktemp("boxes"),
        "--runner",
        "docker",
        "--cpus",
        "4",
        "--memory",
        "4GiB",
        *flags,
    )
    try:
        it.queue("queue", it.environment("cpu"))
        yield it
    finally:
        it.stop()


def ran(boxes: Endpoint, script: str, **container: Any) -> Any:
    definition = boxes.definition(
        "boxed", "sh", "-c", script, container={"image": IMAGE, **container}
    )
    return boxes.wait(boxes.submit(definition))


@pytest.mark.docker
def test_every_container_has_it_under_its_own_path_and_under_another(
    boxes: Endpoint, disk: Path
) -> None:
    job = ran(boxes, f"cat '{disk}/given' && echo from inside > /shared/written")
    assert job["status"] == "SUCCEEDED", job
    assert boxes.output(job["jobId"]) == ["from outside"]
    assert (disk / "written").read_text() == "from inside\n"


@pytest.mark.docker
def test_read_only_is_read_only(boxes: Endpoint, disk: Path) -> None:
    job = ran(boxes, "cat /kept/given; touch /kept/never && exit 3; exit 0")
    assert job["status"] == "SUCCEEDED", job
    assert "from outside" in boxes.output(job["jobId"])
    assert not (disk / "never").exists()


@pytest.mark.docker
def test_a_job_that_mounts_efs_fails_with_the_reason(boxes: Endpoint) -> None:
    """On AWS the file system would be there; an empty folder in its place would make a job
    succeed with nothing."""
    volumes = [{"name": "efs", "efsVolumeConfiguration": {"fileSystemId": "fs-1"}}]
    job = ran(
        boxes,
        "true",
        volumes=volumes,
        mountPoints=[{"sourceVolume": "efs", "containerPath": "/efs"}],
    )
    assert (job["status"], job["statusReason"]) == ("FAILED", "Task failed to start")
    assert job["container"]["reason"].startswith(
        "ResourceInitializationError: this endpoint has no EFS"
    )
    assert "--volume HOST:/efs" in job["container"]["reason"]


@pytest.mark.docker
def test_a_volume_stands_for_a_file_system_at_the_same_path(boxes: Endpoint) -> None:
    volumes = [{"name": "efs", "efsVolumeConfiguration": {"fileSystemId": "fs-1"}}]
    job = ran(
        boxes,
        "cat /shared/given",
        volumes=volumes,
        mountPoints=[{"sourceVolume": "efs", "containerPath": "/shared"}],
    )
    assert job["status"] == "SUCCEEDED", job
    assert boxes.output(job["jobId"]) == ["from outside"]


@pytest.mark.docker
def test_a_host_volume_that_is_not_there_fails_with_the_reason(
    boxes: Endpoint, tmp_path: Path
) -> None:
    volumes = [{"name": "disk", "host": {"sourcePath": os.fspath(tmp_path / "missing")}}]
    job = ran(
        boxes,
        "true",
        volumes=volumes,
        mountPoints=[{"sourceVolume": "disk", "containerPath": "/disk"}],
    )
    assert (job["status"], job["statusReason"]) == ("FAILED", "Task failed to start")
    assert job["container"]["reason"].startswith("CannotCreateContainerError: ")
    assert "missing" in job["container"]["reason"]
