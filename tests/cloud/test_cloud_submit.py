"""`batchyard submit`: jobs in plain JSON, all checked before the first is submitted."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from cloud_lab import Lab, calls, opened, set_faults
from emulator_endpoint import Endpoint


@pytest.fixture(scope="module", autouse=True)
def definitions(endpoint: Endpoint) -> None:
    endpoint.definition("good", "true")
    endpoint.definition("bad", "false")


def job(name: str, *needs: str, definition: str = "good", **more: Any) -> dict[str, Any]:
    depends_on = [{"jobId": need} for need in needs]
    return {
        "jobName": name,
        "jobQueue": "spot",
        "jobDefinition": definition,
        "dependsOn": depends_on,
        **more,
    }


def ids(text: str) -> dict[str, str]:
    return dict(line.split("\t") for line in text.splitlines())


def test_one_request(lab: Lab) -> None:
    lab.write("job.json", json.dumps(job("one")))
    (job_id,) = ids(lab("submit", "job.json", "--env", "lab").stdout).values()
    assert lab.endpoint.wait(job_id)["status"] == "SUCCEEDED"
    # Without an environment: as the profile and the variables say.
    (job_id,) = ids(lab("submit", "-", stdin=json.dumps(job("one"))).stdout).values()
    assert lab.endpoint.job(job_id)["jobName"] == "one"


@pytest.mark.slow
def test_several_that_name_each_other_in_any_order(lab: Lab) -> None:
    jobs = [
        job("last", "${left}", "${right}"),
        job("left", "${first}"),
        job("right", "${first}"),
        job("first"),
    ]
    lab.write("jobs.json", json.dumps({"jobs": jobs}))
    found = ids(lab("submit", "jobs.json", "--watch").stdout)
    described = {name: lab.endpoint.job(job_id) for name, job_id in found.items()}
    assert {one["status"] for one in described.values()} == {"SUCCEEDED"}
    assert {need["jobId"] for need in described["last"]["dependsOn"]} == {
        found["left"],
        found["right"],
    }
    assert [need["jobId"] for need in described["left"]["dependsOn"]] == [found["first"]]


def test_watching_says_how_it_ended(lab: Lab) -> None:
    text = json.dumps({"jobs": [job("a"), job("b", definition="bad"), job("c", "${b}")]})
    done = lab("submit", "-", "--watch", "--json", stdin=text, code=1)
    assert {one["jobName"]: one["status"] for one in json.loads(done.stdout)} == {
        "a": "SUCCEEDED",
        "b": "FAILED",
        "c": "FAILED",
    }
    lab("submit", "-", "--watch", stdin=json.dumps(job("a")), code=0)


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_submitted(lab: Lab) -> None:
    jobs: list[Any] = [
        job("fine"),
        job("no such name!", "${nobody}"),
        {"jobName": "shapeless", "jobQueue": "spot"},
        {"jobName": "unknown", "jobQueue": "nowhere", "jobDefinition": "good"},
        job("large", arrayProperties={"size": 10_001}),
        job("share", shareIdentifier="team"),
        job("needy", *[f"id-{n}" for n in range(21)]),
        job("wordy", parameters={"text": "x" * 31_000}),
        job("typo", jobQueu="spot"),
    ]
    lab.write("jobs.json", json.dumps({"jobs": jobs}))
    before = calls(lab.endpoint)
    said = lab("submit", "jobs.json", code=2).stderr
    for words in (
        "jobs[1] (no such name!): jobName must be",
        "jobs[1]: dependsOn names ${nobody}",
        'jobs[2] (shapeless): Missing required parameter in input: "jobDefinition"',
        "jobs[3] (unknown): there is no job queue nowhere",
        "jobs[4] (large): an array has 2 to 10,000 children, not 10001",
        "jobs[5] (share): job queue spot has no fair-share policy",
        "jobs[6] (needy): 21 dependencies, and AWS takes 20",
        "jobs[7] (wordy): the request has",
        'jobs[8] (typo): Unknown parameter in input: "jobQueu"',
    ):
        assert words in said, said
    assert "jobs[0]" not in said
    after = calls(lab.endpoint)
    assert after["batch:SubmitJob"] == before["batch:SubmitJob"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ("3", "expected a SubmitJob request"),
        (json.dumps([job("a", "${b}"), job("b", "${a}")]), "in a circle"),
    ],
)
def test_what_cannot_be_read_is_said(lab: Lab, text: str, words: str) -> None:
    assert words in lab("submit", "-", stdin=text, code=2).stderr
    assert "nothing.json: there is no such file" in lab("submit", "nothing.json", code=2).stderr


def test_a_definition_that_cannot_be_used_is_said_before_anything_is_submitted(lab: Lab) -> None:
    batch = lab.endpoint.batch
    gone = lab.endpoint.definition("gone", "true")
    batch.deregister_job_definition(jobDefinition=gone)
    (known,) = batch.describe_job_definitions(jobDefinitionName="good", status="ACTIVE")[
        "jobDefinitions"
    ]
    arn = known["jobDefinitionArn"]
    names = [
        "nothing",
        "good:7",
        gone,
        "gone",
        arn.replace("good", "other"),
        arn.rpartition(":")[0] + "x",
    ]
    before = calls(lab.endpoint)["batch:SubmitJob"]
    said = lab(
        "submit",
        "-",
        stdin=json.dumps([job("a"), *(job("b", definition=name) for name in names)]),
        code=2,
    ).stderr
    for number, name in enumerate(names, 1):
        assert f"jobs[{number}] (b): there is no job definition {name}, or none" in said, said
    assert calls(lab.endpoint)["batch:SubmitJob"] == before
    right = ["good", "good:1", arn, arn.rpartition(":")[0]]
    lab("submit", "-", "--watch", stdin=json.dumps([job("a", definition=name) for name in right]))


def test_nothing_is_submitted_where_a_later_job_cannot_be(lab: Lab) -> None:
    """What the service alone would say, of each job at its turn."""
    nothing = {"consumableResourceList": [{"consumableResource": "nothing", "quantity": 1}]}
    jobs = [
        job("a", arrayProperties={"size": 3}),
        job("b", arrayProperties={"size": 4}, dependsOn=[{"jobId": "${a}", "type": "N_TO_N"}]),
        job("c", "x${a}y"),
        job("d", "6fc8cf2c-4d4b-4fd5-a7f0-000000000000"),
        job("e", timeout={"attemptDurationSeconds": 5}),
        job("f", consumableResourcePropertiesOverride=nothing),
        job("g", containerOverrides={"environment": [{"name": "AWS_BATCH_JOB_ID", "value": "x"}]}),
    ]
    before = calls(lab.endpoint)["batch:SubmitJob"]
    said = lab("submit", "-", stdin="\ufeff" + json.dumps({"jobs": jobs}), code=2).stderr
    for words in (
        "jobs[1] (b): N_TO_N needs two arrays of one size: 'b' has 4 children, 'a' has 3",
        "jobs[2] (c): dependsOn: jobId must be",
        "jobs[3] (d): no job has the id 6fc8cf2c",
        "jobs[4] (e): attemptDurationSeconds must be at least 60",
        "jobs[5] (f): there is no consumable resource nothing",
        "jobs[6] (g): Environment variables must not start with AWS_BATCH",
    ):
        assert words in said, said
    assert "jobs[0]" not in said and calls(lab.endpoint)["batch:SubmitJob"] == before


def test_a_job_outside_of_the_file_may_be_waited_for(lab: Lab) -> None:
    (first,) = ids(
        lab("submit", "-", stdin=json.dumps(job("a", arrayProperties={"size": 2}))).stdout
    ).values()
    pair = job("b", arrayProperties={"size": 2}, dependsOn=[{"jobId": first, "type": "N_TO_N"}])
    lab("submit", "-", "--watch", stdin=json.dumps([pair, job("c", f"{first}:1")]))
    wrong = {**pair, "arrayProperties": {"size": 3}}
    assert (
        "'b' has 3 children, 'a' has 2"
        in lab("submit", "-", stdin=json.dumps(wrong), code=2).stderr
    )


def test_a_job_outside_of_the_file_may_be_so_new_that_aws_does_not_show_it(
    lab: Lab, calm: None
) -> None:
    set_faults(lab.endpoint, "describe-lag=0.7,list-lag=0.7")
    (first,) = ids(lab("submit", "-", stdin=json.dumps(job("new"))).stdout).values()
    lab("submit", "-", stdin=json.dumps(job("newer", first)))


@pytest.mark.slow
def test_a_lost_answer_is_not_mistaken_for_an_older_job_of_the_name(tmp_path: Path) -> None:
    """Names are the user's: nine submissions are nine jobs, whatever happens at the endpoint."""
    calm = opened(tmp_path / "endpoint", "--cpus", "2")
    calm.definition("good", "true")
    calm.stop()
    # Of all calls together few enough that none fails as often in a row as the client tries.
    endpoint = Endpoint(
        tmp_path / "endpoint", "--cpus", "2", "--faults", "throttle=0.05,lose=0.3,error=0.05"
    )
    try:
        lab = Lab(tmp_path / "lab", endpoint)
        text = json.dumps([job("same")] * 3)
        found = [one["jobId"] for _ in range(3) for one in lab.json("submit", "-", stdin=text)]
        assert len(set(found)) == 9
        assert lab.job_names()["same"] == 9
    finally:
        endpoint.stop(signal.SIGKILL)
