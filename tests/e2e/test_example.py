"""examples/reconstruction through the command line, to its picture."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from command_yard import Yard

EXAMPLE = Path(__file__).parents[2] / "examples" / "reconstruction"


@pytest.mark.slow
def test_the_reconstruction_recovers_the_centre_and_the_phantom(yard: Yard) -> None:
    pytest.importorskip("matplotlib", reason="the example needs batchyard[examples]")
    shutil.copytree(
        EXAMPLE,
        yard.folder,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("work", "__pycache__"),
    )
    # `python` in the commands is the interpreter under test.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    small = [f"--set={pair}" for pair in ("slices=24", "size=128", "angles=180")]
    done = yard("run", "pipeline.yaml", "--no-gpu", *small, env=os.environ | {"PATH": path})
    assert "SUCCEEDED" in done.stdout
    summary = json.loads((yard.folder / "work" / "figure" / "summary.json").read_text())
    assert abs(summary["found_shift_px"] - summary["true_shift_px"]) < 0.1
    assert summary["rmse_per_cm"] < 0.06
    # The wrong centre would show: what calibration found is what makes the picture.
    assert summary["shown_slice_uncalibrated_rmse_per_cm"] > 3 * summary["shown_slice_rmse_per_cm"]
    slices = sorted((yard.folder / "work").rglob("*.png"))
    assert len(slices) >= 24 + 1
    assert all(png.read_bytes().startswith(b"\x89PNG") for png in slices)
