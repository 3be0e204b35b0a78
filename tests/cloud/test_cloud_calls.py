"""The number of AWS Batch calls of a run does not grow with the number of its children."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cloud_lab import ENVIRONMENTS, Lab, batch_calls, calls, opened, until

MOST_TO_SUBMIT = 12

pytestmark = pytest.mark.usefixtures("calm")


def pipeline(lab: Lab, children: int) -> None:
    """Write a pipeline of four array steps.

    The last two read a list of commands: the number of calls must not grow with the list.
    """
    each = children // 4
    lab.write("words.txt", "true\n" * each)
    lab.write(
        "pipeline.yaml",
        "name: wide\nimage: busybox\ndefaults: {memory: 4MiB}\nsteps:\n"
        f"  - {{name: a, array: {each}, command: 'sleep 600'}}\n"
        f"  - {{name: b, needs: [{{step: a, each: true}}], array: {each}, command: 'true',"
        " timeout: 1h}\n"
        f"  - {{name: c, needs: [b], array: {each}, commands_file: words.txt}}\n"
        f"  - {{name: d, needs: [c], array: {each}, commands_file: words.txt, cpus: 2}}\n",
    )


@pytest.mark.parametrize("children", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_submitting_and_watching_cost_the_same_however_many_children(
    lab: Lab, children: int
) -> None:
    pipeline(lab, children)
    before = calls(lab.endpoint)
    run = lab.run("--detach")
    submitted = batch_calls(before, calls(lab.endpoint))
    assert submitted["batch:SubmitJob"] == 4
    assert sum(submitted.values()) <= MOST_TO_SUBMIT, submitted
    # The definitions are there now: the next run registers none.
    before = calls(lab.endpoint)
    second = lab.run("--detach")
    assert batch_calls(before, calls(lab.endpoint)) == {
        "batch:DescribeJobQueues": 1,
        "batch:DescribeComputeEnvironments": 1,
        "batch:DescribeJobDefinitions": 1,
        "batch:SubmitJob": 4,
    }
    lab("stop", second)

    before, began = calls(lab.endpoint), time.monotonic()
    watcher = lab.start("status", run, "--watch")
    until(lambda: batch_calls(before, calls(lab.endpoint)).get("batch:DescribeJobs", 0) >= 3)
    watcher.terminate()
    watcher.wait()
    watched = batch_calls(before, calls(lab.endpoint))
    # Polls are a second apart at the least.
    assert set(watched) == {"batch:DescribeJobs"}
    assert watched["batch:DescribeJobs"] <= 2 + time.monotonic() - began
    before = calls(lab.endpoint)
    lab("stop", run)
    assert batch_calls(before, calls(lab.endpoint))["batch:TerminateJob"] == 4


@pytest.mark.parametrize(
    "children", [300, *(pytest.param(n, marks=pytest.mark.slow) for n in (2_000, 20_000))]
)
def test_the_status_of_a_stopped_run_costs_the_same_however_many_children(
    lab: Lab, children: int
) -> None:
    lab.write(
        "pipeline.yaml",
        "name: ended\nimage: busybox\ndefaults: {memory: 4MiB}\nsteps:\n"
        f"  - {{name: a, array: {children}, max_running: 4, command: 'echo $$; sleep 600'}}\n",
    )
    run = lab.run("--detach")
    until(lambda: lab.status(run)["steps"][0]["running"], lambda running: running == 4)
    lab("stop", run)
    shown = lab.status(run)
    assert len(shown["failures"]) == 4
    before = calls(lab.endpoint)
    assert lab.status(run) == shown
    # The log stream of each failure that is shown.
    assert batch_calls(before, calls(lab.endpoint)) == {"batch:DescribeJobs": 4}
    # Another machine has the record, too.
    lab.write("other/environments.yaml", ENVIRONMENTS)
    there = ("--env", "lab", "--home", str(lab.folder / "other"))
    before = calls(lab.endpoint)
    assert "STOPPED" in lab("status", run, *there).stdout
    assert batch_calls(before, calls(lab.endpoint))["batch:DescribeJobs"] <= 5


def test_the_first_failures_are_stored(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: bad\nimage: busybox\ndefaults: {memory: 4MiB}\nsteps:\n"
        "  - {name: a, array: 30, command: 'exit 3'}\n",
    )
    run = lab.run(code=1)
    first = lab.status(run)["failures"]
    assert [failure["index"] for failure in first] == [0, 1, 2, 3, 4]
    folder = lab.folder / ".batchyard" / "runs" / run
    stored = json.loads((folder / "failures.json").read_text())
    assert len(stored["attempts"]) == 20 and not stored["is_complete"]


@pytest.mark.slow
def test_more_children_than_an_array_of_aws_takes(tmp_path: Path) -> None:
    endpoint = opened(tmp_path / "endpoint", "--cpus", "8")
    try:
        lab = Lab(tmp_path / "lab", endpoint)
        seen = tmp_path / "seen"
        seen.mkdir()
        last = (
            "test $AWS_BATCH_JOB_ARRAY_INDEX -lt 10001"
            f" || echo $AWS_BATCH_JOB_ARRAY_SIZE > {seen}/last"
        )
        middle = (
            "test $AWS_BATCH_JOB_ARRAY_INDEX -ne 5001"
            f" || echo $AWS_BATCH_JOB_ARRAY_SIZE > {seen}/middle"
        )
        lab.write(
            "pipeline.yaml",
            "name: huge\nimage: x\ndefaults: {memory: 4MiB}\nsteps:\n"
            f"  - {{name: a, array: 10002, command: '{last}; {middle}'}}\n"
            "  - {name: b, needs: [a], command: echo after all}\n",
        )
        run = lab.run("--detach")
        names = {f"{run}-a-0", f"{run}-a-1", f"{run}-b"}
        assert set(lab.job_names()) == names
        assert "SUCCEEDED" in lab("status", run, "--watch").stdout
        shown = lab.status(run)
        assert [(step["name"], step["size"], step["succeeded"]) for step in shown["steps"]] == [
            ("a", 10_002, 10_002),
            ("b", 1, 1),
        ]
        assert {path.name: path.read_text() for path in seen.iterdir()} == {
            "last": "10002\n",
            "middle": "10002\n",
        }
        assert lab("logs", run, "b").stdout.endswith("after all\n")
    finally:
        endpoint.stop()


@pytest.mark.slow
def test_watching_a_long_run_asks_less_and_less(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: long\nimage: x\nsteps: [{name: a, memory: 4MiB, command: sleep 600}]\n",
    )
    run = lab.run("--detach")
    until(lambda: lab.status(run)["state"] == "RUNNING")
    before = calls(lab.endpoint)["batch:DescribeJobs"]
    watcher = lab.start("status", run, "--watch")
    until(lambda: calls(lab.endpoint)["batch:DescribeJobs"] > before)
    began = time.monotonic()
    until(lambda: calls(lab.endpoint)["batch:DescribeJobs"] >= before + 5)
    # Four looks with growing pauses take 8 s; with pauses of one second they would take 4 s.
    # The bound is lower than 8 s because a busy machine may notice the first look late.
    assert time.monotonic() - began > 5.5
    watcher.terminate()
    watcher.wait()
    lab("stop", run)


@pytest.mark.slow
def test_following_logs_asks_about_what_can_have_changed(lab: Lab) -> None:
    """A thousand children that come and go, and a long silence after them."""
    lab.write(
        "pipeline.yaml",
        "name: chatty\nimage: x\ndefaults: {memory: 4MiB}\nsteps:\n"
        "  - {name: quick, array: 1000, command: 'echo quick $AWS_BATCH_JOB_ARRAY_INDEX'}\n"
        "  - {name: silent, needs: [quick],"
        f" command: 'until [ -e \"{lab.folder}/go\" ]; do sleep 0.1; done'}}\n"
        "  - {name: late, needs: [silent], array: 1000,"
        " command: 'echo late $AWS_BATCH_JOB_ARRAY_INDEX'}\n",
    )
    run = lab.run("--detach")
    before = calls(lab.endpoint)
    out = lab.folder / "followed.txt"
    with out.open("wb") as file:
        process = lab.start("logs", run, "-f", output=file)
        until(lambda: lab.status(run)["steps"][1]["state"] == "RUNNING")
        until(
            lambda: out.read_text().count("quick"), lambda count: count >= 2000
        )  # each with its heading
        time.sleep(3)
        quiet, began = calls(lab.endpoint), time.monotonic()
        until(lambda: batch_calls(quiet, calls(lab.endpoint)).get("batch:DescribeJobs", 0) >= 2)
        time.sleep(3)
        silence, silence_s = batch_calls(quiet, calls(lab.endpoint)), time.monotonic() - began
        lab.write("go", "")
        assert process.wait(300) == 0
    asked = batch_calls(before, calls(lab.endpoint))
    lines = [line for line in out.read_text().splitlines() if line and not line.startswith("==>")]
    assert sorted(lines) == sorted(f"{word} {n}" for word in ("quick", "late") for n in range(1000))
    # While nothing is printed, only the jobs and the running child are described, with growing
    # pauses between the calls.
    assert (
        set(silence) == {"batch:DescribeJobs"} and silence["batch:DescribeJobs"] <= 4 + silence_s
    ), silence
    # Each child is described once after its end, and some of them before. Describing all
    # children at every look would take hundreds of calls.
    assert asked["batch:DescribeJobs"] < 100, asked


@pytest.mark.slow
def test_following_the_logs_of_many_that_wait_costs_no_more(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: broad\nimage: x\nsteps:\n"
        "  - {name: a, array: 10000, memory: 4MiB, command: echo here; sleep 600}\n",
    )
    run = lab.run("--detach")
    until(lambda: lab.status(run)["steps"][0]["running"], lambda running: running == 8)
    before = calls(lab.endpoint)
    out = lab.folder / "followed.txt"
    with out.open("wb") as file:
        process = lab.start("logs", run, "-f", output=file)
        until(lambda: out.read_text().count("here\n"), lambda count: count == 8)
        time.sleep(4)
        asked = batch_calls(before, calls(lab.endpoint))
        process.terminate()
        process.wait()
    # The first look finds the running children; each later look takes two calls. Describing
    # all children would take a hundred calls per look.
    assert sum(asked.values()) <= 40, asked
    lab("stop", run)
