"""Requests and answers of the endpoint over WSGI, with an endpoint and a moto that tests script."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import pytest
from werkzeug.test import Client
from werkzeug.wrappers import Request, Response

from batchyard.emulator import api_errors
from batchyard.emulator.faults import FaultInjector, FaultSettings
from batchyard.emulator.http_application import ApiCall, HttpApplication, identify_call

HOST = {"Host": "127.0.0.1:4577"}
LOGS = "Logs_20140328"
ECS = "AmazonEC2ContainerServiceV20141113"


def signature(service: str, region: str = "us-east-1") -> dict[str, str]:
    scope = f"key/20260101/{region}/{service}/aws4_request"
    header = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
    return {"Authorization": header}


class ScriptedEndpoint:
    """Performs nothing; returns or raises ``outcome``."""

    region = "us-east-1"
    metadata_path = "/imds/secret/"

    def __init__(self, outcome: Any = None) -> None:
        self.outcome = outcome
        self.performed: list[tuple[str, str, dict[str, Any]]] = []
        self.regions: list[str] = []

    def perform(self, region: str, service: str, operation: str, request: dict[str, Any]) -> Any:
        self.regions.append(region)
        self.performed.append((service, operation, request))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def perform_batch(self, region: str, operation: str, request: dict[str, Any]) -> Any:
        return self.perform(region, "batch", operation, request)

    def add_to_answer(
        self, region: str, service: str, operation: str, request: Any, answer: Any
    ) -> Any:
        return {**answer, "added": [service, operation, request]}

    def answer_metadata(self, task: str, method: str, path: str, headers: dict[str, str]) -> Any:
        return 404, {"Content-Type": "text/html"}, f"{task} {path} {headers['X-Name']}".encode()


def moto(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answers with the request that it received."""
    request = Request(environ)
    echo = {
        "body": request.get_data(as_text=True),
        "authorization": request.headers.get("Authorization"),
    }
    return Response(json.dumps(echo))(environ, start_response)


def client(endpoint: ScriptedEndpoint, **options: Any) -> Client:
    return Client(HttpApplication(endpoint, moto, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "path", "headers", "call"),
    [
        ("POST", "/v1/describejobs", {}, ("batch", "DescribeJobs", {})),
        ("POST", "/v1/describejobs", signature("batch"), ("batch", "DescribeJobs", {})),
        ("POST", "/v1/describejobs", signature("s3"), ("s3", "POST", {})),
        ("GET", "/v1/nothing", signature("batch"), ("batch", "GET", {})),
        ("GET", "/v1/tags/arn:x", {}, ("batch", "ListTagsForResource", {"resourceArn": "arn:x"})),
        ("POST", "/", {"X-Amz-Target": f"{LOGS}.GetLogEvents"}, ("logs", "GetLogEvents", {})),
        ("POST", "/", {"X-Amz-Target": f"{ECS}.ListTasks"}, ("ecs", "ListTasks", {})),
        (
            "POST",
            "/",
            {**signature("secretsmanager"), "X-Amz-Target": "secretsmanager.ListSecrets"},
            ("secretsmanager", "ListSecrets", {}),
        ),
        ("GET", "/bucket/key", {}, ("?", "GET", {})),
    ],
)
def test_service_and_operation_of_a_request(
    method: str, path: str, headers: dict[str, str], call: tuple[str, str, dict[str, str]]
) -> None:
    request = Request.from_values(path, method=method, headers=headers)
    assert identify_call(request) == ApiCall(*call)


def test_an_operation_of_aws_batch() -> None:
    endpoint = ScriptedEndpoint({"jobs": []})
    answer = client(endpoint).post("/v1/describejobs", json={"jobs": ["a"]}, headers=HOST)
    assert (answer.status_code, answer.json) == (200, {"jobs": []})
    assert answer.headers["Content-Type"] == "application/json"
    assert len(answer.headers["x-amzn-RequestId"]) == 36
    assert endpoint.performed == [("batch", "DescribeJobs", {"jobs": ["a"]})]


def test_members_in_the_path_and_in_the_query() -> None:
    endpoint = ScriptedEndpoint({})
    arn = "arn:aws:batch:us-east-1:123456789012:job-queue/q"
    client(endpoint).delete(f"/v1/tags/{arn}?tagKeys=a&tagKeys=b%20c", headers=HOST)
    expected = {"resourceArn": arn, "tagKeys": ["a", "b c"]}
    assert endpoint.performed == [("batch", "UntagResource", expected)]


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (api_errors.InvalidRequestError("wrong"), 400, "wrong"),
        (api_errors.ServerError("stopping"), 500, "stopping"),
    ],
)
def test_errors_of_aws_batch(error: api_errors.ApiError, status: int, message: str) -> None:
    answer = client(ScriptedEndpoint(error)).post("/v1/describejobs", headers=HOST)
    assert (answer.status_code, answer.json) == (status, {"message": message})
    assert answer.headers["x-amzn-ErrorType"] == error.code


