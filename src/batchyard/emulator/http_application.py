"""The HTTP side of the endpoint: reads a request, has it performed, and writes the answer.

Requests that the endpoint does not answer itself go to moto.
"""

from __future__ import annotations

import io
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from batchyard.emulator import access, api_models, job_credentials, names, operations
from batchyard.emulator.api_errors import ApiError, InvalidRequestError, RequestExecutionError
from batchyard.emulator.faults import (
    OBSERVER_KEY,
    Fault,
    FaultInjector,
    FaultSettings,
    is_observing,
)
from batchyard.emulator.http_responses import (
    cut_body,
    error_response,
    error_type,
    expired_response,
    fault_response,
    json_response,
    reset_connection,
)
from batchyard.errors import InputError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from batchyard.emulator.endpoint import Endpoint

METADATA_PATH = "/imds/"
#: Path of operations that AWS does not have: `batchyard emulate reclaim`, and counts of calls.
_CONTROL_PATH = "/_batchyard/"
#: Path of moto by which all services are reset.
_RESET_PATH = "/moto-api/reset"
_JSON_1_1 = "application/x-amz-json-1.1"
#: moto finds the service of a request by its signature, so unsigned requests get this header.
_UNSIGNED = (
    "AWS4-HMAC-SHA256 Credential=-/-/{region}/{service}/aws4_request, "
    "SignedHeaders=host, Signature=-"
)


#: The largest upload in one request of S3, and the largest body of all other requests.
_MAX_OBJECT_BYTES = 5 << 30
_MAX_BODY_BYTES = 100 << 20


class ApiCall(NamedTuple):
    """What a request asks for."""

    #: As in signatures; "?" if the request does not name a service.
    service: str
    #: The HTTP method if the request does not name an operation.
    operation: str
    #: Members of the request that are in its path.
    path_members: dict[str, str]


