"""What containers have of this machine: `emulate --volume`, and the volumes of a job's
definition (facts, 5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.emulator.docker_flags import Volume, create_flags, missing_volume, parse_volumes
from batchyard.errors import InputError

EFS = {"name": "shared", "efsVolumeConfiguration": {"fileSystemId": "fs-1"}}
S3 = {"name": "shared", "s3filesVolumeConfiguration": {"fileSystemArn": "arn:fs-2"}}
HOST = {"name": "shared", "host": {"sourcePath": "/mnt/disk"}}
SCRATCH = {"name": "shared"}


def container(volume: dict[str, Any], path: str = "/data", **mount: Any) -> dict[str, Any]:
    return {
        "volumes": [volume],
        "mountPoints": [{"sourceVolume": "shared", "containerPath": path, **mount}],
    }


def mounts(of: dict[str, Any], *volumes: Volume) -> list[str]:
    flags = create_flags(of, volumes)
    return [flags[n + 1] for n, flag in enumerate(flags) if flag == "--mount"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", Volume("/data", "/data")),
        ("/data:ro", Volume("/data", "/data", is_read_only=True)),
        ("/my data:/data", Volume("/my data", "/data")),
        ("/a:/b:ro", Volume("/a", "/b", is_read_only=True)),
        ("/a/../b/:/c//d/", Volume("/a/../b/", "/c/d")),
        ("/:/host:ro", Volume("/", "/host", is_read_only=True)),
    ],
)
def test_volumes_as_they_are_written(text: str, expected: Volume) -> None:
    assert Volume.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "ro", ":ro", "data", "./data:/data", "/a:b", "/a:", ":/b", "/a:/b:rw", "/a:/b:/c"]
)
def test_volumes_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="is not of the form HOST"):
        Volume.parse(text)


@pytest.mark.parametrize("text", ["/", "/data:/", "/data:/x/..", "/data://:ro"])
def test_the_image_itself_cannot_be_replaced(text: str) -> None:
    with pytest.raises(InputError, match="replace the whole image"):
        Volume.parse(text)


def test_two_cannot_be_at_one_place() -> None:
    assert len(parse_volumes(["/a", "/a:/b"])) == 2
    with pytest.raises(InputError, match="/a is already mounted at /b"):
        parse_volumes(["/a:/b", "/c:/b/"])


def test_every_container_has_them() -> None:
    assert mounts({}, Volume("/my, data", "/data"), Volume("/b", "/b", is_read_only=True)) == [
        'type=bind,"source=/my, data",target=/data',
        "type=bind,source=/b,target=/b,readonly",
    ]


def test_a_definition_has_its_own() -> None:
    assert mounts(container(HOST)) == ["type=bind,source=/mnt/disk,target=/data"]
    assert mounts(container(SCRATCH, readOnly=True)) == ["type=volume,target=/data,readonly"]
    assert mounts(container(HOST), Volume("/b", "/b"))[1:] == ["type=bind,source=/b,target=/b"]


def test_at_the_same_place_they_come_instead_and_stay_read_only() -> None:
    for volume in (HOST, SCRATCH, EFS, S3):
        assert mounts(container(volume, "/data/"), Volume("/b", "/data")) == [
            "type=bind,source=/b,target=/data"
        ]
    read_only = ["type=bind,source=/b,target=/data,readonly"]
    assert mounts(container(HOST, readOnly=True), Volume("/b", "/data")) == read_only


@pytest.mark.parametrize(
    ("volume", "which"),
    [(EFS, "this endpoint has no EFS, so it cannot mount fs-1"), (S3, "arn:fs-2")],
)
def test_what_is_only_on_aws_is_missing_where_nothing_comes_instead(
    volume: dict[str, Any], which: str
) -> None:
    missing = missing_volume(container(volume), [Volume("/b", "/elsewhere")])
    assert missing is not None and missing.startswith("ResourceInitializationError: ")
    assert which in missing and "--volume HOST:/data" in missing
    assert missing_volume(container(volume), [Volume("/b", "/data")]) is None
    # Only what is mounted is wanted.
    assert missing_volume({"volumes": [volume]}) is None


def test_what_this_machine_has_is_not_missing() -> None:
    assert [
        missing_volume(properties) for properties in (container(HOST), container(SCRATCH), {})
    ] == [
        None,
        None,
        None,
    ]
