"""examples/reconstruction gives the same bytes on this machine, on AWS Batch and on ECS.

On AWS the files of the steps go through S3.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cloud_lab import ENVIRONMENTS, TASKS, Lab, add_cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "reconstruction"
SMALL = [f"--set={pair}" for pair in ("slices=24", "size=128", "angles=180")]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "environment"), [("aws", "lab"), ("ecs", "tasks")])
def test_the_reconstruction_is_the_same_to_the_byte(
    lab: Lab, engine: str, environment: str
) -> None:
    pytest.importorskip("matplotlib", reason="the example needs batchyard[examples]")
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + TASKS)
    folders = [lab.folder / name for name in ("here", "there")]
    for folder in folders:
        shutil.copytree(
            EXAMPLE, folder, ignore=shutil.ignore_patterns("work", "__pycache__", ".batchyard")
        )
    lab("run", "here/pipeline.yaml", "--no-gpu", *SMALL)
    (folders[1] / ".batchyard").mkdir()
    shutil.copy(lab.folder / ".batchyard" / "environments.yaml", folders[1] / ".batchyard")
    add_cluster(lab.endpoint)
    place = ("--engine", engine, "--env", environment)
    done = lab("run", "there/pipeline.yaml", *place, "--no-gpu", *SMALL)
    assert "SUCCEEDED" in done.stdout
    here, there = (files_of(folder / "work" / "slices") for folder in folders)
    assert len(here) == 48 and here == there
    assert files_of(folders[0] / "work" / "filtered") == files_of(folders[1] / "work" / "filtered")
    assert (folders[1] / "work" / "figure" / "reconstruction.png").exists()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
