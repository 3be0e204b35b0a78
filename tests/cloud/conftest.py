"""Endpoints and folders for the tests of this folder: see cloud_lab.py."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator"))
sys.path.insert(0, str(Path(__file__).parent))

from cloud_lab import Lab, opened, set_faults
from emulator_endpoint import UNKIND, Endpoint


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """One for all tests of a module: 8 vCPUs, the queues `spot` and `steady`."""
    it = opened(
        tmp_path_factory.mktemp("endpoint"), "--cpus", "8", "--memory", "16GiB", "--gpus", "1"
    )
    try:
        yield it
    finally:
        it.stop(signal.SIGKILL)


@pytest.fixture
def calm(endpoint: Endpoint) -> Iterator[None]:
    """No faults during a test that counts calls."""
    set_faults(endpoint, "")
    yield
    set_faults(endpoint, UNKIND[1])


@pytest.fixture
def lab(tmp_path: Path, endpoint: Endpoint) -> Iterator[Lab]:
    yield from a_lab(tmp_path, endpoint)


def a_lab(folder: Path, endpoint: Endpoint) -> Iterator[Lab]:
    # Spaces and letters beyond ASCII are ordinary in people's folders.
    where = folder / "a yärd"
    where.mkdir()
    it = Lab(where, endpoint)
    yield it
    for process in it.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
