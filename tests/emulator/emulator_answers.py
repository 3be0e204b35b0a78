"""Answers of AWS Batch held against AWS's own description of them, and what an endpoint must
never have said."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape
from emulator_endpoint import Endpoint

MODEL = ServiceModel(Loader().load_service_model("batch", "service-2"), "batch")
#: required by the description, and yet there only once a job is RUNNING (facts, 1.2)
_NOT_ALWAYS = {("JobDetail", "startedAt")}


def complaints(operation: str, answer: Any) -> list[str]:
    """What in an answer's JSON is not as AWS describes it: members it does not know, types,
    missing members, words."""
    shape = MODEL.operation_model(operation).output_shape
    return _complaints(shape, answer, operation)


def _complaints(shape: Shape, value: Any, place: str) -> list[str]:
    if isinstance(shape, StructureShape):
        if not isinstance(value, dict):
            return [f"{place} is no object: {value!r}"]
        problems = [f"{place}.{name} is unknown" for name in value if name not in shape.members]
        missing = [name for name in shape.required_members if name not in value]
        problems += [
            f"{place}.{name} is missing"
            for name in missing
            if (shape.name, name) not in _NOT_ALWAYS
        ]
        for name in value:
            if name in shape.members:
                problems += _complaints(shape.members[name], value[name], f"{place}.{name}")
        return problems
    if isinstance(shape, ListShape):
        if not isinstance(value, list):
            return [f"{place} is no list: {value!r}"]
        return [
            problem
            for number, item in enumerate(value)
            for problem in _complaints(shape.member, item, f"{place}[{number}]")
        ]
    if isinstance(shape, MapShape):
        if not isinstance(value, dict):
            return [f"{place} is no object: {value!r}"]
        return [
            problem
            for key, item in value.items()
            for problem in _complaints(shape.value, item, f"{place}.{key}")
        ]
    return [] if _is_right(shape, value) else [f"{place} should be {shape.type_name}: {value!r}"]


def _is_right(shape: Shape, value: Any) -> bool:
    if isinstance(shape, StringShape):
        return isinstance(value, str) and (
            not shape.enum or value in shape.enum or value.upper() in shape.enum
        )
    if shape.type_name in ("integer", "long"):
        return isinstance(value, int) and not isinstance(value, bool)
    if shape.type_name in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, bool)


def held_to_account(endpoint: Endpoint) -> Iterator[None]:
    """For a fixture of a module: every answer to `endpoint.batch` is as AWS describes it, and
    stderr has no traceback.

    botocore passes over what it does not know, so the look is at the answer before botocore
    reads it.
    """
    looked_at: set[str] = set()
    problems: list[str] = []

    def look(operation_model: Any, response_dict: Any, **_: Any) -> None:
        if response_dict["status_code"] == 200:
            looked_at.add(operation_model.name)
            problems.extend(complaints(operation_model.name, json.loads(response_dict["body"])))

    endpoint.batch.meta.events.register("before-parse.batch", look)
    endpoint.batch.describe_job_queues()
    assert looked_at == {"DescribeJobQueues"}, "botocore has no such event any more"
    yield
    assert sorted(set(problems)) == []
    assert_no_traceback(endpoint)


def assert_no_traceback(endpoint: Endpoint) -> None:
    output = endpoint.said.read_text()
    assert "Traceback" not in output and "Error on request" not in output, output[-4000:]


@contextmanager
def refused(*texts: str) -> Iterator[None]:
    """What is done within is answered with AWS Batch's ClientException, status 400, and these
    words."""
    with pytest.raises(ClientError) as caught:
        yield
    error, metadata = caught.value.response["Error"], caught.value.response["ResponseMetadata"]
    assert (error["Code"], metadata["HTTPStatusCode"]) == ("ClientException", 400), error
    for text in texts:
        assert text in error["Message"]


def post(endpoint: Endpoint, path: str, body: object, method: str = "POST") -> tuple[int, Any]:
    """A request that no client of AWS would send: any JSON, or any bytes. Status and answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    address = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=300)
    try:
        connection.request(method, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
