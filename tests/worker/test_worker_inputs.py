"""Which inputs a child fetches, and with how many requests."""

from __future__ import annotations

import hashlib
import json
import subprocess
import urllib.request
from typing import Any

import pytest
from worker_scene import BUCKET, Scene

#: orders, success records, and the objects that earlier steps have written
REQUESTS_BESIDE_FILES = 3


def count_gets(scene: Scene) -> int:
    """Return the number of GET requests that the endpoint has had for S3, lists among them."""
    with urllib.request.urlopen(f"{scene.endpoint.url}/_batchyard/calls") as answer:
        return int(json.load(answer).get("s3:GET", 0))


def take_along(scene: Scene, *files: tuple[str, bytes]) -> dict[str, Any]:
    """Store files by their content, and return the orders about them."""
    entries = []
    for path, data in files:
        sha256 = hashlib.sha256(data).hexdigest()
        scene.put(f"content/{sha256}", data)
        entries.append([path, sha256, len(data)])
    content = f"s3://{BUCKET}/{scene.root}content/"
    return {"format": 2, "files": entries, "content": content}


def run_child(scene: Scene, address: str, index: int) -> str:
    """Run the worker for one child of an array, and return what its commands printed."""
    worker = scene.direct(address, AWS_BATCH_JOB_ARRAY_INDEX=str(index))
    try:
        stdout, stderr = worker.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        worker.kill()
        raise
    assert worker.returncode == 0, stderr
    return stdout


def test_a_child_fetches_its_own_files_with_few_requests(scene: Scene) -> None:
    commands = [f"cat raw/{n} made/{n}.txt code.py; ls raw made | wc -l" for n in range(6)]
    taken = [(f"raw/{n}", b"raw %d\n" % n) for n in range(6)]
    for n in range(6):
        scene.put(f"ws/made/{n}.txt", b"made %d\n" % n)
        scene.put(f"ws/other/{n}.txt", b"")
    address = scene.orders(
        commands,
        size=3,
        inline=True,
        inputs=["${command.cat}", "${command.2}", "code.py"],
        made_inputs=["${command.2}"],
        **take_along(scene, *taken, ("code.py", b"code\n")),
    )
    before = count_gets(scene)
    printed = run_child(scene, address, 1)
    assert printed.splitlines() == [
        *("raw 2", "made 2", "code", "7"),
        *("raw 3", "made 3", "code", "7"),
    ]
    assert count_gets(scene) - before <= 5 + REQUESTS_BESIDE_FILES


def test_the_index_is_in_inputs_outputs_and_checkpoints(scene: Scene) -> None:
    taken = [(f"raw/{n}/{name}", b"x") for n in (1, 12) for name in ("a", "b")]
    address = scene.orders(
        size=20,
        command="ls -d raw/*/*; echo new > out-1.txt; echo new > out-12.txt",
        command_count=20,
        inputs=["raw/${index}/**"],
        outputs=["out-${index}.txt"],
        **take_along(scene, *taken),
    )
    assert run_child(scene, address, 12).split() == ["raw/12/a", "raw/12/b"]
    assert scene.names("ws/") == ["out-12.txt"]


def test_what_a_step_wrote_goes_before_what_was_taken_along(scene: Scene) -> None:
    scene.put("ws/state", b"written\n")
    orders = {
        "inputs": ["state", "seed"],
        **take_along(scene, ("state", b"taken\n"), ("seed", b"seed\n")),
    }
    address = scene.orders(["cat state seed"], made_inputs=["state"], **orders)
    assert run_child(scene, address, 0) == "written\nseed\n"


@pytest.mark.parametrize(("record", "state"), [("0000000", "written\n"), ("none", "taken\n")])
def test_only_a_later_attempt_has_what_the_child_wrote_itself(
    scene: Scene, record: str, state: str
) -> None:
    scene.put("ws/state", b"written\n")
    scene.put(f"done/s/{record}", b"{}")
    address = scene.orders(
        ["true", "cat state"],
        inputs=["state"],
        own_inputs=["state"],
        **take_along(scene, ("state", b"taken\n")),
    )
    assert run_child(scene, address, 0) == state


def test_many_files_have_a_list_of_which_the_child_reads_its_part(scene: Scene) -> None:
    orders = take_along(scene, *((f"raw/{n:03d}", b"%d\n" % n) for n in range(30)))
    lines = [json.dumps(entry).encode() + b"\n" for entry in orders.pop("files")]
    blocks, start = [], 0
    for first in range(0, 30, 10):
        stop = start + sum(map(len, lines[first : first + 10]))
        blocks.append([f"raw/{first:03d}", start, stop])
        start = stop
    scene.put("files.jsonl", b"".join(lines))
    address = scene.orders(
        ["cat raw/*"],
        inputs=["raw/01[89]", "raw/029"],
        file_list=f"s3://{BUCKET}/{scene.root}files.jsonl",
        file_blocks=blocks,
        **orders,
    )
    assert run_child(scene, address, 0) == "18\n19\n29\n"


def test_a_command_without_the_word_ends_the_attempt_with_a_sentence(scene: Scene) -> None:
    address = scene.orders(["cat raw"], inputs=["${command.7}"], format=2)
    worker = scene.direct(address)
    _, stderr = worker.communicate(timeout=300)
    assert worker.returncode == 78 and "`cat raw` has no word 7" in stderr
