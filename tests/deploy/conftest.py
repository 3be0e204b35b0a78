"""A real endpoint for the stacks, and the real command in a folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator"))
sys.path.insert(0, str(Path(__file__).parents[1] / "infra"))

from emulator_endpoint import Endpoint
from site_of_stacks import Site


@pytest.fixture(scope="session")
def stacks_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    it = Endpoint(
        tmp_path_factory.mktemp("endpoint"), "--cpus", "4", "--memory", "8GiB", "--gpus", "2"
    )
    try:
        yield it
    finally:
        it.stop()


@pytest.fixture
def site(stacks_endpoint: Endpoint, tmp_path: Path) -> Site:
    return Site(stacks_endpoint, tmp_path)
