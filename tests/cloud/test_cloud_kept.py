"""Runs that are over or never submitted a job are shown and deleted without a call of AWS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cloud_lab import BUCKET, ENVIRONMENTS, Lab, run_of

FAILING = """\
name: fails
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: a, command: echo said; exit 3}
  - {name: b, needs: [a], command: echo b}
"""
RUN = ("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
NOBODY = {
    "AWS_ACCESS_KEY_ID": "",
    "AWS_SECRET_ACCESS_KEY": "",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


def folder_of(lab: Lab, run: str) -> Path:
    return lab.folder / ".batchyard" / "runs" / run


def lose_bucket(lab: Lab) -> None:
    """Of the runs to come."""
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace(BUCKET, "nobodys-runs"))


def in_short_lived_bucket(lab: Lab) -> None:
    """So are the runs to come."""
    lab.endpoint.client("s3").create_bucket(Bucket="short-lived")
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace(BUCKET, "short-lived"))


def delete_bucket(lab: Lab) -> None:
    s3 = lab.endpoint.client("s3")
    for found in s3.list_objects_v2(Bucket="short-lived")["Contents"]:
        s3.delete_object(Bucket="short-lived", Key=found["Key"])
    s3.delete_bucket(Bucket="short-lived")


@pytest.mark.slow
def test_a_failed_and_a_stopped_run_without_credentials(lab: Lab) -> None:
    lab.write("pipeline.yaml", FAILING)
    failed = lab.run(code=1)
    lab.write("pipeline.yaml", FAILING.replace("echo said; exit 3", "sleep 600"))
    stopped = lab.run("--detach")
    lab("stop", stopped)
    lab.write("pipeline.yaml", FAILING.replace("exit 3", "sleep 600"))
    going = lab.run("--detach")

    done = lab("runs", environ=NOBODY)
    states = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[1:]}
    assert states == {failed: "FAILED", stopped: "STOPPED"}
    assert f"{going}: could not" in done.stderr
    done = lab("status", failed, environ=NOBODY)
    assert "FAILED" in done.stdout and "said" not in done.stdout
    assert (
        "only the stored record is shown: could not" in done.stderr and "credentials" in done.stderr
    )
    assert "STOPPED" in lab("status", stopped, environ=NOBODY).stdout
    assert "said" in lab("status", failed).stdout  # with AWS, its failures too
    assert "could not" in lab("status", going, environ=NOBODY, code=3).stderr

    done = lab("clean", "--keep", "0", environ=NOBODY, code=3)
    assert done.stdout == "2 runs deleted\n" and f"{going}: could not" in done.stderr
    assert not folder_of(lab, failed).exists() and folder_of(lab, going).exists()
    lab("stop", going)


def test_what_an_older_batchyard_has_kept_is_read(lab: Lab) -> None:
    lab.write("pipeline.yaml", FAILING.replace("echo said; exit 3", "sleep 600"))
    run = lab.run("--detach")
    lab("stop", run)
    final = folder_of(lab, run) / "final.json"
    final.write_text(json.dumps(json.loads(final.read_text())["jobs"]))
    (folder_of(lab, run) / "stopped.json").unlink()
    assert lab.status(run)["state"] == "STOPPED"  # which S3 knows


def test_a_run_whose_bucket_is_not_there_is_given_up(lab: Lab) -> None:
    lab.write("pipeline.yaml", FAILING)
    lose_bucket(lab)
    run = run_of(lab(*RUN, code=2))
    assert "INTERRUPTED" in lab("runs").stdout
    assert lab("stop", run).stdout == f"run {run}: STOPPED\n"
    assert lab("stop", run, environ=NOBODY).stdout == f"run {run} is over already: STOPPED\n"
    assert "was stopped before all of it was submitted" in lab("resume", run, code=2).stderr
    assert not [name for name in lab.job_names() if name.startswith(run)]
    assert lab("clean", "--keep", "0", environ=NOBODY).stdout == "1 run deleted\n"


def test_what_is_kept_and_cannot_be_read_is_named(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: p\nimage: x\nsteps: [{name: a, memory: 64MiB, command: echo said}]\n",
    )
    run = lab.run()
    final = folder_of(lab, run) / "final.json"
    final.write_text(final.read_text()[:20])
    for command in ("status", "logs", "stop", "retry", "report"):
        assert f"{final} cannot be read" in lab(command, run, code=3).stderr
    final.unlink()
    assert "SUCCEEDED" in lab("status", run).stdout


@pytest.mark.slow
def test_a_run_that_is_over_is_not_resumed_where_its_bucket_is_gone(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: p\nimage: x\nsteps: [{name: a, memory: 64MiB, command: echo said}]\n",
    )
    in_short_lived_bucket(lab)
    run = lab.run()
    delete_bucket(lab)
    said = lab("resume", run, code=2).stderr
    assert "could not list" in said and "not all jobs are submitted" not in said


def test_a_run_that_is_nowhere_is_deleted(lab: Lab) -> None:
    lab.write("pipeline.yaml", FAILING)
    lose_bucket(lab)
    run = run_of(lab(*RUN, code=2))
    assert lab("clean", "--keep", "0").stdout == "1 run deleted\n"
    assert not folder_of(lab, run).exists()


def test_jobs_are_stopped_also_where_their_bucket_is_gone(lab: Lab) -> None:
    lab.write("pipeline.yaml", FAILING.replace("echo said; exit 3", "sleep 600"))
    in_short_lived_bucket(lab)
    run = lab.run("--detach")
    delete_bucket(lab)
    assert lab("clean", "--keep", "0").stdout == "0 runs deleted\n"  # it runs
    assert lab("stop", run).stdout == f"run {run}: STOPPED\n"
    assert lab("clean", "--keep", "0").stdout == "1 run deleted\n"
