"""One real endpoint for all tests of the worker, and a scene of its own for each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator"))

from emulator_endpoint import Endpoint
from worker_scene import Scene, name_of


@pytest.fixture(scope="session")
def worker_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    it = Endpoint(tmp_path_factory.mktemp("endpoint"), "--cpus", "8", "--memory", "16GiB")
    try:
        it.queue("queue", it.environment("cpu"))
        it.client("s3").create_bucket(Bucket="yard")
        yield it
    finally:
        it.stop()


@pytest.fixture
def scene(worker_endpoint: Endpoint, tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene(worker_endpoint, tmp_path, name_of(request.node.name))
