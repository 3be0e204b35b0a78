"""`fetch` names `--to DIR` when the workspace folder of the run is not on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cloud_lab import BUCKET, Lab

PIPELINE = """\
name: makes
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: a, commands: ["echo made > a.txt"], outputs: [a.txt]}
"""


@pytest.fixture
def run(lab: Lab) -> str:
    lab.write("pipeline.yaml", PIPELINE)
    run = lab.run("--detach")
    assert lab.ended(run) == "SUCCEEDED"
    return run


def test_from_another_machine(lab: Lab, run: str, tmp_path: Path) -> None:
    other = Lab(tmp_path / "other", lab.endpoint)
    # The folder that the record names is there on the machine that began the run, and nowhere else.
    lab.folder.rename(tmp_path / "gone")
    said = other("fetch", run, code=2).stderr
    assert (
        "there are no runs in" in said
        and "--env NAME finds a run on AWS that another machine began" in said
    )
    said = other("fetch", run, "--env", "lab", code=2).stderr
    assert f"run {run} was begun on another machine, and its workspace is there" in said
    assert "name a folder: --to DIR" in said
    other("fetch", run, "--to", "here")
    assert (other.folder / "here/a.txt").read_text() == "made\n"
    # Followed to its end from there, it is not fetched into nowhere without a word.
    said = other("resume", run).stderr
    assert f"`batchyard fetch {run} --to DIR` downloads its results" in said
    (tmp_path / "gone").rename(lab.folder)
    assert "fetched 1 output file into" in lab("resume", run).stderr


@pytest.mark.slow
def test_from_a_copy_of_the_folder(lab: Lab, run: str, tmp_path: Path) -> None:
    """The run's record names a folder that no longer exists; `fetch` must not create it."""
    shutil.copytree(lab.folder, tmp_path / "copy")
    lab.folder.rename(tmp_path / "gone")
    other = Lab(tmp_path / "copy", lab.endpoint)
    said = other("fetch", run, code=2).stderr
    assert (
        f"the workspace of run {run} is not here: there is no folder {lab.folder}" in said
        and "--to DIR" in said
    )
    assert not lab.folder.exists()
    script = (
        f"from batchyard import Run\nrun = Run.find({run!r})\n"
        "print(run.fetch(to='here'))\nrun.fetch()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=other.folder,
        env=other.environ,
        capture_output=True,
        text=True,
    )
    assert (
        done.stdout == "1\n"
        and f"InputError: the workspace of run {run} is not here" in done.stderr
    )
    assert not lab.folder.exists()
    other("fetch", run, "--to", ".")
    assert (other.folder / "a.txt").read_text() == "made\n"
    (tmp_path / "gone").rename(lab.folder)


@pytest.mark.slow
def test_a_workspace_in_s3_is_told_apart(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    run = lab.run("--workspace", f"s3://{BUCKET}/shared")
    said = lab("fetch", run, code=2).stderr
    assert f"the workspace of run {run} is in S3" in said and "--to DIR" in said
    lab("fetch", run, "--to", "here")
    assert (lab.folder / "here/a.txt").read_text() == "made\n"
