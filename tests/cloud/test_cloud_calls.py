"""What a run costs in calls of AWS Batch, counted at the endpoint: the same for a thousand children and for ten."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from cloud_lab import Lab, batch_calls, calls, opened, until
from emulator_endpoint import Endpoint

MOST_TO_SUBMIT = 12


def pipeline(lab: Lab, children: int) -> None:
    """Four steps; the last two go through a list, so that nothing may grow with it in the calls either."""
    each = children // 4
    lab.write("words.txt", "true\n" * each)
    lab.write(
        "pipeline.yaml",
        "name: wide\nimage: busybox\ndefaults: {memory: 4MiB}\nsteps:\n"
        f"  - {{name: a, array: {each}, command: 'sleep 600'}}\n"
        f"  - {{name: b, needs: [{{step: a, each: true}}], array: {each}, command: 'true', timeout: 1h}}\n"
        f"  - {{name: c, needs: [b], array: {each}, commands_file: words.txt}}\n"
        f"  - {{name: d, needs: [c], array: {each}, commands_file: words.txt, cpus: 2}}\n",
    )


@pytest.mark.parametrize("children", [1_000, 10_000])
def test_submitting_and_watching_cost_the_same_however_many_children(lab: Lab, children: int) -> None:
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
        "batch:DescribeJobDefinitions": 1,
        "batch:SubmitJob": 4,
    }
    lab("stop", second)

    before = calls(lab.endpoint)
    watcher = lab.start("status", run, "--watch")
    time.sleep(4)
    watcher.terminate()
    watcher.wait()
    watched = batch_calls(before, calls(lab.endpoint))
    # Polls are a second apart at the least.
    assert set(watched) == {"batch:DescribeJobs"} and 1 <= watched["batch:DescribeJobs"] <= 4
    before = calls(lab.endpoint)
    lab("stop", run)
    assert batch_calls(before, calls(lab.endpoint))["batch:TerminateJob"] == 4


@pytest.mark.slow
def test_more_children_than_an_array_of_aws_takes(tmp_path: Path) -> None:
    endpoint = opened(tmp_path / "endpoint", "--cpus", "8")
    try:
        lab = Lab(tmp_path / "lab", endpoint)
        seen = tmp_path / "seen"
        seen.mkdir()
        last = f"test $AWS_BATCH_JOB_ARRAY_INDEX -lt 10001 || echo $AWS_BATCH_JOB_ARRAY_SIZE > {seen}/last"
        middle = f"test $AWS_BATCH_JOB_ARRAY_INDEX -ne 5001 || echo $AWS_BATCH_JOB_ARRAY_SIZE > {seen}/middle"
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
        assert {path.name: path.read_text() for path in seen.iterdir()} == {"last": "10002\n", "middle": "10002\n"}
        assert lab("logs", run, "b").stdout.endswith("after all\n")
    finally:
        endpoint.stop()


def test_watching_a_long_run_asks_less_and_less(lab: Lab) -> None:
    lab.write("pipeline.yaml", "name: long\nimage: x\nsteps: [{name: a, memory: 4MiB, command: sleep 600}]\n")
    run = lab.run("--detach")
    until(lambda: lab.status(run)["state"] == "RUNNING")
    watcher = lab.start("status", run, "--watch")
    times = moments(lab.endpoint, 12)
    watcher.terminate()
    watcher.wait()
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) >= 3 and gaps[-1] > gaps[0] * 1.5, gaps
    lab("stop", run)


def test_following_logs_asks_about_what_can_have_changed(lab: Lab) -> None:
    """A thousand children that come and go, and a long silence after them."""
    lab.write(
        "pipeline.yaml",
        "name: chatty\nimage: x\ndefaults: {memory: 4MiB}\nsteps:\n"
        "  - {name: quick, array: 1000, command: 'echo quick $AWS_BATCH_JOB_ARRAY_INDEX'}\n"
        "  - {name: silent, needs: [quick], command: sleep 12}\n"
        "  - {name: late, needs: [silent], array: 1000, command: 'echo late $AWS_BATCH_JOB_ARRAY_INDEX'}\n",
    )
    run = lab.run("--detach")
    before = calls(lab.endpoint)
    out = lab.folder / "followed.txt"
    with out.open("wb") as file:
        process = lab.start("logs", run, "-f", output=file)
        until(lambda: lab.status(run)["steps"][1]["state"] == "RUNNING")
        time.sleep(3)
        quiet = calls(lab.endpoint)
        time.sleep(7)
        silence = batch_calls(quiet, calls(lab.endpoint))
        assert process.wait(120) == 0
    asked = batch_calls(before, calls(lab.endpoint))
    lines = [line for line in out.read_text().splitlines() if line and not line.startswith("==>")]
    assert sorted(lines) == sorted(f"{word} {n}" for word in ("quick", "late") for n in range(1000))
    # In the silence: the jobs, and the one child that runs, at moments that are further and further apart.
    assert set(silence) == {"batch:DescribeJobs"} and 2 <= silence["batch:DescribeJobs"] <= 10
    # Each child once when it has ended, and some before that; asking about all each time would come to hundreds.
    assert asked["batch:DescribeJobs"] < 100, asked


def test_following_the_logs_of_many_that_wait_costs_no_more(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: broad\nimage: x\nsteps:\n  - {name: a, array: 10000, memory: 4MiB, command: echo here; sleep 600}\n",
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
    # The first look finds who runs; each later one is two calls, and they come less and less often.
    assert sum(asked.values()) <= 12, asked
    lab("stop", run)


def moments(endpoint: Endpoint, seconds: float) -> list[float]:
    """When DescribeJobs was asked."""
    found: list[float] = []
    count = calls(endpoint)["batch:DescribeJobs"]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = calls(endpoint)["batch:DescribeJobs"]
        if now > count:
            count = now
            found.append(time.monotonic())
        time.sleep(0.05)
    return found
