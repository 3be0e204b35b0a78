"""Runs on ECS whose client is killed, or whose calls fail: no task starts twice, none is lost."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloud_lab import ENVIRONMENTS, TASKS, Lab, add_cluster, calls, opened, set_faults, until
from emulator_endpoint import Endpoint

#: A third of all calls is throttled; connections are cut, and answers are lost.
TROUBLE = "throttle=0.33,reset=0.03,lose=0.03"
KILLS = 20
PIPELINE = """\
name: day
image: busybox
defaults: {memory: 64MiB}
steps:
  - {name: first, array: 4, command: 'sleep 0.3; echo $AWS_BATCH_JOB_ARRAY_INDEX >> "FOLDER/first"'}
  - {name: second, needs: [{step: first, each: true}], array: 4, max_running: 2,
     command: 'sleep 0.3; echo $AWS_BATCH_JOB_ARRAY_INDEX >> "FOLDER/second"'}
  - {name: third, needs: [second], command: 'echo 0 >> "FOLDER/third"'}
"""
CHILDREN = {"first": 4, "second": 4, "third": 1}


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """Set up in peace."""
    it = opened(tmp_path_factory.mktemp("troubled"), "--cpus", "8", "--memory", "16GiB")
    add_cluster(it)
    try:
        yield it
    finally:
        it.stop(signal.SIGKILL)


@pytest.fixture
def lab(tmp_path: Path, troubled: Endpoint) -> Iterator[Lab]:
    set_faults(troubled, "")
    it = Lab(tmp_path / "lab", troubled)
    it.write("pipeline.yaml", PIPELINE.replace("FOLDER", str(it.folder)))
    it.write(".batchyard/environments.yaml", ENVIRONMENTS + TASKS)
    yield it
    set_faults(troubled, "")


def runs_of(lab: Lab) -> set[str]:
    return {path.name for path in (lab.folder / ".batchyard" / "runs").glob("day-*")}


def check_once(lab: Lab, run: str) -> None:
    """Each child was one task, and each ran once."""
    tasks = Counter(
        tag["value"]
        for task in describe(lab, run)
        for tag in task["tags"]
        if tag["key"] == "batchyard:step"
    )
    assert tasks == CHILDREN
    for step, count in CHILDREN.items():
        path = lab.folder / step
        assert sorted(path.read_text().split()) == [str(index) for index in range(count)]
        path.unlink()


def describe(lab: Lab, run: str) -> list[dict[str, list[dict[str, str]]]]:
    arns = [task["taskArn"] for task in lab.tasks_of(run)]
    answer = lab.patient("ecs").describe_tasks(tasks=arns, include=["TAGS"])
    return list(answer["tasks"])


@pytest.mark.slow
def test_a_client_killed_at_any_moment(lab: Lab, dice: random.Random) -> None:
    began_s = time.monotonic()
    run = lab.run_tasks()
    whole_s = time.monotonic() - began_s
    check_once(lab, run)
    moments: Counter[int] = Counter()
    for number in range(KILLS):
        known = runs_of(lab)
        process = lab.start("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks")
        (run,) = until(lambda known=known: runs_of(lab) - known)
        time.sleep(dice.random() * whole_s * (0.3, 0.6, 0.9)[number % 3])
        process.send_signal(signal.SIGKILL)
        process.wait()
        moments[len(lab.tasks_of(run))] += 1
        if lab.status(run)["state"] == "RUNNING":
            assert "SUCCEEDED" in lab("resume", run).stdout
        check_once(lab, run)
    assert len(moments) > 1, f"it was always killed at the same place: {moments}"


@pytest.mark.slow
def test_a_run_on_a_bad_day(lab: Lab) -> None:
    set_faults(lab.endpoint, TROUBLE)
    run = lab.run_tasks()
    set_faults(lab.endpoint, "")
    check_once(lab, run)


@pytest.mark.slow
def test_a_client_killed_on_a_bad_day(lab: Lab, dice: random.Random) -> None:
    for _ in range(4):
        known = runs_of(lab)
        set_faults(lab.endpoint, TROUBLE)
        process = lab.start("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks")
        (run,) = until(lambda known=known: runs_of(lab) - known)
        time.sleep(dice.random() * 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if lab.status(run)["state"] == "RUNNING":
            assert "SUCCEEDED" in lab("resume", run).stdout
        set_faults(lab.endpoint, "")
        check_once(lab, run)


def test_an_answer_that_is_lost_starts_no_second_task(lab: Lab) -> None:
    set_faults(lab.endpoint, "lose@RunTask=2x")
    run = lab.run_tasks()
    check_once(lab, run)


def test_the_tasks_of_a_killed_run_are_stopped(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("sleep 0.3", "sleep 600"))
    process = lab.start("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks")
    (run,) = until(lambda: runs_of(lab))
    until(lambda: len([t for t in lab.tasks_of(run) if t["lastStatus"] == "RUNNING"]) == 4)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "INTERRUPTED" in lab("status", run, code=None).stdout
    assert "STOPPED" in lab("stop", run).stdout
    tasks = until(
        lambda: lab.tasks_of(run), lambda tasks: {t["lastStatus"] for t in tasks} == {"STOPPED"}
    )
    assert len(tasks) == 4 and {task["stopCode"] for task in tasks} == {"UserInitiated"}


def test_tasks_are_described_by_the_hundred(lab: Lab) -> None:
    before = calls(lab.endpoint)
    began_s = time.monotonic()
    run = lab.run_tasks()
    # Looks are at least half a second apart.
    looks = (time.monotonic() - began_s) / 0.5 + 1
    made = Counter(calls(lab.endpoint))
    made.subtract(before)
    assert made["ecs:DescribeTasks"] <= looks
    assert made["ecs:RunTask"] == sum(CHILDREN.values())
    check_once(lab, run)