class HttpApplication:
    """A WSGI application."""

    def __init__(
        self,
        endpoint: Endpoint,
        moto: WSGIApplication,
        token: str | None = None,
        faults: FaultInjector | None = None,
        reset_moto: Callable[[], None] = lambda: None,
    ) -> None:
        """``token``: the access key that clients must use, or None for an endpoint on loopback."""
        self._reset_moto = reset_moto
        self._endpoint = endpoint
        self._moto = moto
        self._token = token
        self._faults = faults or FaultInjector()
        #: "service:operation" -> number of calls.
        self._call_counts: Counter[str] = Counter()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ, populate_request=False)
        try:
            respond = self._respond(request)
        except (HTTPException, OSError):  # The client has closed the connection.
            message = "The request body terminated unexpectedly"
            respond = error_response(request, 400, "IncompleteBody", message)
        return respond(environ, start_response)

    def _respond(self, request: Request) -> WSGIApplication:
        is_metadata = request.path.startswith(self._endpoint.metadata_path)
        refusal = access.find_refusal(request.environ, self._token, has_secret_path=is_metadata)
        if refusal:
            is_wrong_key = refusal == access.WRONG_KEY
            code = "UnrecognizedClientException" if is_wrong_key else "AccessDeniedException"
            return error_response(request, 403, code, refusal)
        problem = _check_length(request)
        if problem is not None:
            return problem
        if is_metadata:
            return self._answer_metadata(request)
        if request.path.startswith(_CONTROL_PATH):
            return self._answer_control(request)
        if (request.method, request.path) == ("POST", _RESET_PATH):
            return self._reset(request)
        return self._respond_to_call(request)

    def _respond_to_call(self, request: Request) -> WSGIApplication:
        """Answer a call of an AWS API, with the faults that are injected."""
        call = identify_call(request)
        self._call_counts[f"{call.service}:{call.operation}"] += 1
        session_token = request.headers.get("X-Amz-Security-Token", "")
        if session_token and job_credentials.is_expired(session_token, time.time()):
            return expired_response(request, call.service)
        is_observer = access.access_key(request.environ) == OBSERVER_KEY
        is_observing.set(is_observer)
        fault = None if is_observer else self._faults.draw(call.service, call.operation)
        if fault is None or (fault is Fault.CONFLICT and not _has_condition(request)):
            return self._answer_call(request, call)
        return self._answer_with_fault(request, call, fault)

    # -- operations of AWS ------------------------------------------------------------------------

    def _answer_call(self, request: Request, call: ApiCall) -> WSGIApplication:
        if call.service == "batch":
            return self._answer_batch(request, call)
        try:
            if operations.has_operation(call.service, call.operation):
                return self._answer_operation(request, call)
            if operations.has_addition(call.service, call.operation):
                return self._answer_addition(request, call)
        except ApiError as exc:
            document = {"__type": exc.code, "message": exc.message, **exc.members}
            return json_response(document, exc.status, content_type=_JSON_1_1)
        if call.service == "ec2":
            return self._answer_ec2(request)
        return self._moto

    def _region_of(self, request: Request) -> str:
        """Return the region that a request is for. Raises InvalidRequestError for no region."""
        scope = access.signature_scope(request.environ)
        region = self._endpoint.region if scope is None else scope[0]
        if not names.is_region(region):
            raise InvalidRequestError(
                f"the signature of the request names {region!r}, which is not the name of a region"
            )
        return region

    def _answer_ec2(self, request: Request) -> Response:
        """Let moto answer, with the instances of compute environments as of now."""
        try:
            region = self._region_of(request)
        except ApiError as exc:
            return error_response(request, exc.status, exc.code, exc.message)
        self._endpoint.show_instances(region)
        response = Response.from_app(self._moto, request.environ, buffered=True)
        self._endpoint.end_terminated_instances(region)
        return response

    def _answer_batch(self, request: Request, call: ApiCall) -> Response:
        request_id = str(uuid.uuid4())
        headers = {"x-amzn-RequestId": request_id}
        try:
            region = self._region_of(request)
            members = _read_batch_request(request, call)
            answer = self._endpoint.perform_batch(region, call.operation, members)
            return json_response(answer, 200, headers)
        except ApiError as exc:
            message = exc.message
            if isinstance(exc, RequestExecutionError):
                message = f"Error executing request, Exception : {message}, RequestId: {request_id}"
            headers |= error_type(exc.code)
            return json_response({"message": message}, exc.status, headers)

    def _answer_operation(self, request: Request, call: ApiCall) -> WSGIApplication:
        """Answer an operation of a service with the JSON protocol, such as ECS."""
        body = request.get_data()
        region = self._region_of(request)
        answer = self._endpoint.perform(region, call.service, call.operation, _parse_json(body))
        if answer is not None:
            return json_response(answer, 200, content_type=_JSON_1_1)
        self._prepare_for_moto(request, call, body)
        return self._moto

    def _answer_addition(self, request: Request, call: ApiCall) -> Response:
        """Answer with moto's answer and the endpoint's own entries."""
        region = self._region_of(request)
        members = operations.check_request(
            call.service, call.operation, _parse_json(request.get_data())
        )
        # moto fails if a member is null: the checked request has none.
        self._prepare_for_moto(request, call, json.dumps(members).encode())
        response = Response.from_app(self._moto, request.environ, buffered=True)
        if response.status_code != 200:
            return response
        answer = self._endpoint.add_to_answer(
            region, call.service, call.operation, members, json.loads(response.get_data())
        )
        return json_response(answer, 200, content_type=_JSON_1_1)

    def _prepare_for_moto(self, request: Request, call: ApiCall, body: bytes) -> None:
        """Make the body, which has been read, readable again, and name the service."""
        environ = request.environ
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
        signature = _UNSIGNED.format(region=self._endpoint.region, service=call.service)
        environ.setdefault("HTTP_AUTHORIZATION", signature)

    # -- faults -----------------------------------------------------------------------------------

    def _answer_with_fault(self, request: Request, call: ApiCall, fault: Fault) -> WSGIApplication:
        if fault not in (Fault.LOSE, Fault.CUT):
            return fault_response(request, call.service, fault)
        respond = self._answer_call(request, call)
        response = Response.from_app(respond, request.environ, buffered=True)
        if fault is Fault.CUT:
            return cut_body(response)
        reset_connection(request.environ)
        return response

    # -- requests that AWS does not have ----------------------------------------------------------

    def _answer_metadata(self, request: Request) -> Response:
        request.get_data()
        path = request.path.removeprefix(self._endpoint.metadata_path)
        task, _, task_path = path.partition("/")
        if f"/{task_path}".endswith(job_credentials.PATH):
            return json_response(self._endpoint.issue_credentials(task))
        if task_path.startswith("v4/"):
            answer = self._endpoint.answer_task_metadata(task, task_path.removeprefix("v4/"))
            return json_response(
                {"message": "not found"} if answer is None else answer,
                404 if answer is None else 200,
            )
        status, headers, body = self._endpoint.answer_metadata(
            task, request.method, f"/{task_path}", dict(request.headers)
        )
        return Response(body, status, headers)

    def _answer_control(self, request: Request) -> Response:
        verb = request.path.removeprefix(_CONTROL_PATH)
        try:
            members = _parse_json(request.get_data())
            if (request.method, verb) == ("GET", "calls"):
                return json_response(dict(sorted(self._call_counts.items())))
            if (request.method, verb) == ("GET", "faults"):
                return json_response(self._faults.counts)
            if (request.method, verb) == ("POST", "faults"):
                return json_response(self._use_faults(members))
            if (request.method, verb) == ("POST", "reclaim"):
                return json_response(self._endpoint.reclaim(*_read_reclaim(members)))
            raise ApiError("NotFound", f"{request.path} does not exist", 404)
        except ApiError as exc:
            return json_response({"message": exc.message}, exc.status)

    def _reset(self, request: Request) -> Response:
        """End all jobs and forget all resources, also those of moto."""
        request.get_data()
        try:
            self._endpoint.reset()
        except ApiError as exc:
            return json_response({"message": exc.message}, exc.status)
        self._reset_moto()
        return json_response({"status": "ok"})

    def _use_faults(self, members: dict[str, Any]) -> dict[str, str]:
        """Replace the faults, as `--faults` sets them."""
        text = members.get("faults")
        if not isinstance(text, str):
            raise InvalidRequestError("faults should be a string, like throttle=0.3")
        try:
            self._faults.use(FaultSettings.parse(text))
        except InputError as exc:
            raise InvalidRequestError(f"{exc.message}: {exc.hint}") from None
        return {"faults": text}


