"""Fixtures for every test: a clean environment, a folder with the command in it, Docker."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import prestarted
from command_yard import Yard

SEED = int(os.environ.get("BATCHYARD_TESTS_SEED", "20261115"))

#: where other processes of pytest find the servers of this one, once there are some
_address = ""

# A busy machine is no fault of the code under test, so an example may take any time.
settings.register_profile(
    "same",
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
# `make check` and `make soak` look for examples that were never tried. What they find becomes an
# @example of the test, so that `make test` tries it every time.
settings.register_profile(
    "search", settings.get_profile("same"), max_examples=300, derandomize=False, print_blob=True
)
settings.load_profile("same")

# A shell makes its background jobs ignore Ctrl-C, and their children inherit that. The tests
# interrupt what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let each process of pytest-xdist start commands from the servers of this one."""
    global _address
    if not _address:
        _address = prestarted.share()
        if node.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            # All tests: the first ones of the endpoint need not wait for these imports.
            prestarted.prepare("endpoint")
    node.workerinput["prestarted"] = _address


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        prestarted.use_shared(config.workerinput["prestarted"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that draw examples, so that they can be selected."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.property)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the thousands of collected tests out of each later garbage collection.

    `batchyard bench` collects garbage before it measures: that took most of the time of its tests.
    Little of what is made while tests are collected is garbage, so none is looked for meanwhile.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        # As `batchyard` itself: with 700, garbage is looked for in every larger document.
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("BATCHYARD_", "AWS_")) and not name.startswith("BATCHYARD_REQUIRE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    # Spaces and letters beyond ASCII are ordinary in people's folders, so they are in ours.
    folder = tmp_path / "a yärd"
    folder.mkdir()
    it = Yard(folder)
    yield it
    for process in it.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture
def dice() -> random.Random:
    """Moments at which tests kill processes: the same each time, others in each round of a soak."""
    print(f"BATCHYARD_TESTS_SEED={SEED}")
    return random.Random(SEED)


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Skip the test without a working Docker engine, or fail it if the environment requires one."""
    try:
        answer = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=300)
        problem = (
            ""
            if answer.returncode == 0
            else (answer.stderr.strip().splitlines() or ["no answer"])[-1]
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        problem = str(exc)
    if problem and os.environ.get("BATCHYARD_REQUIRE_DOCKER"):
        pytest.fail(f"a Docker engine is required, and none answers: {problem}")
    if problem:
        pytest.skip(f"no Docker engine answers: {problem}")
