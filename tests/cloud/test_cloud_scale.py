"""`scale` of a dynamic step on AWS Batch: children are added to a running step, or dismissed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cloud_lab import BUCKET, Lab, until

from batchyard.worker import scale as scale_format
from batchyard.worker.scale import AddedJob, Scale

HEAD = "name: rows\nimage: busybox\ndefaults: {memory: 256MiB}\nsteps:\n"
#: writes its number, and waits until the test lets it go on
WAIT = 'echo {number} >> "$YARD/ran"; until test -e "$YARD/go"; do sleep 0.1; done'


def start(lab: Lab, commands: list[str], array: int, *, has_dependents: bool = True) -> str:
    lab.write("commands.txt", "".join(f"{command}\n" for command in commands))
    step = {
        "name": "a",
        "commands_file": "commands.txt",
        "share_out": "dynamic",
        "array": array,
        "env": {"YARD": str(lab.folder)},
    }
    after = {"name": "b", "command": f"wc -l < '{lab.folder}/ran' > '{lab.folder}/after'"}
    after |= {"needs": ["a"]} if has_dependents else {}
    lab.write("pipeline.yaml", f"{HEAD}  - {json.dumps(step)}\n  - {json.dumps(after)}\n")
    lab.write("ran", "")
    return lab.run("--detach")


def ran(lab: Lab) -> list[int]:
    return sorted(map(int, (lab.folder / "ran").read_text().split()))


def until_ran(lab: Lab, count: int) -> None:
    until(lambda: len(ran(lab)), lambda lines: lines >= count)


def step_a(lab: Lab, run: str) -> dict[str, int]:
    step: dict[str, int] = lab.status(run)["steps"][0]
    return step


@pytest.mark.slow
def test_added_children_join_and_the_next_step_waits_for_them(
    lab: Lab, calm: None, tmp_path: Path
) -> None:
    run = start(lab, [WAIT.format(number=number) for number in range(6)], array=1)
    until_ran(lab, 1)
    done = lab("scale", run, "a", "200")
    assert "a has 200 children now, and there is room for 3 at once" in done.stdout
    until_ran(lab, 3)
    # A machine that has never seen the run sees the added children, and their output.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = Lab(elsewhere, lab.endpoint)
    (step, *_) = other.json("status", run, "--env", "lab")["steps"]
    assert (step["size"], step["running"], step["commands"]["total"]) == (3, 3, 6)
    assert other("scale", run, "a", "3").stdout.startswith(f"run {run}: a has 3 children now\n")
    assert {name: count for name, count in lab.job_names().items() if run in name} == {
        f"{run}-a": 1,
        f"{run}-a-added0": 1,
        f"{run}-b": 1,
    }
    journal = (lab.folder / f".batchyard/runs/{run}/submitted.jsonl").read_text().splitlines()
    added = [json.loads(line) for line in journal if "added0" in line]
    assert [next(iter(entry)) for entry in added] == ["intend", "submitted"]
    lab.write("go", "")
    assert lab.ended(run) == "SUCCEEDED"
    assert ran(lab) == [0, 1, 2, 3, 4, 5]
    assert (lab.folder / "after").read_text().strip() == "6"
    commands = lab.json("commands", run)
    children = {entry["index"] for entry in commands if entry["step"] == "a"}
    assert children & {1, 2}
    child = max(children)
    assert "command" not in lab("logs", run, f"a:{child}").stderr
    assert "the run is over" in lab("scale", run, "a", "5", code=2).stderr


@pytest.mark.slow
def test_a_failure_of_an_added_child_fails_the_step_and_is_retried(lab: Lab, calm: None) -> None:
    fail = 'until test -e "$YARD/go"; do sleep 0.1; done; test -e "$YARD/now"'
    run = start(lab, [f'echo {number} >> "$YARD/ran"; {fail}' for number in range(2)], array=1)
    until_ran(lab, 1)
    lab("scale", run, "a", "2")
    until_ran(lab, 2)
    lab.write("go", "")
    assert lab.ended(run) == "FAILED"
    assert not (lab.folder / "after").exists()
    assert {failure["command"] for failure in lab.status(run)["failures"]} <= {0, 1}
    lab.write("now", "")
    lab("retry", run)
    assert ran(lab) == [0, 0, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("has_dependents", [True, False])
def test_dismissed_children_end_after_their_block(
    lab: Lab, calm: None, *, has_dependents: bool
) -> None:
    commands = [WAIT.format(number=number) for number in range(12)]
    run = start(lab, commands, array=3, has_dependents=has_dependents)
    until_ran(lab, 3)
    assert "a has 1 child now" in lab("scale", run, "a", "1").stdout
    lab.write("go", "")
    assert lab.ended(run) == "SUCCEEDED"
    assert ran(lab) == list(range(12))
    by_child: dict[int, int] = {}
    for entry in lab.json("commands", run):
        if entry["step"] == "a":
            by_child[entry["index"]] = by_child.get(entry["index"], 0) + 1
    # The first three blocks have two commands each; all others are the remaining child's.
    assert sorted(by_child.values()) == [2, 2, 8]
    assert step_a(lab, run)["size"] == 3


def test_stop_ends_added_children_and_no_more_are_added(lab: Lab, calm: None) -> None:
    run = start(lab, [WAIT.format(number=number) for number in range(6)], array=1)
    until_ran(lab, 1)
    lab("scale", run, "a", "3")
    until_ran(lab, 3)
    lab("stop", run)
    states = lab.jobs_of(run)
    assert states == dict.fromkeys([f"{run}-a", f"{run}-a-added0", f"{run}-b"], "FAILED")
    assert "the run is over" in lab("scale", run, "a", "5", code=2).stderr


@pytest.mark.slow
def test_what_a_process_left_that_died_before_its_submission_is_submitted_once(
    lab: Lab, calm: None
) -> None:
    run = start(lab, [WAIT.format(number=number) for number in range(6)], array=1)
    until_ran(lab, 1)
    scale = Scale(((0, 1),), (AddedJob(1, 1, False),), has_dependents=True, token="x")
    key = f"team/runs/{run}/blocks/a/scale.json"
    lab.patient("s3").put_object(Bucket=BUCKET, Key=key, Body=scale_format.encode(scale))
    status = lab.status(run)
    assert (status["state"], status["interrupted"]) == ("RUNNING", False)
    assert step_a(lab, run)["size"] == 1
    lab("scale", run, "a", "2")
    until_ran(lab, 2)
    lab("scale", run, "a", "2")
    assert lab.job_names()[f"{run}-a-added0"] == 1
    assert f"{run}-a-added1" not in lab.job_names()
    lab.write("go", "")
    assert lab.ended(run) == "SUCCEEDED"
    assert ran(lab) == list(range(6))
