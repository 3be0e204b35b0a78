"""Step Functions of moto, which executes state machines and calls this endpoint for their tasks.

A task with the resource `batch:submitJob.sync` submits a job here and waits for its end.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from batchyard.emulator import api_models

_OPERATIONS = {"describe_jobs": "DescribeJobs"}


def install(address: str, access_key: str) -> None:
    """Let the tasks of state machines call the endpoint at ``address``.

    moto calls port 5000 of this machine with a key of its own. It also leaves the members of a
    request as they are: in a state machine they begin with a capital letter, in AWS Batch they do
    not.
    """
    import boto3
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import (
        state_task_service_batch,
    )
    from moto.stepfunctions.parser.asl.utils import boto_client

    def make_client(**arguments: Any) -> Any:
        overrides = {"endpoint_url": address, "aws_access_key_id": access_key}
        return boto3.client(**{**arguments, **overrides})

    boto_client.boto3 = SimpleNamespace(client=make_client)  # type: ignore[attr-defined]
    tasks: Any = state_task_service_batch.StateTaskServiceBatch
    tasks._normalise_parameters = _rename_request_members
    tasks._normalise_response = _rename_response_members


def _rename_request_members(task: Any, parameters: Any, *_: Any, **__: Any) -> None:
    model = api_models.service_model("batch").operation_model("SubmitJob")
    task._to_boto_request(parameters, model.input_shape)


def _rename_response_members(
    task: Any,
    response: Any,
    boto_service_name: str | None = None,
    service_action_name: str | None = None,
) -> None:
    operation = _OPERATIONS.get(service_action_name or "", "SubmitJob")
    model = api_models.service_model("batch").operation_model(operation)
    task._from_boto_response(response, model.output_shape)
