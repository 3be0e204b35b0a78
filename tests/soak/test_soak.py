"""The soak itself, for half a minute: `make soak` runs it for long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_half_a_minute_of_the_soak() -> None:
    soak = Path(__file__).with_name("soak.py")
    done = subprocess.run(
        [sys.executable, str(soak), "--minutes", "0.5", "--seed", "1", "--at-once", "3"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "| violations | 0 |" in done.stdout
