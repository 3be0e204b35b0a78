"""Step Functions: a state machine submits jobs to the endpoint and waits for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from emulator_endpoint import Endpoint, until

ROLE = "arn:aws:iam::123456789012:role/states"


def execute(endpoint: Endpoint, name: str, definition: str, **members: Any) -> Any:
    """Return the ended execution of a machine whose only state submits a job."""
    parameters = {"JobName": name, "JobQueue": "queue", "JobDefinition": definition, **members}
    resource = "arn:aws:states:::batch:submitJob.sync"
    machine = {
        "StartAt": "Job",
        "States": {
            "Job": {"Type": "Task", "Resource": resource, "Parameters": parameters, "End": True}
        },
    }
    states = endpoint.client("stepfunctions")
    arn = states.create_state_machine(name=name, definition=json.dumps(machine), roleArn=ROLE)
    execution = states.start_execution(stateMachineArn=arn["stateMachineArn"], input="{}")
    return until(
        lambda: states.describe_execution(executionArn=execution["executionArn"]),
        lambda description: description["status"] != "RUNNING",
        60,
    )


def find_jobs(endpoint: Endpoint, name: str) -> list[Any]:
    filters = [{"name": "JOB_NAME", "values": [name]}]
    return list(endpoint.batch.list_jobs(jobQueue="queue", filters=filters)["jobSummaryList"])


def test_a_task_submits_a_job_and_waits_for_its_success(endpoint: Endpoint) -> None:
    definition = endpoint.definition("good", "sh", "-c", "sleep 1; echo $WORD $MANAGED_BY_AWS")
    overrides = {"Environment": [{"Name": "WORD", "Value": "hello"}]}
    execution = execute(endpoint, "good", definition, ContainerOverrides=overrides)
    assert execution["status"] == "SUCCEEDED"
    (job,) = find_jobs(endpoint, "good")
    assert job["status"] == "SUCCEEDED"
    assert json.loads(execution["output"])["JobId"] == job["jobId"]
    assert endpoint.output(job["jobId"]) == ["hello STARTED_BY_STEP_FUNCTIONS"]


@pytest.mark.parametrize("definition", ["bad", "nothing"])
def test_a_failed_or_refused_job_fails_the_execution(endpoint: Endpoint, definition: str) -> None:
    endpoint.definition("bad", "false")
    execution = execute(endpoint, f"fails-{definition}", definition)
    assert execution["status"] == "FAILED"
    states = [job["status"] for job in find_jobs(endpoint, f"fails-{definition}")]
    assert states == (["FAILED"] if definition == "bad" else [])
