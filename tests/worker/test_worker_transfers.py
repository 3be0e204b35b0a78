"""Transfers while connections break: what is tried again, what is given up, what stays on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from cutting_proxy import cutting
from worker_scene import BUCKET, Scene

from batchyard.worker.errors import EXIT_MISSING, EXIT_NAME, EXIT_RETRY, WorkerError
from batchyard.worker.orders import Place
from batchyard.worker.s3 import Bucket
from batchyard.worker.transfers import FileTransfer, OutOfTimeError, Transfers


def client(scene: Scene, url: str) -> Any:
    """One that repeats nothing by itself."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="batchyard",
        aws_secret_access_key="batchyard",
        config=Config(retries={"total_max_attempts": 1}),
    )


def never() -> bool:
    return False


def listed(scene: Scene, folder: Path) -> list[FileTransfer]:
    found = Bucket(scene.s3).list(Place(BUCKET, f"{scene.root}ws/"), "list")
    return [
        FileTransfer(Place(BUCKET, one.key), str(folder / Path(one.key).name), one.size, one.etag)
        for one in found
    ]


def breaking(times: int) -> Callable[[int, bytes, int], bool]:
    """Cuts the first connections as soon as they are used."""
    return lambda number, to_server, to_client: number > times or not to_server


def test_what_broke_is_tried_again_after_a_pause(scene: Scene, tmp_path: Path) -> None:
    data = {str(n): os.urandom(50_000) for n in range(5)}
    for name, content in data.items():
        scene.put(f"ws/{name}", content)
    slept: list[float] = []
    with cutting(scene.endpoint.url, breaking(7)) as proxy:
        Transfers(client(scene, proxy.url), slept.append).download(
            listed(scene, tmp_path / "in"), never
        )
    assert proxy.cuts == 7
    assert {path.name: path.read_bytes() for path in (tmp_path / "in").iterdir()} == data
    assert sum(slept) > 1


def test_uploads_are_tried_again_too(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data := os.urandom(17 * 1024 * 1024))
    with cutting(scene.endpoint.url, breaking(2)) as proxy:
        move = FileTransfer(Place(BUCKET, f"{scene.root}ws/a"), str(tmp_path / "a"))
        Transfers(client(scene, proxy.url), lambda _: None).upload([move], never)
    assert scene.get("ws/a") == data


def test_what_stays_broken_is_given_up_and_asks_for_another_attempt(
    scene: Scene, tmp_path: Path
) -> None:
    scene.put("ws/a", b"x")
    with (
        cutting(scene.endpoint.url, breaking(1000)) as proxy,
        pytest.raises(WorkerError, match=f"could not download s3://{BUCKET}/") as caught,
    ):
        Transfers(client(scene, proxy.url), lambda _: None).download(
            listed(scene, tmp_path / "in"), never
        )
    assert caught.value.exit_code == EXIT_RETRY
    assert list((tmp_path / "in").iterdir()) == []


def test_what_is_wrong_for_good_is_not_tried_again(scene: Scene, tmp_path: Path) -> None:
    slept: list[float] = []
    transfers = Transfers(scene.s3, slept.append)
    with pytest.raises(WorkerError, match="it does not exist") as caught:
        transfers.download(
            [FileTransfer(Place(BUCKET, "no/such/key"), str(tmp_path / "a"), 5, '"0"')], never
        )
    assert caught.value.exit_code == EXIT_MISSING
    scene.put("ws/a", b"x")
    (move,) = listed(scene, tmp_path)
    with pytest.raises(WorkerError, match="File name too long") as caught:
        transfers.download(
            [FileTransfer(move.place, str(tmp_path / ("n" * 300)), move.size, move.etag)], never
        )
    assert caught.value.exit_code == EXIT_NAME
    assert slept == []


@pytest.mark.parametrize(
    ("before", "after"), [(b"one" * 7_000_000, b"two" * 7_000_000), (b"short", b"longer")]
)
def test_an_object_that_was_replaced_since_it_was_listed_is_not_mixed_up(
    scene: Scene, tmp_path: Path, before: bytes, after: bytes
) -> None:
    scene.put("ws/a", before)
    (move,) = listed(scene, tmp_path / "in")
    scene.put("ws/a", after)
    with pytest.raises(WorkerError, match="it was replaced meanwhile") as caught:
        Transfers(scene.s3, lambda _: None).download([move], never)
    assert caught.value.exit_code == EXIT_RETRY
    assert list((tmp_path / "in").iterdir()) == []


def test_no_time_is_no_time(scene: Scene, tmp_path: Path) -> None:
    scene.put("ws/a", b"x")
    with pytest.raises(OutOfTimeError):
        Transfers(scene.s3).download(listed(scene, tmp_path), lambda: True)
    Transfers(scene.s3).download([], lambda: True)


@pytest.mark.slow
def test_more_files_than_are_under_way_at_once(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for n in range(150):
        (tmp_path / f"out/{n}").write_text(str(n))
    moves = [
        FileTransfer(Place(BUCKET, f"{scene.root}ws/{n}"), str(tmp_path / f"out/{n}"))
        for n in range(150)
    ]
    transfers = Transfers(scene.s3)
    transfers.upload(moves, never)
    transfers.download(listed(scene, tmp_path / "in"), never)
    assert {path.name: path.read_text() for path in (tmp_path / "in").iterdir()} == {
        str(n): str(n) for n in range(150)
    }
