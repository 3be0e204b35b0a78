"""Spot first, on demand after: children that spot instances did not finish go on, once."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from cloud_lab import Lab, until

PIPELINE = """\
name: moving
image: x
spot: {fallback_after: %s}
defaults: {memory: 64MiB}
steps:
  - name: work
    array: 3
    command: test $AWS_BATCH_JOB_ARRAY_INDEX != 1 -o $AWS_BATCH_JQ_NAME = steady || sleep 600
  - {name: collect, needs: [work], command: 'true'}
"""


def begin(lab: Lab, after: str) -> tuple[str, subprocess.Popen[bytes]]:
    """Start `run` of the pipeline, and return the run's id with the process."""
    lab.write("pipeline.yaml", PIPELINE % after)
    process = lab.start(
        "run", "pipeline.yaml", "--engine", "aws", "--env", "lab", output=subprocess.PIPE
    )
    (path,) = until(lambda: list(lab.folder.glob(".batchyard/runs/moving-*")))
    return path.name, process


def job_of(lab: Lab, run: str) -> Any:
    jobs = lab.patient("batch").list_jobs(
        jobQueue="spot", filters=[{"name": "JOB_NAME", "values": [f"{run}-work"]}]
    )["jobSummaryList"]
    return jobs[0] if jobs else None


def attempts_of(lab: Lab, child: str) -> int:
    (job,) = lab.patient("batch").describe_jobs(jobs=[child])["jobs"]
    return len(job.get("attempts", ()))


def moved_run(output: str, run: str) -> str:
    names = re.findall(r"moving-\d{8}-[0-9a-f]{6}", output)
    (moved,) = {name for name in names if name != run}
    return str(moved)


@pytest.mark.slow
def test_a_child_that_was_reclaimed_twice_goes_on_on_demand(lab: Lab) -> None:
    run, process = begin(lab, "2")
    child = f"{until(lambda: job_of(lab, run))['jobId']}:1"
    for attempt in range(2):
        lab.endpoint.wait(child, "RUNNING")
        until(lambda attempt=attempt: attempts_of(lab, child) == attempt)
        lab("emulate", "reclaim", child, "--notice", "0")
        until(lambda attempt=attempt: attempts_of(lab, child) == attempt + 1)
    output, notes = (text.decode() for text in process.communicate(timeout=300))
    assert process.returncode == 0, notes
    assert "1 child of run" in notes and "(1 reclaimed, 0 without a host)" in notes
    moved = moved_run(notes, run)
    # Only that child is on demand; the step after it is on spot.
    assert lab.job_names("steady") == {f"{moved}-work": 1}
    assert set(lab.jobs_of(moved)) == {f"{moved}-collect"}
    assert f"1 child is on demand: spot instances did not finish them in {run}" in output
    first, second = lab.status(run), lab.status(moved)
    assert first["state"] == "FAILED" and second["state"] == "SUCCEEDED"
    assert first["fallback"] == {"run_id": moved, "reclaimed": 1, "waited": 0}
    assert (second["retry_of"], second["moved_children"]) == (run, 1)
    assert f"went on, on demand, as {moved}" in lab("status", run).stdout
    lab("report", run, "--out", "page.html")
    assert f"on demand, as {moved}" in (lab.folder / "page.html").read_text()
    # Once: whoever watches later begins nothing.
    watched = lab("status", run, "--watch", code=1)
    assert "did not end on spot" not in watched.stderr
    assert lab.job_names("steady") == {f"{moved}-work": 1}


@pytest.mark.slow
def test_a_step_that_gets_no_spot_instance_goes_on_on_demand(lab: Lab) -> None:
    batch = lab.patient("batch")
    before = lab.job_names("steady")
    batch.update_compute_environment(computeEnvironment="spot-fleet", state="DISABLED")
    try:
        run, process = begin(lab, "2s")
        until(lambda: lab.job_names("steady") != before)
        batch.update_compute_environment(computeEnvironment="spot-fleet", state="ENABLED")
        notes = process.communicate(timeout=300)[1].decode()
    finally:
        batch.update_compute_environment(computeEnvironment="spot-fleet", state="ENABLED")
    assert process.returncode == 0, notes
    assert "work: no child started on spot for 2s" in notes
    moved = moved_run(notes, run)
    assert lab.status(run)["fallback"] == {"run_id": moved, "reclaimed": 0, "waited": 3}
    assert lab.status(moved)["moved_children"] == 3


def test_what_needs_a_command_that_watches_is_said(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE % "2")
    flags = ("plan", "pipeline.yaml", "--engine", "aws", "--env", "lab")
    assert "Without such a command nothing is moved" in lab(*flags).stderr
    assert "spot:" not in lab(*flags, "--spot").stderr
    assert "spot:" not in lab(*flags, "--on-demand").stderr
    refused = lab(*flags, "--spot", "--on-demand", code=2).stderr
    assert "--on-demand and --spot exclude each other" in refused
    lab.write("pipeline.yaml", (PIPELINE % "2").replace("array: 3", "gpus: 1"))
    assert "has no gpu_on_demand queue" in lab(*flags, code=2).stderr