# -- requests -------------------------------------------------------------------------------------


def _has_condition(request: Request) -> bool:
    """Return whether a request writes only if the object is, or is not, a certain one."""
    is_write = request.method == "PUT"
    return is_write and ("If-Match" in request.headers or "If-None-Match" in request.headers)


def identify_call(request: Request) -> ApiCall:
    """Return the service and operation of a request, by its signature, path and target header."""
    scope = access.signature_scope(request.environ)
    service = "?" if scope is None else scope[1]
    if service in ("batch", "?"):
        operation_in_path = api_models.find_operation("batch", request.method, request.path)
        if operation_in_path is not None:
            return ApiCall("batch", *operation_in_path)
        if service == "batch":
            return ApiCall(service, request.method, {})
    target, _, operation = request.headers.get("X-Amz-Target", "").rpartition(".")
    return ApiCall(_services_by_target().get(target, service), operation or request.method, {})


@cache
def _services_by_target() -> dict[str, str]:
    """Return X-Amz-Target, without the operation -> service, for the services of the endpoint."""
    services = {*operations.OPERATIONS, *operations.ADDITIONS} - {"batch"}
    return {api_models.service_model(name).metadata["targetPrefix"]: name for name in services}


def _check_length(request: Request) -> Response | None:
    """Return the refusal of a request whose Content-Length is no number or too large."""
    length = request.environ.get("CONTENT_LENGTH", "")
    if not re.fullmatch(r"[0-9]*", length):
        message = f"Content-Length {length!r} is not a number"
        return json_response({"message": message}, 400, error_type("ClientException"))
    scope = access.signature_scope(request.environ)
    is_s3 = scope is None or scope[1] == "s3"
    limit = _MAX_OBJECT_BYTES if is_s3 else _MAX_BODY_BYTES
    # A number above 18 digits would take long to parse.
    if len(length) <= 18 and int(length or 0) <= limit:
        return None
    if is_s3:
        message = "Your proposed upload exceeds the maximum allowed size"
        return error_response(request, 400, "EntityTooLarge", message)
    message = f"Request must be smaller than {limit} bytes"
    return error_response(request, 413, "RequestEntityTooLargeException", message)


def _read_batch_request(request: Request, call: ApiCall) -> dict[str, Any]:
    body = request.get_data()
    if call.operation == request.method:
        raise InvalidRequestError(f"AWS Batch has no operation {request.method} {request.path}")
    members = _parse_json(body)
    if request.query_string and "tagKeys" in request.args:
        members["tagKeys"] = request.args.getlist("tagKeys")
    return members | call.path_members


def _read_reclaim(members: dict[str, Any]) -> tuple[str, float]:
    job_id, notice_s = members.get("jobId"), members.get("notice", 120)
    is_number = isinstance(notice_s, int | float) and not isinstance(notice_s, bool)
    if not isinstance(job_id, str) or not is_number:
        raise InvalidRequestError("jobId should be a string, and notice a number")
    return job_id, notice_s


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise InvalidRequestError("the body of the request is not a JSON object")
    return members
