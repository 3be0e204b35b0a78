"""Commands on a day on which AWS cuts answers short, throttles for long, and shows logs late."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from cloud_lab import ENVIRONMENTS, Lab, calls, set_faults, until

PIPELINE = """\
name: unkind
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: a, array: 3, command: 'echo here $AWS_BATCH_JOB_ARRAY_INDEX'}
  - name: b
    needs: [a]
    command: 'until [ -e "FOLDER/go" ]; do sleep 0.1; done; echo done > result.txt'
    outputs: [result.txt]
  - {name: c, needs: [b], command: 'echo c; until [ -e "FOLDER/end" ]; do sleep 0.1; done'}
"""


@pytest.fixture(autouse=True)
def pipeline(lab: Lab) -> Iterator[None]:
    lab.write("pipeline.yaml", PIPELINE.replace("FOLDER", str(lab.folder)))
    yield
    set_faults(lab.endpoint, "")


def let_go(lab: Lab) -> None:
    """Let all steps of the runs in this folder end."""
    lab.write("go", "")
    lab.write("end", "")


def read_lines(lab: Lab, run: str) -> list[str]:
    return [line for line in lab("logs", run).stdout.splitlines() if line.startswith("here")]


@pytest.mark.slow
def test_bodies_of_s3_that_are_cut_short_are_read_again(lab: Lab) -> None:
    let_go(lab)
    run = lab.run("--detach")
    assert lab.ended(run) == "SUCCEEDED"
    for command in (("status", run), ("fetch", run)):
        set_faults(lab.endpoint, "cut@s3:GET=2x")
        (lab.folder / ".batchyard" / "runs" / run / "final.json").unlink(missing_ok=True)
        lab(*command)
    assert (lab.folder / "result.txt").read_text() == "done\n"
    # From another machine, where everything comes from S3.
    set_faults(lab.endpoint, "cut@s3:GET=2x")
    lab.write("other/environments.yaml", ENVIRONMENTS)
    there = ("--env", "lab", "--home", str(lab.folder / "other"))
    assert "SUCCEEDED" in lab("status", run, *there).stdout


def test_a_run_that_is_followed_survives_cut_bodies(lab: Lab) -> None:
    let_go(lab)
    set_faults(lab.endpoint, "cut@s3:GET=0.3,seed=3")
    done = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
    assert "SUCCEEDED" in done.stdout
    assert (lab.folder / "result.txt").read_text() == "done\n"


def test_logs_that_appear_late_are_waited_for(lab: Lab) -> None:
    let_go(lab)
    set_faults(lab.endpoint, "log-lag=4")
    run = lab.run("--detach")
    assert lab.ended(run) == "SUCCEEDED"
    assert read_lines(lab, run) == [f"here {n}" for n in range(3)]


@pytest.mark.slow
def test_one_stream_that_is_missing_does_not_hide_the_others(lab: Lab) -> None:
    run = lab.run("--detach")
    until(lambda: lab.status(run)["steps"][1]["running"])
    # By then the streams of a are older than that, and the one of c is not.
    time.sleep(3)
    set_faults(lab.endpoint, "log-lag=3")
    lab.write("go", "")
    until(lambda: lab.status(run)["steps"][2]["running"])
    assert read_lines(lab, run) == [f"here {n}" for n in range(3)]
    lab.write("end", "")
    assert lab.ended(run) == "SUCCEEDED"
    assert "\nc\n" in lab("logs", run).stdout


@pytest.mark.slow
def test_watching_goes_on_while_aws_throttles(lab: Lab) -> None:
    """The throttling is longer than botocore repeats a call."""
    run = lab.run("--detach")
    output = lab.folder / "watch.txt"
    with output.open("wb") as file:
        watcher = lab.start("status", run, "--watch", output=file)
        until(lambda: "a:" in output.read_text() or "a " in output.read_text())
        set_faults(lab.endpoint, "throttle@DescribeJobs=13x")
        before = calls(lab.endpoint)["batch:DescribeJobs"]
        until(lambda: calls(lab.endpoint)["batch:DescribeJobs"] > before)
        let_go(lab)
        assert watcher.wait(300) == 0
    assert "AWS throttles the calls; the run goes on" in output.read_text()
    assert "SUCCEEDED" in output.read_text()


def test_a_command_that_cannot_watch_any_more_says_that_the_run_goes_on(lab: Lab) -> None:
    output = lab.folder / "output.txt"
    run = ""
    for command in (
        ("run", "pipeline.yaml", "--engine", "aws", "--env", "lab"),
        ("status", "last", "--watch"),
    ):
        set_faults(lab.endpoint, "")
        with output.open("wb") as file:
            before = calls(lab.endpoint)["batch:DescribeJobs"]
            process = lab.start(*command, output=file)
            # One look that shows the run, and one after it.
            until(lambda before=before: calls(lab.endpoint)["batch:DescribeJobs"] > before + 1)
            set_faults(lab.endpoint, "expire@DescribeJobs=1")
            assert process.wait(300) == 3
        text = output.read_text()
        (path,) = (lab.folder / ".batchyard" / "runs").glob("unkind-*")
        run = path.name
        assert "the AWS credentials have expired" in text
        assert f"the run goes on without this command: `batchyard status {run} --watch`" in text
    set_faults(lab.endpoint, "")
    let_go(lab)
    assert lab.ended(run) == "SUCCEEDED"
