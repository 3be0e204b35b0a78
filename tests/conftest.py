"""Fixtures that every test may use. Tests run the real command in a clean environment, in folders of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("BATCHYARD_", "AWS_")) and not name.startswith("BATCHYARD_REQUIRE_"):
            monkeypatch.delenv(name)


@dataclass
class Yard:
    """A folder, and the batchyard command in it."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def __call__(self, *args: str, code: int | None = 0, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end; fails unless it exits with ``code`` (None: any)."""
        done = subprocess.run(
            self.command(*args), cwd=self.folder, capture_output=True, text=True, timeout=300, **kwargs
        )
        said = f"batchyard {' '.join(args)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, said
        assert "Traceback" not in done.stderr, said
        return done

    def json(self, *args: str, code: int | None = 0) -> Any:
        return json.loads(self(*args, "--json", code=code).stdout)

    def start(self, *args: str, **kwargs: Any) -> subprocess.Popen[bytes]:
        """Starts the command and returns; whatever is left of it is killed after the test."""
        process = subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **kwargs,
        )
        self.started.append(process)
        return process

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "batchyard", *args]

    def wait_for(self, condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)


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
        problem = "" if answer.returncode == 0 else (answer.stderr.strip().splitlines() or ["no answer"])[-1]
    except (OSError, subprocess.TimeoutExpired) as exc:
        problem = str(exc)
    if problem and os.environ.get("BATCHYARD_REQUIRE_DOCKER"):
        pytest.fail(f"a Docker engine is required, and none answers: {problem}")
    if problem:
        pytest.skip(f"no Docker engine answers: {problem}")
