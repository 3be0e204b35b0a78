"""Endpoints for the tests of this folder: see emulator_endpoint.py."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import Endpoint


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """One for all tests of a module: 8 vCPUs, 2 pretended GPUs, an environment `cpu` and a queue
    `queue` on it."""
    it = Endpoint(
        tmp_path_factory.mktemp("endpoint"), "--cpus", "8", "--memory", "16GiB", "--gpus", "2"
    )
    try:
        it.queue("queue", it.environment("cpu"))
        yield it
    finally:
        it.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Endpoint]]:
    """Starts endpoints of the test's own; a second one in the same folder finds the first one's
    state."""
    started: list[Endpoint] = []

    def begin(*arguments: str, folder: Path = tmp_path, **options: Any) -> Endpoint:
        started.append(Endpoint(folder, *arguments, **options))
        return started[-1]

    yield begin
    for endpoint in started:
        endpoint.stop(signal.SIGKILL)
