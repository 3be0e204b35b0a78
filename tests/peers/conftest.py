"""Clients of other projects against a real endpoint, run by `make test-peers`.

pytest collects these tests only if this folder is named. Each client is installed from PyPI into
its own environment, and .ci/peers-image builds the image of the jobs: both are slow and need the
network.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The import below (E402) needs the folder of the emulator's tests on the path.
sys.path.insert(0, str(HERE.parent / "emulator"))

from peer_clients import IMAGE, Peer, make_image, opened  # noqa: E402


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [
        Path(config.invocation_params.dir, argument.partition("::")[0]).resolve()
        for argument in config.args
    ]
    return None if any(path.is_relative_to(HERE) for path in named) else True


@pytest.fixture(scope="session")
def image(docker_engine: None) -> str:
    """The image that jobs of redun and Metaflow run in, made if it is not there."""
    made = make_image()
    if made.returncode and os.environ.get("BATCHYARD_REQUIRE_DOCKER"):
        pytest.fail(made.stderr)
    if made.returncode:
        pytest.skip(f"no image for their jobs: {made.stderr.strip().splitlines()[-1]}")
    return IMAGE


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Peer]]:
    """Start an endpoint with a queue and a bucket; return a client from PyPI that uses it."""
    with ExitStack() as stack:
        begun: list[Peer] = []

        def start(client: str, runner: str) -> Peer:
            begun.append(stack.enter_context(opened(client, runner, tmp_path)))
            return begun[-1]

        yield start
        for peer in begun:
            # Shown with -rP
            print(
                "operations of Batch that it called:", dict(peer.counted.by_operation.most_common())
            )
