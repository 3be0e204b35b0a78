"""Stopping a run that another process is submitting; the counts of a run stopped half way."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
from cloud_lab import BUCKET, Lab, batch_calls, calls, until

from batchyard import s3_layout

STEPS = 30


def half_submitted(lab: Lab) -> tuple[str, subprocess.Popen[bytes]]:
    """A run of many steps, and the process that was submitting them; it holds still."""
    lab.write(
        "pipeline.yaml",
        "name: slow\nimage: x\ndefaults: {memory: 4MiB}\nsteps:\n"
        + "".join(f"  - {{name: s{n}, command: sleep 600}}\n" for n in range(STEPS)),
    )
    for _ in range(20):
        process = lab.start(
            "run", "pipeline.yaml", "--engine", "aws", "--env", "lab", output=subprocess.PIPE
        )
        (path,) = until(lambda: list(lab.folder.glob(".batchyard/runs/slow-*")))
        until(lambda path=path: lab.jobs_of(path.name))
        process.send_signal(signal.SIGSTOP)
        if len(lab.jobs_of(path.name)) < STEPS:
            return path.name, process
        # The machine was busy with something else until all were submitted: once more.
        process.kill()
        process.communicate()
        lab("stop", path.name)
        shutil.rmtree(path)
    raise AssertionError("all jobs were submitted before the process could be stopped")


@pytest.mark.slow
def test_a_stop_from_another_machine_while_it_is_being_submitted(lab: Lab, tmp_path: Path) -> None:
    run, first = half_submitted(lab)
    before = len(lab.jobs_of(run))
    other = Lab(tmp_path / "other", lab.endpoint)
    assert other("stop", run, "--env", "lab").stdout == f"run {run}: STOPPED\n"
    assert set(lab.jobs_of(run).values()) == {"FAILED"}
    first.send_signal(signal.SIGCONT)
    said = first.communicate(timeout=300)[1].decode()
    assert first.returncode == 2 and "was stopped before all of it was submitted" in said, said
    # What was on its way when it was stopped, and no more; and that has ended too.
    found = until(lambda: lab.jobs_of(run), lambda states: set(states.values()) == {"FAILED"})
    assert before <= len(found) <= before + 1
    for one in (lab, other):
        # A job that was on its way may not be shown yet.
        until(partial(one.status, run), lambda status: status["state"] == "STOPPED")
        said = one("resume", run, code=2).stderr
        assert (
            "was stopped before all of it was submitted" in said
            and f"batchyard retry {run}" in said
        )
    assert lab.jobs_of(run) == found


@pytest.mark.slow
def test_a_retry_says_that_all_commands_succeeded_before_the_stop(lab: Lab) -> None:
    """The stop comes when the worker has recorded the success, and has not ended yet."""
    lab.write(
        "pipeline.yaml",
        "name: late\nimage: x\ndefaults: {memory: 256MiB}\nsteps:\n"
        "  - {name: a, commands: [sleep 600]}\n",
    )
    run = lab.run("--detach")
    until(lambda: lab.status(run)["steps"][0]["running"])
    assert "STOPPED" in lab("stop", run).stdout
    record = f"team/runs/{run}/{s3_layout.records_address('', 'a')}{s3_layout.success_record(0)}"
    lab.patient("s3").put_object(Bucket=BUCKET, Key=record, Body=b"{}")
    said = lab("retry", run, code=2).stderr
    assert "nothing to retry: all its commands succeeded, although it is STOPPED" in said
    assert f"`batchyard fetch {run}`" in said


@pytest.mark.slow
def test_a_run_that_was_not_submitted_whole_can_be_given_up(lab: Lab) -> None:
    """Its process died between two jobs."""
    run, process = half_submitted(lab)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    there = lab.jobs_of(run)
    last = f"s{STEPS - 1}"
    shown = lab("status", run).stdout
    assert "INTERRUPTED: not all of it is submitted" in shown and "batchyard resume" in shown
    said = lab("stop", run, last, code=2).stderr
    assert f"not all jobs of {last} are submitted" in said and f"batchyard stop {run}" in said
    assert lab("stop", run).stdout == f"run {run}: STOPPED\n"
    assert "over already: STOPPED" in lab("stop", run).stdout
    shown = lab.status(run)
    reasons = [step["reason"] for step in shown["steps"]]
    assert shown["state"] == "STOPPED"
    assert reasons[: len(there)] == ["stopped by the user"] * len(there)
    assert set(reasons[len(there) :]) == {"stopped before it was submitted"}
    assert (lab.folder / ".batchyard" / "runs" / run / "final.json").exists()
    for flags in ((), ("--failed",), ("-f",), ("--failed", "-f")):
        assert "forgotten" not in lab("logs", run, *flags).stderr
    # Nothing more of it is submitted, but by a retry.
    said = lab("resume", run, code=2).stderr
    assert "was stopped before all of it was submitted" in said and f"batchyard retry {run}" in said
    assert "batchyard resume" not in said
    assert lab.jobs_of(run).keys() == there.keys()
    again = lab("retry", run, "--detach").stdout.strip()
    assert len(lab.jobs_of(again)) == STEPS
    lab("stop", again)


@pytest.mark.slow
@pytest.mark.usefixtures("calm")
def test_what_never_began_is_no_attempt(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: half\nimage: x\ndefaults: {memory: 64MiB}\nsteps:\n"
        "  - {name: a, array: 250, max_running: 3,"
        " command: '[ $AWS_BATCH_JOB_ARRAY_INDEX -lt 5 ] || sleep 600'}\n"
        "  - {name: b, needs: [{step: a, each: true}], array: 250, command: 'true'}\n"
        "  - {name: c, needs: [b], array: 250, command: 'true'}\n",
    )
    run = lab.run("--detach")

    def numbers(shown: dict[str, list[dict[str, int]]]) -> tuple[int, ...]:
        a, b, _ = shown["steps"]
        return a["succeeded"], a["running"], b["succeeded"]

    until(lambda: numbers(lab.status(run)), lambda found: found == (5, 3, 5))
    before, began = calls(lab.endpoint), time.monotonic()
    lab("stop", run)
    asked, taken_s = batch_calls(before, calls(lab.endpoint)), time.monotonic() - began
    attempts = {
        step["name"]: (step["failed"], step["attempts"]) for step in lab.status(run)["steps"]
    }
    assert attempts == {"a": (245, 8), "b": (245, 5), "c": (250, 0)}
    # Three calls (of 100 children each) for each of the two steps that can have begun; then one
    # call a second to watch the run, and the calls of the stop, which lists the queue's jobs once.
    assert asked["batch:DescribeJobs"] <= 6 + 4 + taken_s and asked["batch:ListJobs"] == 1, asked
    page = Path(lab.folder, lab("report", run).stdout.strip()).read_text()
    assert "stopped by the user" in page
    before = calls(lab.endpoint)
    lab.json("runs")
    assert not batch_calls(before, calls(lab.endpoint))


def test_a_failed_array_counts_every_attempt(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: tries\nimage: x\ndefaults: {memory: 64MiB, retries: 2}\nsteps:\n"
        "  - {name: a, array: 3, command: '[ $AWS_BATCH_JOB_ARRAY_INDEX != 1 ]'}\n",
    )
    run = lab.run(code=1)
    (step,) = lab.status(run)["steps"]
    assert (step["succeeded"], step["failed"], step["attempts"]) == (2, 1, 2 + 3)
