"""A folder, and the batchyard command in it: what most tests of the command line use."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prestarted
from pauses import pause


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

    def __call__(
        self, *args: str, code: int | None = 0, **kwargs: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end; fails unless it exits with ``code`` (None: any)."""
        done = prestarted.run(
            self.command(*args),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            **kwargs,
        )
        said = f"batchyard {' '.join(args)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, said
        assert "Traceback" not in done.stderr, said
        return done

    def json(self, *args: str, code: int | None = 0) -> Any:
        return json.loads(self(*args, "--json", code=code).stdout)

    def start(self, *args: str, **kwargs: Any) -> subprocess.Popen[bytes]:
        """Starts the command and returns; whatever is left of it is killed after the test."""
        process = prestarted.Popen(
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

    def wait_for(self, condition: Callable[[], object], seconds: float = 300) -> None:
        began = time.monotonic()
        while not condition():
            assert time.monotonic() < began + seconds, "it did not happen in time"
            pause(began)
