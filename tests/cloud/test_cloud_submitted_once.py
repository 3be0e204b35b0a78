"""A step is one job of AWS Batch, whatever is lost between SubmitJob and its answer."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from cloud_lab import Lab, calls, run_of, set_faults, until

PIPELINE = """\
name: once
image: busybox
defaults: {memory: 4MiB}
steps:
  - {name: a, command: 'until [ -e "FOLDER/go" ]; do sleep 0.1; done'}
  - {name: b, needs: [a], array: 2, command: echo b}
"""
SHORT = """\
name: short
image: busybox
defaults: {{memory: 4MiB}}
steps:
  - {{name: a, command: {command}}}
"""


@pytest.fixture(autouse=True)
def pipeline(lab: Lab) -> Iterator[None]:
    lab.write("pipeline.yaml", PIPELINE.replace("FOLDER", str(lab.folder)))
    yield
    set_faults(lab.endpoint, "")


@pytest.fixture(autouse=True)
def expect_long_lags(lab: Lab) -> None:
    """Tests here let the endpoint lag by up to 3 s."""
    lab.environ["BATCHYARD_AWS_LAG_S"] = "5"


def count_jobs(lab: Lab, run: str) -> dict[str, int]:
    names = lab.job_names()
    return {name.removeprefix(f"{run}-"): names[name] for name in names if name.startswith(run)}


def find_jobs(lab: Lab, name: str) -> list[dict[str, str]]:
    """Return the jobs of this name, oldest first."""
    answer = lab.patient("batch").list_jobs(
        jobQueue="spot", filters=[{"name": "JOB_NAME", "values": [name]}]
    )
    return list(reversed(answer["jobSummaryList"]))


@pytest.mark.parametrize("lag_s", [0.5, pytest.param(2.0, marks=pytest.mark.slow)])
def test_a_lost_answer_to_submit_job_makes_no_second_job(lab: Lab, lag_s: float) -> None:
    lag = f"list-lag={lag_s},describe-lag={lag_s}"
    set_faults(lab.endpoint, f"lose@SubmitJob=2x,{lag}")
    run = lab.run("--detach")
    set_faults(lab.endpoint, "")
    assert count_jobs(lab, run) == {"a": 1, "b": 1}
    lab.write("go", "")
    assert "SUCCEEDED" in lab("status", run, "--watch").stdout


def test_a_client_that_is_killed_before_the_answer_submits_nothing_twice(lab: Lab) -> None:
    set_faults(lab.endpoint, "lose@SubmitJob=1x,list-lag=3,describe-lag=3")
    before = calls(lab.endpoint)["batch:SubmitJob"]
    process = lab.start("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", "--detach")
    until(lambda: calls(lab.endpoint)["batch:SubmitJob"] > before)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (path,) = (lab.folder / ".batchyard" / "runs").glob("once-*")
    lab("resume", path.name, "--detach")
    set_faults(lab.endpoint, "")
    assert count_jobs(lab, path.name) == {"a": 1, "b": 1}
    assert "STOPPED" in lab("stop", path.name).stdout


def test_every_job_has_the_token_of_its_call(lab: Lab) -> None:
    run = lab.run("--detach")
    journal = (lab.folder / ".batchyard" / "runs" / run / "submitted.jsonl").read_text()
    entries = [json.loads(line) for line in journal.splitlines()]
    tokens = {entry["intend"]: entry["token"] for entry in entries if "intend" in entry}
    for step in ("a", "b"):
        (job,) = find_jobs(lab, f"{run}-{step}")
        described = lab.endpoint.job(job["jobId"])
        assert described["tags"]["batchyard:submission"] == tokens[f"{run}-{step}"] != ""
    lab("stop", run)


def test_a_second_job_that_shows_up_after_all_is_ended_and_told(lab: Lab) -> None:
    """AWS shows the first job later than anybody waits for it."""
    lab.environ["BATCHYARD_AWS_LAG_S"] = "0.5"
    set_faults(lab.endpoint, "lose@SubmitJob=1x,list-lag=600,describe-lag=600")
    run = lab.run("--detach")
    set_faults(lab.endpoint, "")
    assert count_jobs(lab, run) == {"a": 2, "b": 1}
    first, second = find_jobs(lab, f"{run}-a")
    told = lab("status", run).stderr
    assert f"a second job of a, {first['jobId']}," in told and second["jobId"] in told
    ended = lab.endpoint.wait(first["jobId"])
    assert (ended["status"], ended["statusReason"]) == (
        "FAILED",
        f"a second job of the same step: {second['jobId']} counts",
    )
    lab.write("go", "")
    done = lab("status", run, "--watch")
    assert "SUCCEEDED" in done.stdout and first["jobId"] in done.stderr


def test_a_second_job_that_shows_up_after_the_end_of_the_run_is_ended(lab: Lab) -> None:
    lab.environ["BATCHYARD_AWS_LAG_S"] = "0.5"
    # The job whose answer is lost starts first, and stays.
    begun = lab.folder / "begun"
    command = f"mkdir '{begun}' && sleep 600 || true"
    lab.write("short.yaml", SHORT.format(command=json.dumps(command)))
    set_faults(lab.endpoint, "lose@SubmitJob=1x,list-lag=600")
    run = lab.run(file="short.yaml")
    set_faults(lab.endpoint, "")
    first, second = find_jobs(lab, f"{run}-a")
    assert (first["status"], second["status"]) == ("RUNNING", "SUCCEEDED")
    told = lab("status", run)
    assert "SUCCEEDED" in told.stdout and f"a second job of a, {first['jobId']}," in told.stderr
    assert lab.endpoint.wait(first["jobId"])["status"] == "FAILED"


def test_stop_ends_jobs_of_the_run_that_this_machine_does_not_know(lab: Lab) -> None:
    """Another machine has resumed the run at the same time, and submitted a step again."""
    run = lab.run("--detach")
    (job,) = find_jobs(lab, f"{run}-a")
    described = lab.endpoint.job(job["jobId"])
    command = ["sh", "-c", "sleep 600"]
    other = lab.patient("batch").submit_job(
        jobName=f"{run}-a",
        jobQueue="spot",
        jobDefinition=described["jobDefinition"],
        containerOverrides={"command": command},
    )
    # A run whose id begins the same way is another one.
    neighbour = lab.patient("batch").submit_job(
        jobName=f"{run}f-a",
        jobQueue="spot",
        jobDefinition=described["jobDefinition"],
        containerOverrides={"command": command},
    )
    assert "STOPPED" in lab("stop", run).stdout
    assert lab.endpoint.wait(other["jobId"])["statusReason"] == "stopped by the user"
    assert lab.endpoint.job(neighbour["jobId"])["status"] not in ("SUCCEEDED", "FAILED")
    lab.patient("batch").terminate_job(jobId=neighbour["jobId"], reason="the test is over")


def test_a_lag_that_is_no_number_is_refused_before_anything_is_submitted(lab: Lab) -> None:
    lab.environ["BATCHYARD_AWS_LAG_S"] = "soon"
    done = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", code=2)
    assert "BATCHYARD_AWS_LAG_S is 'soon'" in done.stderr
    assert count_jobs(lab, run_of(done)) == {}


@pytest.mark.slow
def test_a_lost_answer_to_a_job_of_plain_json_makes_no_second_job(lab: Lab) -> None:
    lab.endpoint.definition("plain", "true")
    request = {"jobName": "plain-json", "jobQueue": "spot", "jobDefinition": "plain"}
    for number, tags in enumerate(({}, {"team": "red"}), 1):
        set_faults(lab.endpoint, "lose@SubmitJob=1x,list-lag=1,describe-lag=1")
        lab("submit", "-", "--watch", stdin=json.dumps({**request, "tags": tags}))
        set_faults(lab.endpoint, "")
        assert lab.job_names()["plain-json"] == number
