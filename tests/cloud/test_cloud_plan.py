"""`plan --engine aws` shows the requests of a run, and sends none of them."""

from __future__ import annotations

import json
from typing import Any

from cloud_lab import Lab, calls, until

PIPELINE = """\
name: shown
image: busybox
defaults: {memory: 64MiB}
steps:
  - {name: a, array: 3, command: "echo a $AWS_BATCH_JOB_ARRAY_INDEX", max_running: 2}
  - {name: b, array: 3, needs: [{step: a, each: true}], command: echo b}
  - {name: c, needs: [b], command: echo c, retries: 2}
"""
WRITES = ("RegisterJobDefinition", "SubmitJob", "CreateConsumableResource", "PutObject")
ON_AWS = ("--engine", "aws", "--env", "lab")


def test_the_requests_of_a_run_are_shown_and_not_sent(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    before = calls(lab.endpoint)
    plan = lab.json("plan", "pipeline.yaml", *ON_AWS)
    sent = calls(lab.endpoint) - before
    assert not [name for name in sent if name.endswith(WRITES)], sent
    assert plan["engine"] == "aws" and [job["step"] for job in plan["jobs"]] == ["a", "b", "c"]
    operations = [request["operation"] for request in plan["requests"]]
    # The steps a and b have the same job definition.
    assert operations == [
        *("RegisterJobDefinition", "RegisterJobDefinition"),
        "CreateConsumableResource",
        *("SubmitJob", "SubmitJob", "SubmitJob"),
    ]
    assert {request["service"] for request in plan["requests"]} == {"batch"}
    # Whoever sends the requests as they are shown has the run.
    batch, job_ids = lab.patient("batch"), {}
    for request in plan["requests"]:
        answer = send(batch, request["operation"], request["request"], job_ids)
        if "jobId" in answer:
            job_ids[f"<id of {answer['jobName']}>"] = answer["jobId"]

    def states() -> set[str]:
        jobs = batch.describe_jobs(jobs=list(job_ids.values()))["jobs"]
        return {job["status"] for job in jobs}

    assert until(states, lambda found: found <= {"SUCCEEDED", "FAILED"}) == {"SUCCEEDED"}
    # The definitions exist now, so that a run would not register them.
    again = lab.json("plan", "pipeline.yaml", *ON_AWS)["requests"]
    assert "RegisterJobDefinition" not in {request["operation"] for request in again}
    assert again[-1]["request"]["jobDefinition"].endswith(":1")


def send(batch: Any, operation: str, request: dict[str, Any], job_ids: dict[str, str]) -> Any:
    text = json.dumps(request)
    for placeholder, job_id in job_ids.items():
        text = text.replace(placeholder, job_id)
    method = {
        "RegisterJobDefinition": batch.register_job_definition,
        "CreateConsumableResource": batch.create_consumable_resource,
        "SubmitJob": batch.submit_job,
    }[operation]
    return method(**json.loads(text))


def test_the_requests_are_also_text(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("shown", "text").replace("echo c", "echo d"))
    lines = lab("plan", "pipeline.yaml", *ON_AWS, "--on-demand").stdout.splitlines()
    assert lines[0] == "pipeline text: 3 steps, 7 children"
    assert lines.count("SubmitJob (not sent)") == 3
    assert '  "jobQueue": "steady",' in lines


def test_a_plan_that_aws_refuses_is_an_error(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("image: busybox\n", ""))
    for arguments in (ON_AWS, (*ON_AWS, "--json")):
        done = lab("plan", "pipeline.yaml", *arguments, code=2)
        assert done.stdout == ""
        assert "step 'a' has no image" in done.stderr
    assert "--env NAME" in lab("plan", "pipeline.yaml", "--engine", "aws", code=2).stderr
    assert "nowhere" in lab("plan", "pipeline.yaml", *ON_AWS[:-1], "nowhere", code=2).stderr


def test_a_plan_of_this_machine_has_no_requests(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    assert lab.json("plan", "pipeline.yaml")["requests"] == []
