"""The worker runs where Python is 3.10 and nothing of ours is but it, ``shard`` and ``s3_layout``.

On a real Python 3.10 it runs in tests/worker/test_worker_python_3_10.py.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import batchyard

ROOT = Path(batchyard.__file__).parent
SHARED = [
    ROOT / name
    for name in (
        *("__init__.py", "quick_dataclasses.py", "blocks.py", "shard.py", "child_patterns.py"),
        *("s3_layout.py", "service_models.py"),
    )
]
FILES = [*SHARED, *sorted((ROOT / "worker").glob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_its_syntax_is_that_of_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))


def answer(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(ROOT.parent), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [python, *arguments], env=environ, capture_output=True, text=True, timeout=300
    )


def test_a_mistake_in_its_variables_is_told_without_boto3_or_the_rest_of_ours() -> None:
    script = "import sys, batchyard.worker.main as m; m.run({}); print(*sys.modules)"
    done = answer(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert "BATCHYARD_ORDERS is not set" in done.stderr
    loaded = set(done.stdout.split())
    ours = {
        name
        for name in loaded
        if name.startswith("batchyard.") and not name.startswith("batchyard.worker")
    }
    shared = (
        *("quick_dataclasses", "blocks", "shard", "child_patterns", "s3_layout"),
        "service_models",
        *("sampling", "sampling.samples", "sampling.processes", "sampling.sampler"),
        "sampling.gpu_devices",
    )
    assert ours == {f"batchyard.{name}" for name in shared}
    assert "ctypes" not in loaded
    assert "boto3" not in loaded
