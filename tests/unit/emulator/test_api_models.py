"""AWS's own description of its API: routes, and requests of the wrong shape."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.emulator import api_models
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.operations import OPERATIONS


def shape_of(operation: str, service: str = "batch") -> Any:
    return api_models.service_model(service).operation_model(operation).input_shape


@pytest.mark.parametrize("operation", sorted(OPERATIONS["batch"]))
def test_every_operation_has_its_route(operation: str) -> None:
    """facts, 1.2: POST /v1/<operation in lower case>, but for tags."""
    if operation not in api_models.service_model("batch").operation_names:
        pytest.skip("this botocore does not know it")
    methods = {"TagResource": "POST", "UntagResource": "DELETE", "ListTagsForResource": "GET"}
    if method := methods.get(operation, ""):
        path, members = (
            "/v1/tags/arn:aws:batch:r:1:job-queue/q",
            {"resourceArn": "arn:aws:batch:r:1:job-queue/q"},
        )
    else:
        method, path, members = "POST", f"/v1/{operation.lower()}", {}
    assert api_models.find_operation("batch", method, path) == (operation, members)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/describejobs"),
        ("POST", "/v1/DescribeJobs"),
        ("POST", "/v1/describejobs/"),
        ("POST", "/x/v1/describejobs"),
        ("POST", "/v2/describejobs"),
        ("POST", "/"),
        ("GET", "/v1/tags/"),
    ],
)
def test_what_is_no_route(method: str, path: str) -> None:
    assert api_models.find_operation("batch", method, path) is None


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ([], "the request should be an object"),
        ({}, "jobName must not be null"),
        ({"jobName": 1}, "must not be null"),
        ({"jobName": 1, "jobQueue": "q", "jobDefinition": "d"}, "jobName should be a string"),
        ({"arrayProperties": 3}, "arrayProperties should be an object"),
        ({"arrayProperties": {"size": "3"}}, r"arrayProperties.size should be a whole number"),
        ({"arrayProperties": {"size": True}}, "arrayProperties.size should be a whole number"),
        ({"arrayProperties": {"size": 2.0}}, "arrayProperties.size should be a whole number"),
        ({"dependsOn": {}}, "dependsOn should be a list"),
        ({"dependsOn": [[]]}, r"dependsOn\[0\] should be an object"),
        (
            {"dependsOn": [{"type": "n_to_n"}]},
            r"dependsOn\[0\].type should be one of N_TO_N, SEQUENTIAL",
        ),
        ({"parameters": {"a": 1}}, "parameters.a should be a string"),
        ({"propagateTags": "true"}, "propagateTags should be true or false"),
        (
            {"retryStrategy": {"evaluateOnExit": [{}]}},
            r"evaluateOnExit\[0\].action must not be null",
        ),
        (
            {"retryStrategy": {"evaluateOnExit": [{"action": "STOP"}]}},
            "action should be one of RETRY, EXIT",
        ),
    ],
)
def test_requests_of_a_wrong_shape(request_: Any, message: str) -> None:
    base = (
        {}
        if request_ in ([], {}, {"jobName": 1})
        else {"jobName": "n", "jobQueue": "q", "jobDefinition": "d"}
    )
    request = request_ if isinstance(request_, list) else {**base, **request_}
    with pytest.raises(InvalidRequestError, match=message):
        api_models.check_shape(shape_of("SubmitJob"), request)


@pytest.mark.parametrize("action", ["RETRY", "retry", "Exit", "eXIT"])
def test_the_actions_of_a_retry_strategy_in_any_case(action: str) -> None:
    """facts, 1.4.4; of other words the case matters."""
    strategy = {"attempts": 2, "evaluateOnExit": [{"action": action}]}
    request = {"jobName": "n", "jobQueue": "q", "jobDefinition": "d", "retryStrategy": strategy}
    api_models.check_shape(shape_of("SubmitJob"), request)


def test_nulls_and_unknown_members_are_passed_over() -> None:
    """As AWS does: a null is as good as nothing."""
    request = {"jobs": ["a"], "colour": "red"}
    api_models.check_shape(shape_of("DescribeJobs"), request)
    assert api_models.drop_unknown_members(shape_of("DescribeJobs"), request) == {"jobs": ["a"]}
    request = {
        "jobName": "n",
        "jobQueue": "q",
        "jobDefinition": "d",
        "timeout": None,
        "dependsOn": [{"jobId": "x", "type": None, "colour": "red"}],
        "tags": {"colour": "red"},
    }
    api_models.check_shape(shape_of("SubmitJob"), request)
    assert api_models.drop_unknown_members(shape_of("SubmitJob"), request) == {
        "jobName": "n",
        "jobQueue": "q",
        "jobDefinition": "d",
        "dependsOn": [{"jobId": "x"}],
        "tags": {"colour": "red"},
    }


def test_cloudformations_spelling() -> None:
    """Upper case at the beginning, and numbers and booleans that come as strings."""
    properties = {
        "JobQueueName": "q",
        "Priority": "5",
        "ComputeEnvironmentOrder": [{"Order": "1", "ComputeEnvironment": "ce"}],
        "Tags": {"Of": "mine"},
        "NoSuch": 1,
    }
    assert api_models.from_cloudformation(shape_of("CreateJobQueue"), properties) == {
        "jobQueueName": "q",
        "priority": 5,
        "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": "ce"}],
        "tags": {"Of": "mine"},
    }
    assert api_models.from_cloudformation(
        shape_of("SubmitJob"), {"PropagateTags": "true", "JobName": 3}
    ) == {
        "propagateTags": True,
        "jobName": "3",
    }
