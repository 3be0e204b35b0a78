"""A step whose inputs match no file is refused before anything is recorded or submitted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cloud_lab import BUCKET, Lab

PIPELINE = """\
name: shop
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: cut, commands: ["cat raw/* > cut.txt"], inputs: ["raw/*.txt"], outputs: [cut.txt]}
  - {name: middle, needs: [cut], command: echo middle}
  - {name: count, needs: [middle], command: wc -l cut.txt, inputs: ["cut.*", limit.txt]}
"""
RUN = ("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")


@pytest.mark.slow
def test_inputs_that_nothing_gives(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    lab.write("raws/1.txt", "line\n")
    said = lab(*RUN, code=2).stderr
    assert (
        "step 'cut': no file here matches the input raw/*.txt, and no step before it gives it"
        in said
    )
    assert "step 'count': no file here matches the input limit.txt" in said and "cut.*" not in said
    assert str(lab.folder) in said
    program = (
        "from batchyard import *; "
        "Pipeline.load('pipeline.yaml').run(engine='aws', environment='lab')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=lab.folder,
        env=lab.environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode and "InputError" in done.stderr and "no file here matches" in done.stderr
    assert lab.json("runs") == [] and not [
        name for name in lab.job_names() if name.startswith("shop-")
    ]

    (lab.folder / "raws").rename(lab.folder / "raw")
    lab.write("limit.txt", "3\n")
    assert lab.ended(lab.run()) == "SUCCEEDED"


@pytest.mark.slow
def test_a_workspace_in_s3_is_not_looked_into(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    for name in ("raw/1.txt", "limit.txt"):
        lab.endpoint.client("s3").put_object(Bucket=BUCKET, Key=f"data/{name}", Body=b"line\n")
    assert lab.ended(lab.run("--workspace", f"s3://{BUCKET}/data/")) == "SUCCEEDED"


@pytest.mark.slow
def test_odd_files_are_a_sentence_before_anything_is_recorded(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    lab.write("limit.txt", "3\n")
    lab.write("raw/1.txt", "line\n")
    os.mkfifo(lab.folder / "raw" / "pipe.txt")
    (lab.folder / "raw" / "old.txt").symlink_to("gone")
    Path(os.fsdecode(os.fsencode(lab.folder) + b"/raw/b\xe4d.txt")).write_text("line\n")
    before = lab.job_names()
    said = lab(*RUN, code=2).stderr
    assert (
        "raw/old.txt: a link to gone, which does not exist" in said
        and "raw/b\\xe4d.txt: its name" in said
    )
    assert lab.json("runs") == [] and lab.job_names() == before
    for path in (lab.folder / "raw").glob("[ob]*"):
        path.unlink()
    assert lab.ended(lab.run()) == "SUCCEEDED"


COUNTING = """\
name: counting
image: busybox
defaults: {memory: 256MiB}
params: {n: 4}
steps:
  - name: make
    command: mkdir -p out; for i in $(seq ${params.n}); do echo $i > out/$i.txt; done
    outputs: ["out/*.txt"]
  - {name: total, needs: [make], command: ls out | wc -l > total.txt; grep ok state,
     inputs: ["out/*.txt", state], outputs: [total.txt]}
"""


def read_total(lab: Lab) -> int:
    return int((lab.folder / "total.txt").read_text())


@pytest.mark.parametrize(
    "first_run",
    [
        pytest.param(("run", "pipeline.yaml", "--runner", "process"), id="local"),
        # Each run on AWS takes seconds.
        pytest.param(RUN, id="aws", marks=pytest.mark.slow),
    ],
)
def test_outputs_of_an_earlier_run_are_no_inputs_of_the_next(
    lab: Lab, calm: None, first_run: tuple[str, ...]
) -> None:
    lab.write("pipeline.yaml", COUNTING)
    lab.write("state", "ok")
    lab(*first_run)
    assert read_total(lab) == 4
    done = lab(*RUN, "--set", "n=2")
    assert read_total(lab) == 2
    assert "total: 4 files not sent (out/1.txt, ...): an earlier step of this run" in done.stderr


@pytest.mark.slow
def test_a_retry_takes_no_outputs_of_finished_steps_from_here(lab: Lab) -> None:
    lab.write("pipeline.yaml", COUNTING)
    lab.write("state", "not yet")
    run = lab.run("--set", "n=3", code=1)
    lab.write("state", "ok")
    lab.write("out/4.txt", "of another run")
    lab("retry", run)
    assert read_total(lab) == 3
    # Without the step that makes them, they are taken from here.
    lab.run("--only", "total")
    assert read_total(lab) == 4