def test_an_invalid_submission_has_the_request_id_in_its_message() -> None:
    error = api_errors.RequestExecutionError("no image")
    answer = client(ScriptedEndpoint(error)).post("/v1/submitjob", headers=HOST)
    request_id = answer.headers["x-amzn-RequestId"]
    expected = f"Error executing request, Exception : no image, RequestId: {request_id}"
    assert answer.json == {"message": expected}


def test_the_signature_names_the_region() -> None:
    endpoint = ScriptedEndpoint({})
    http = client(endpoint)
    http.post("/v1/describejobs", headers={**HOST, **signature("batch", "eu-west-1")})
    http.post("/v1/describejobs", headers=HOST)
    assert endpoint.regions == ["eu-west-1", "us-east-1"]


@pytest.mark.parametrize("service", ["batch", "logs", "ec2"])
def test_what_is_no_region_is_refused(service: str) -> None:
    endpoint = ScriptedEndpoint({})
    headers = {**HOST, **signature(service, "Mars")}
    if service == "logs":
        headers["X-Amz-Target"] = "Logs_20140328.GetLogEvents"
    path = "/v1/describejobs" if service == "batch" else "/"
    answer = client(endpoint).post(path, headers=headers)
    assert answer.status_code == 400
    assert "'Mars', which is not the name of a region" in answer.get_data(as_text=True)
    assert endpoint.performed == []


def test_a_chunked_body_is_read_to_its_end() -> None:
    endpoint = ScriptedEndpoint({})
    body = b'{"jobs": ["a"]}'
    client(endpoint).post(
        "/v1/describejobs",
        headers={**HOST, "Transfer-Encoding": "chunked"},
        environ_overrides={
            "wsgi.input": io.BytesIO(body),
            "wsgi.input_terminated": True,
            "CONTENT_LENGTH": "",
        },
    )
    assert endpoint.performed == [("batch", "DescribeJobs", {"jobs": ["a"]})]


def test_a_body_that_breaks_off_is_not_performed() -> None:
    endpoint = ScriptedEndpoint({})
    answer = client(endpoint).post(
        "/v1/describejobs",
        headers=HOST,
        environ_overrides={"wsgi.input": io.BytesIO(b"{}"), "CONTENT_LENGTH": "20"},
    )
    assert answer.status_code == 400
    assert endpoint.performed == []


def test_an_operation_of_a_json_service_and_its_error() -> None:
    headers = {**HOST, "X-Amz-Target": f"{LOGS}.GetLogEvents"}
    answer = client(ScriptedEndpoint({"events": []})).post("/", data="{}", headers=headers)
    assert answer.headers["Content-Type"] == "application/x-amz-json-1.1"
    assert answer.get_json(force=True) == {"events": []}
    error = api_errors.ApiError("ResourceNotFoundException", "no stream")
    answer = client(ScriptedEndpoint(error)).post("/", data="{}", headers=headers)
    expected = {"__type": "ResourceNotFoundException", "message": "no stream"}
    assert (answer.status_code, answer.get_json(force=True)) == (400, expected)


def test_moto_gets_the_body_again_and_the_service_of_an_unsigned_request() -> None:
    headers = {**HOST, "X-Amz-Target": f"{ECS}.ListContainerInstances"}
    answer = client(ScriptedEndpoint(None)).post("/", data='{"cluster": "x"}', headers=headers)
    echo = answer.get_json(force=True)
    assert echo["body"] == '{"cluster": "x"}'
    assert "/us-east-1/ecs/aws4_request" in echo["authorization"]


def test_an_answer_of_moto_with_additions() -> None:
    headers = {**HOST, "X-Amz-Target": f"{LOGS}.DescribeLogGroups"}
    body = '{"limit": 5, "logGroupNamePrefix": null}'
    echo = client(ScriptedEndpoint()).post("/", data=body, headers=headers).get_json(force=True)
    assert json.loads(echo["body"]) == {"limit": 5}
    assert echo["added"] == ["logs", "DescribeLogGroups", {"limit": 5}]


def test_all_other_requests_go_to_moto_as_they_are() -> None:
    answer = client(ScriptedEndpoint()).put("/bucket/key", data="content", headers=HOST)
    assert answer.get_json(force=True) == {"body": "content", "authorization": None}


