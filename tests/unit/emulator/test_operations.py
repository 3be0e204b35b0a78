"""The table of operations, held against botocore's models."""

from __future__ import annotations

import pytest

from batchyard.emulator import api_models, operations
from batchyard.emulator.api_errors import ApiError, InvalidRequestError

SERVICES = sorted({*operations.OPERATIONS, *operations.ADDITIONS})


@pytest.mark.parametrize("service", SERVICES)
def test_aws_has_each_operation_of_the_table(service: str) -> None:
    ours = {*operations.OPERATIONS.get(service, {}), *operations.ADDITIONS.get(service, {})}
    assert ours <= set(api_models.service_model(service).operation_names)


@pytest.mark.parametrize("service", SERVICES)
def test_the_endpoint_speaks_the_protocol_of_each_service(service: str) -> None:
    protocol = api_models.service_model(service).metadata["protocol"]
    assert protocol == ("rest-json" if service == "batch" else "json")


def test_an_operation_that_is_not_in_the_table_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidRequestError, match="SubmitServiceJob is not an operation"):
        operations.check_request("batch", "SubmitServiceJob", {})


def test_a_member_that_does_not_fit_has_the_error_code_of_its_service() -> None:
    with pytest.raises(ApiError, match="jobs must not be null") as batch:
        operations.check_request("batch", "DescribeJobs", {})
    with pytest.raises(ApiError, match="containerInstances must not be null") as ecs:
        operations.check_request("ecs", "DescribeContainerInstances", {"cluster": "x"})
    assert (batch.value.code, ecs.value.code) == ("ClientException", "InvalidParameterException")


def test_unknown_members_and_nulls_are_dropped() -> None:
    request = {"jobs": ["a"], "other": 1}
    assert operations.check_request("batch", "DescribeJobs", request) == {"jobs": ["a"]}
    request = {"logGroupNamePrefix": None, "limit": 3}
    assert operations.check_request("logs", "DescribeLogGroups", request) == {"limit": 3}


def test_members_that_aws_has_added_since_are_known() -> None:
    breaker = {
        "enable": True,
        "rollback": True,
        "resetOnHealthyTask": False,
        "thresholdConfiguration": {"type": "COUNT", "value": 5},
    }
    request = {
        "serviceName": "a",
        "deploymentConfiguration": {"deploymentCircuitBreaker": breaker},
    }
    assert operations.check_request("ecs", "CreateService", request) == request
    breaker["thresholdConfiguration"] = {"type": "SOME", "value": 5}
    with pytest.raises(ApiError, match="one of COUNT, BOUNDED_PERCENT"):
        operations.check_request("ecs", "CreateService", request)
