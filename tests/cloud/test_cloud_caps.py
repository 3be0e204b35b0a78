"""Caps: a run on AWS Batch costs no more than its cap, but for what runs when it is reached."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from cloud_lab import BUCKET, Lab

from batchyard import cfn_yaml
from batchyard.infra import read_template

PIPELINE = """\
name: capped
image: x
defaults: {memory: 64MiB}
steps:
  - {name: work, array: 12, max_running: 2, command: sleep %s}
  - {name: collect, needs: [work], command: 'true'}
"""
LIST = """\
name: capped
image: x
defaults: {memory: 256MiB}
steps:
  - name: work
    share_out: dynamic
    array: 2
    commands: [%s]
"""


def reached_usd(text: str) -> tuple[float, float]:
    """Return the cost at which a run was held, and its cap."""
    match = re.search(r"the run has cost \$([0-9.]+), and max_cost is \$([0-9.e-]+)", text)
    assert match, text
    return float(match[1]), float(match[2])


def held_ms(lab: Lab, run: str) -> float:
    """Return when the run was held."""
    held = lab.patient("s3").head_object(Bucket=BUCKET, Key=f"team/runs/{run}/held.json")
    return float(held["LastModified"].timestamp() * 1000)


def starts_ms(lab: Lab, run: str, size: int) -> list[int]:
    batch = lab.patient("batch")
    (job,) = batch.list_jobs(
        jobQueue="spot", filters=[{"name": "JOB_NAME", "values": [f"{run}-work"]}]
    )["jobSummaryList"]
    children = batch.describe_jobs(jobs=[f"{job['jobId']}:{n}" for n in range(size)])["jobs"]
    return [attempt["startedAt"] for child in children for attempt in child["attempts"]]


def state_of(document: Any) -> str:
    return str(document["state"])


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2, 3, 4, 5, 6])
def test_nothing_starts_once_the_cap_is_reached(lab: Lab, seconds: int) -> None:
    lab.write("pipeline.yaml", PIPELINE % seconds)
    done = lab(
        *("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", "--max-cost", "0.06"), code=1
    )
    cost_usd, cap_usd = reached_usd(done.stderr)
    assert 0 < cost_usd <= cap_usd == 0.06
    run = re.findall(r"capped-\d{8}-[0-9a-f]{6}", done.stderr)[0]
    status = lab.status(run)
    assert state_of(status) == "FAILED" and "max_cost is $0.06" in status["held"]
    # LastModified has whole seconds; a child may be on its way when the others are cancelled.
    late = [start for start in starts_ms(lab, run, 12) if start > held_ms(lab, run) + 3000]
    assert not late
    work, collect = status["steps"]
    assert 0 < work["succeeded"] < 12 and collect["succeeded"] == 0
    lab("retry", run, "--max-cost", "50")
    assert state_of(lab.status("last")) == "SUCCEEDED"


@pytest.mark.slow
def test_children_of_a_dynamic_step_end_after_their_block(lab: Lab) -> None:
    lab.write("pipeline.yaml", LIST % ", ".join(["sleep 2"] * 40))
    done = lab(
        *("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", "--max-cost", "0.035"), code=1
    )
    run = re.findall(r"capped-\d{8}-[0-9a-f]{6}", done.stderr)[0]
    status = lab.status(run)
    assert state_of(status) == "FAILED" and status["held"]
    commands = status["steps"][0]["commands"]
    # A child that was only starting ends without a block.
    assert commands["succeeded"] < 40 and not commands["failed"]
    retried = lab.json("plan", "--retry", run, "--commands")["commands"]
    assert len(retried) == 40 - commands["succeeded"]


def test_a_cap_that_cannot_be_kept_is_refused_at_once(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("%s", "1") + "max_cost: 0.001\n")
    flags = ("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
    lab.write("dear.yaml", (PIPELINE % "1").replace("command: sleep", "expect: 9h, command: sleep"))
    refused = lab(*("run", "dear.yaml", *flags[2:]), "--max-cost", "0.01", code=2).stderr
    assert "max_cost is $0.01, and the run is likely to cost" in refused
    assert not list(lab.folder.glob(".batchyard/runs/capped-*"))
    bad = lab(*flags, "--max-cost", "much", code=2).stderr
    assert "write US dollars above 0" in bad


@pytest.mark.slow
def test_a_run_can_be_stopped_at_its_cap(lab: Lab) -> None:
    lab.write("pipeline.yaml", (PIPELINE % "600") + "max_cost: 0.06\n")
    done = lab(
        *("run", "pipeline.yaml", "--engine", "aws", "--env", "lab"),
        *("--max-cost-action", "stop", "--json"),
        code=130,
    )
    document = json.loads(done.stdout)
    assert document["state"] == "STOPPED" and "max_cost is $0.06" in document["held"]
    assert (
        "While none of them watches, only the stack `caps` of the environment keeps it"
        in done.stderr
    )


@pytest.mark.slow
def test_a_single_command_is_stopped_at_its_cap(lab: Lab) -> None:
    flags = ("--engine", "aws", "--env", "lab", "--image", "x", "--memory", "64MiB")
    # A little more than 64 s of the dearest host that the queue may start: less is refused.
    cap = ("--max-cost", "0.0275", "--max-cost-action", "stop")
    done = lab("run", *flags, *cap, "--", "sleep", "100", code=130)
    assert reached_usd(done.stderr)[1] == 0.0275


@pytest.mark.slow
@pytest.mark.parametrize(("stops", "state"), [(False, "FAILED"), (True, "STOPPED")])
def test_the_function_of_the_template_keeps_a_cap_with_the_laptop_closed(
    lab: Lab, stops: bool, state: str
) -> None:
    # The code that CloudFormation gives to AWS Lambda, not the module that it comes from.
    function = cfn_yaml.load(read_template("caps"))["Resources"]["Keeper"]["Properties"]
    code: dict[str, Any] = {"__name__": "index"}
    exec(function["Code"]["ZipFile"], code)
    clients = {name: lab.patient(name) for name in ("s3", "batch", "ecs", "ec2")}

    def look() -> str:
        results = code["look_at_runs"](clients, BUCKET, "team/", time.time())
        return str(results.get(f"team/runs/.caps/{run}.json", "gone"))

    lab.write("pipeline.yaml", PIPELINE % ("600" if stops else "3"))
    action = ("--max-cost-action", "stop") if stops else ()
    run = lab.run("--detach", "--max-cost", "0.17", *action)
    results: list[str] = []
    while "over" not in results and len(results) < 100:
        results.append(look())
        time.sleep(0.2)
    assert set(results) <= {"go on", "stop" if stops else "hold", "over"} and len(results) > 1
    status = lab.status(run)
    assert status["state"] == state and "max_cost is $0.17" in status["held"]
    assert 0 <= status["steps"][0]["succeeded"] < 12 and not status["steps"][1]["succeeded"]
    # Nothing is left for the function to do.
    assert look() == "gone"