def test_the_metadata_service_gets_task_path_and_headers() -> None:
    headers = {**HOST, "X-Name": "value"}
    answer = client(ScriptedEndpoint()).get("/imds/secret/task/latest/x", headers=headers)
    assert (answer.status_code, answer.get_data(as_text=True)) == (404, "task /latest/x value")
    assert answer.headers["Content-Type"].startswith("text/html")


def test_calls_are_counted_by_service_and_operation() -> None:
    http = client(ScriptedEndpoint({}))
    for _ in range(2):
        http.post("/v1/describejobs", headers=HOST)
    http.get("/bucket", headers={**HOST, **signature("s3")})
    counts = http.get("/_batchyard/calls", headers=HOST).json
    assert counts == {"batch:DescribeJobs": 2, "s3:GET": 1}
    assert http.get("/_batchyard/other", headers=HOST).status_code == 404


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("throttle", 429, "TooManyRequestsException"),
        ("error", 500, "ServerException"),
        ("expire", 403, "ExpiredTokenException"),
    ],
)
def test_a_fault_is_answered_and_the_request_is_not_performed(
    kind: str, status: int, code: str
) -> None:
    endpoint = ScriptedEndpoint({})
    http = client(endpoint, faults=FaultInjector(FaultSettings.parse(f"{kind}=1")))
    answer = http.post("/v1/describejobs", json={"jobs": ["a"]}, headers=HOST)
    assert (answer.status_code, answer.headers["x-amzn-ErrorType"]) == (status, code)
    assert endpoint.performed == []


class Socket:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def setsockopt(self, *_: object) -> None:
        self.calls.append("setsockopt")

    def shutdown(self, _: int) -> None:
        self.calls.append("shutdown")


@pytest.mark.parametrize(("kind", "performed"), [("reset", 0), ("lose", 1)])
def test_a_broken_connection_before_and_after_the_request_is_performed(
    kind: str, performed: int
) -> None:
    endpoint, connection = ScriptedEndpoint({}), Socket()
    http = client(endpoint, faults=FaultInjector(FaultSettings.parse(f"{kind}=1")))
    http.post("/v1/describejobs", headers=HOST, environ_overrides={"werkzeug.socket": connection})
    assert len(endpoint.performed) == performed
    assert connection.calls == ["setsockopt", "shutdown"]


@pytest.mark.parametrize(
    ("kind", "service", "status", "code"),
    [
        ("throttle", "s3", 503, "SlowDown"),
        ("throttle", "logs", 400, "ThrottlingException"),
        ("expire", "s3", 400, "ExpiredToken"),
    ],
)
def test_a_fault_has_the_error_code_of_its_service(
    kind: str, service: str, status: int, code: str
) -> None:
    http = client(ScriptedEndpoint(), faults=FaultInjector(FaultSettings.parse(f"{kind}=1")))
    answer = http.get("/", headers={**HOST, **signature(service)})
    assert answer.status_code == status and code in answer.text


def test_a_cut_answer_has_its_length_in_the_header_and_half_of_its_body() -> None:
    endpoint = ScriptedEndpoint({"jobs": []})
    http = client(endpoint, faults=FaultInjector(FaultSettings.parse("cut=1")))
    answer = http.post("/v1/describejobs", headers=HOST)
    assert (answer.get_data(), answer.headers["Content-Length"]) == (b'{"jobs', "12")
    assert len(endpoint.performed) == 1


def test_an_observer_meets_no_faults() -> None:
    http = client(ScriptedEndpoint({}), faults=FaultInjector(FaultSettings.parse("error=1")))
    observer = signature("batch")["Authorization"].replace("=key/", "=observer/")
    headers = {**HOST, "Authorization": observer}
    assert http.post("/v1/describejobs", headers=headers).status_code == 200


def test_faults_are_replaced_while_the_endpoint_serves() -> None:
    http = client(ScriptedEndpoint({}), faults=FaultInjector(FaultSettings.parse("error=1")))
    assert http.post("/v1/describejobs", headers=HOST).status_code == 500
    answer = http.post("/_batchyard/faults", json={"faults": ""}, headers=HOST)
    assert (answer.status_code, answer.json) == (200, {"faults": ""})
    assert http.post("/v1/describejobs", headers=HOST).status_code == 200
    for wrong in ({"faults": "nonsense=1"}, {"faults": 1}, {}):
        answer = http.post("/_batchyard/faults", json=wrong, headers=HOST)
        assert answer.status_code == 400 and "throttle=0.3" in answer.json["message"]


def test_the_endpoint_shows_how_many_calls_met_a_fault() -> None:
    http = client(ScriptedEndpoint({}), faults=FaultInjector(FaultSettings.parse("error=2x")))
    for status in (500, 500, 200):
        assert http.post("/v1/describejobs", headers=HOST).status_code == status
    assert http.get("/_batchyard/faults", headers=HOST).json == {"error": 2}
