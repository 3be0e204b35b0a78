"""The command as it is used, with the made-up results of the unit tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import prestarted

#: one small, quick operation that needs nothing but NumPy
QUICK = ("bench", "run", "--device", "cpu", "--quick", "--only", "triad", "--out", "out")

#: sleeps at size 2, once there is a file `sleeping`, so that a test can stop it in the middle
SLOW = """
import pathlib
import time
import numpy as np
from batchyard.bench import Candidate, Workload


def work(kit, size):
    def call(x):
        if size > 1:
            pathlib.Path("sleeping").touch()
            while True:  # A signal just before a sleep does not end it.
                time.sleep(0.05)
        return x
    return call


WORKLOAD = Workload(
    name="slow", title="Slow", sizes=(1, 2), inputs=lambda size, rng: {"x": rng.random(size)},
    reference=lambda size, arrays: arrays["x"], candidates=(Candidate("", "numpy", work),),
)
"""


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "batchyard", *args]


def batchyard(
    folder: Path, *args: str, code: int = 0, **kwargs: Any
) -> subprocess.CompletedProcess[str]:
    done = prestarted.run(
        command(*args), cwd=folder, capture_output=True, text=True, timeout=300, **kwargs
    )
    message = f"batchyard {' '.join(args)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, message
    assert "Traceback" not in done.stderr, message
    return done


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
