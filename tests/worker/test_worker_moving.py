"""Moving files while connections break: what is tried again, when it is given up, and what is left on disk."""

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

from batchyard.worker.faults import AGAIN, MISSING, NAME, Fault
from batchyard.worker.moving import CutShort, Move, Mover
from batchyard.worker.orders import Place
from batchyard.worker.s3 import Bucket


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


def listed(scene: Scene, folder: Path) -> list[Move]:
    found = Bucket(scene.s3).list(Place(BUCKET, f"{scene.root}ws/"), "list")
    return [
        Move(Place(BUCKET, one.key), str(folder / Path(one.key).name), one.size, one.etag)
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
        Mover(client(scene, proxy.url), slept.append).fetch(listed(scene, tmp_path / "in"), never)
    assert proxy.cuts == 7
    assert {path.name: path.read_bytes() for path in (tmp_path / "in").iterdir()} == data
    assert sum(slept) > 1


def test_uploads_are_tried_again_too(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data := os.urandom(17 * 1024 * 1024))
    with cutting(scene.endpoint.url, breaking(2)) as proxy:
        move = Move(Place(BUCKET, f"{scene.root}ws/a"), str(tmp_path / "a"))
        Mover(client(scene, proxy.url), lambda _: None).store([move], never)
    assert scene.get("ws/a") == data


def test_what_stays_broken_is_given_up_and_asks_for_another_attempt(
    scene: Scene, tmp_path: Path
) -> None:
    scene.put("ws/a", b"x")
    with (
        cutting(scene.endpoint.url, breaking(1000)) as proxy,
        pytest.raises(Fault, match=f"could not download s3://{BUCKET}/") as caught,
    ):
        Mover(client(scene, proxy.url), lambda _: None).fetch(listed(scene, tmp_path / "in"), never)
    assert caught.value.exit_code == AGAIN
    assert list((tmp_path / "in").iterdir()) == []


def test_what_is_wrong_for_good_is_not_tried_again(scene: Scene, tmp_path: Path) -> None:
    slept: list[float] = []
    mover = Mover(scene.s3, slept.append)
    with pytest.raises(Fault, match="it is not there") as caught:
        mover.fetch([Move(Place(BUCKET, "no/such/key"), str(tmp_path / "a"), 5, '"0"')], never)
    assert caught.value.exit_code == MISSING
    scene.put("ws/a", b"x")
    (move,) = listed(scene, tmp_path)
    with pytest.raises(Fault, match="File name too long") as caught:
        mover.fetch([Move(move.place, str(tmp_path / ("n" * 300)), move.size, move.etag)], never)
    assert caught.value.exit_code == NAME
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
    with pytest.raises(Fault, match="it was replaced meanwhile") as caught:
        Mover(scene.s3, lambda _: None).fetch([move], never)
    assert caught.value.exit_code == AGAIN
    assert list((tmp_path / "in").iterdir()) == []


def test_no_time_is_no_time(scene: Scene, tmp_path: Path) -> None:
    scene.put("ws/a", b"x")
    with pytest.raises(CutShort):
        Mover(scene.s3).fetch(listed(scene, tmp_path), lambda: True)
    Mover(scene.s3).fetch([], lambda: True)


def test_more_files_than_are_under_way_at_once(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for n in range(150):
        (tmp_path / f"out/{n}").write_text(str(n))
    moves = [
        Move(Place(BUCKET, f"{scene.root}ws/{n}"), str(tmp_path / f"out/{n}")) for n in range(150)
    ]
    mover = Mover(scene.s3)
    mover.store(moves, never)
    mover.fetch(listed(scene, tmp_path / "in"), never)
    assert {path.name: path.read_text() for path in (tmp_path / "in").iterdir()} == {
        str(n): str(n) for n in range(150)
    }
