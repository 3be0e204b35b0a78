"""cloudknot from PyPI: stacks of its own, and a function that is mapped as an array job."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from peer_clients import HERE, Peer, said


def run_map(peer: Peer, *numbers: str) -> str:
    shutil.copy(HERE / "workflows" / "cloudknot_map.py", peer.folder)
    done = peer.run("python", "cloudknot_map.py", *numbers)
    assert done.returncode == 0, said(done)
    return done.stdout


def test_a_function_is_mapped_and_all_stacks_are_deleted(begin: Callable[..., Peer]) -> None:
    peer = begin("cloudknot", "process")
    lines = run_map(peer, "1", "2", "3").splitlines()
    assert lines == ["squares: [1, 4, 9]", "status: SUCCEEDED"]
    stacks = peer.endpoint.client("cloudformation").describe_stacks()["Stacks"]
    assert [stack["StackName"] for stack in stacks] == []
