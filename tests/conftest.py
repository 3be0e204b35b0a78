"""Fixtures that every test may use. Tests run the real command in a clean environment, in folders of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from command_yard import Yard

# A busy machine is no fault of what is tested: examples may take their time, to be made and to be tried.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For a change that is to land, the same examples each time: what another seed finds is a finding, not a reason to wait.
settings.register_profile("landing", settings.get_profile("patient"), derandomize=True)
settings.load_profile("patient")

# What a shell has started in the background ignores Ctrl-C, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """A Docker engine that answers. Where none does the test is skipped, unless the environment requires one."""
    try:
        answer = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=60)
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
