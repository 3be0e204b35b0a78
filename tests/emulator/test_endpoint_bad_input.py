"""Whatever is sent to AWS Batch's operations, the answer is AWS's or AWS's refusal: never a 500,
never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape
from emulator_answers import MODEL, complaints, held_to_account, post
from emulator_endpoint import Endpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchyard.emulator.operations import OPERATIONS

#: names of what is there, and of what is not; texts that are at home nowhere
WORDS = [
    *(
        "off",
        "cpu",
        "never:1",
        "never",
        "policy",
        "licence",
        "x" * 300,
        "",
        " ",
        "-1",
        "0",
        "1",
        "1.5",
        "1e999",
        "nan",
    ),
    *(
        "9" * 5000,
        "ä",
        "\0",
        "\ud800",
        "a:b:c",
        ":",
        "::::::",
        "*",
        "Ref::x",
        "AWS_BATCH_X",
        "../..",
        "arn:aws:batch",
    ),
    *(
        "arn:aws:batch:us-east-1:123456789012:job-queue/off",
        "arn:aws:batch:us-east-1:123456789012:job-definition/never",
    ),
    *(
        "arn:aws:batch:us-east-1:123456789012:scheduling-policy/policy",
        "VCPU",
        "MEMORY",
        "FARGATE",
        "JOB_NAME",
        "SET",
    ),
]
NUMBERS = [
    -1,
    0,
    1,
    2,
    50,
    100,
    101,
    600,
    9999,
    10_001,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**63,
    10**400,
    1.5,
    1e308,
]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.sampled_from(WORDS),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just([[]]),
    st.just({"": None}),
    st.just({"name": {}}),
)


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    """There is something of each kind, and in the queue `off` nothing can ever start."""
    endpoint.environment("off")
    endpoint.queue("off", "off")
    endpoint.queue("on", endpoint.environment("on"))
    for name in ("cpu", "off"):
        endpoint.batch.update_compute_environment(computeEnvironment=name, state="DISABLED")
    endpoint.batch.create_scheduling_policy(name="policy")
    endpoint.batch.create_consumable_resource(consumableResourceName="licence", totalQuantity=1)
    endpoint.definition("never", "true")
    yield from held_to_account(endpoint)


@st.composite
def like(draw: st.DrawFn, shape: Shape, depth: int = 0) -> Any:
    """A value of the shape, mostly: here and there is junk in it."""
    if depth > 6 or draw(st.integers(0, 11)) == 0:
        return draw(JUNK)
    if isinstance(shape, StructureShape):
        optional = [name for name in shape.members if name not in shape.required_members]
        optional_members = (
            draw(st.lists(st.sampled_from(optional), max_size=4, unique=True)) if optional else []
        )
        members = [
            name
            for name in [*shape.required_members, *optional_members]
            if draw(st.integers(0, 19))
        ]
        return {name: draw(like(shape.members[name], depth + 1)) for name in members}
    if isinstance(shape, ListShape):
        return draw(st.lists(like(shape.member, depth + 1), max_size=3))
    if isinstance(shape, MapShape):
        return draw(
            st.dictionaries(st.sampled_from(WORDS), like(shape.value, depth + 1), max_size=3)
        )
    if isinstance(shape, StringShape):
        return draw(st.sampled_from(list(shape.enum) or WORDS))
    if shape.type_name == "boolean":
        return draw(st.booleans())
    return draw(st.sampled_from(NUMBERS))


def path_of(operation: str) -> tuple[str, str]:
    http = MODEL.operation_model(operation).http
    path = http["requestUri"].replace(
        "{resourceArn}", "arn:aws:batch:us-east-1:123456789012:job-queue/off"
    )
    return path, http["method"]


def is_answered(endpoint: Endpoint, operation: str, request: Any) -> None:
    path, method = path_of(operation)
    status, answer = post(endpoint, path, request, method)
    assert status in (200, 400), answer
    if status == 400:
        assert answer["message"]
    else:
        assert complaints(operation, answer) == []


@pytest.mark.parametrize("operation", sorted(OPERATIONS["batch"]))
@pytest.mark.parametrize(
    "junk", [None, 17, "x", [], [{}], {}, {"": ""}, {"jobs": 1, "jobQueue": [], "tags": "x"}]
)
def test_junk(endpoint: Endpoint, operation: str, junk: Any) -> None:
    is_answered(endpoint, operation, junk)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_requests_that_are_nearly_right(endpoint: Endpoint, data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from(sorted(OPERATIONS["batch"])))
    is_answered(endpoint, operation, data.draw(like(MODEL.operation_model(operation).input_shape)))


@given(like(MODEL.operation_model("SubmitJob").input_shape))
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_submissions_that_are_nearly_right(endpoint: Endpoint, request_: Any) -> None:
    if isinstance(request_, dict):
        request_ = {**request_, "jobName": "j", "jobQueue": "off", "jobDefinition": "never"}
    is_answered(endpoint, "SubmitJob", request_)


@given(
    like(MODEL.operation_model("RegisterJobDefinition").input_shape.members["containerProperties"])
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_containers_that_are_nearly_right(endpoint: Endpoint, container: Any) -> None:
    request = {"jobDefinitionName": "fuzz", "type": "container", "containerProperties": container}
    is_answered(endpoint, "RegisterJobDefinition", request)


@given(
    like(MODEL.operation_model("RegisterJobDefinition").input_shape.members["containerProperties"])
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_what_is_taken_comes_to_an_end(endpoint: Endpoint, container: Any) -> None:
    """It may well fail, but no container that was registered harms the endpoint."""
    if not isinstance(container, dict):
        container = {}
    requirements = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
    container |= {
        "image": "busybox",
        "command": ["true", "Ref::x"],
        "resourceRequirements": requirements,
    }
    request = {"jobDefinitionName": "runs", "type": "container", "containerProperties": container}
    if post(endpoint, "/v1/registerjobdefinition", request)[0] == 200:
        endpoint.wait(endpoint.submit("runs", "on", parameters={"x": "y"}))


def test_it_still_works_afterwards(endpoint: Endpoint) -> None:
    """Nothing that was taken has done any harm."""
    endpoint.queue("after", endpoint.environment("after"))
    assert endpoint.wait(endpoint.run("true", queue="after"))["status"] == "SUCCEEDED"
