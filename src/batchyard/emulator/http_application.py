"""The HTTP side of the endpoint: reads a request, has it performed, and writes the answer.

Requests that the endpoint does not answer itself go to moto.
"""

from __future__ import annotations

import io
import json
import re
import socket
import struct
import uuid
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import escape

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from batchyard.emulator import access, api_models, operations
from batchyard.emulator.api_errors import ApiError, InvalidRequestError, InvalidSubmissionError
from batchyard.emulator.faults import Fault, FaultInjector

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from batchyard.emulator.endpoint import Endpoint

METADATA_PATH = "/imds/"
#: Path of operations that AWS does not have: `batchyard emulate reclaim`, and counts of calls.
_CONTROL_PATH = "/_batchyard/"
_JSON_1_1 = "application/x-amz-json-1.1"
#: moto finds the service of a request by its signature, so unsigned requests get this header.
_UNSIGNED = (
    "AWS4-HMAC-SHA256 Credential=-/-/{region}/{service}/aws4_request, "
    "SignedHeaders=host, Signature=-"
)


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
    ) -> None:
        """``token``: the access key that clients must use, or None for an endpoint on loopback."""
        self._endpoint = endpoint
        self._moto = moto
        self._token = token
        self._faults = faults
        #: "service:operation" -> number of calls.
        self._call_counts: Counter[str] = Counter()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ, populate_request=False)
        try:
            respond = self._respond(request)
        except HTTPException as exc:  # The client has closed the connection.
            respond = exc
        return respond(environ, start_response)

    def _respond(self, request: Request) -> WSGIApplication:
        is_metadata = request.path.startswith(self._endpoint.metadata_path)
        refusal = access.find_refusal(request.environ, self._token, has_secret_path=is_metadata)
        if refusal:
            is_wrong_key = refusal == access.WRONG_KEY
            code = "UnrecognizedClientException" if is_wrong_key else "AccessDeniedException"
            return _error_response(request, 403, code, refusal)
        length = request.environ.get("CONTENT_LENGTH", "")
        if not re.fullmatch(r"[0-9]{0,18}", length):
            message = f"Content-Length {length!r} is not a number"
            return _json_response({"message": message}, 400, _error_type("ClientException"))
        if is_metadata:
            return self._answer_metadata(request)
        if request.path.startswith(_CONTROL_PATH):
            return self._answer_control(request)
        call = identify_call(request)
        self._call_counts[f"{call.service}:{call.operation}"] += 1
        fault = None if self._faults is None else self._faults.draw()
        if fault is None:
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
            document = {"__type": exc.code, "message": exc.message}
            return _json_response(document, exc.status, content_type=_JSON_1_1)
        return self._moto

    def _answer_batch(self, request: Request, call: ApiCall) -> Response:
        request_id = str(uuid.uuid4())
        headers = {"x-amzn-RequestId": request_id}
        try:
            self._check_region(request)
            members = _read_batch_request(request, call)
            answer = self._endpoint.perform_batch(call.operation, members)
            return _json_response(answer, 200, headers)
        except ApiError as exc:
            message = exc.message
            if isinstance(exc, InvalidSubmissionError):
                message = f"Error executing request, Exception : {message}, RequestId: {request_id}"
            headers |= _error_type(exc.code)
            return _json_response({"message": message}, exc.status, headers)

    def _check_region(self, request: Request) -> None:
        scope = access.signature_scope(request.environ)
        region = self._endpoint.region
        if scope is not None and scope[0] != region:
            raise InvalidRequestError(
                f"this endpoint serves AWS Batch in {region}, and the request is for {scope[0]}"
            )

    def _answer_operation(self, request: Request, call: ApiCall) -> WSGIApplication:
        """Answer an operation of a service with the JSON protocol, such as ECS."""
        body = request.get_data()
        answer = self._endpoint.perform(call.service, call.operation, _parse_json(body))
        if answer is not None:
            return _json_response(answer, 200, content_type=_JSON_1_1)
        self._prepare_for_moto(request, call, body)
        return self._moto

    def _answer_addition(self, request: Request, call: ApiCall) -> Response:
        """Answer with moto's answer and the endpoint's own entries."""
        members = operations.check_request(
            call.service, call.operation, _parse_json(request.get_data())
        )
        # moto fails if a member is null: the checked request has none.
        self._prepare_for_moto(request, call, json.dumps(members).encode())
        response = Response.from_app(self._moto, request.environ, buffered=True)
        if response.status_code != 200:
            return response
        answer = self._endpoint.add_to_answer(
            call.service, call.operation, members, json.loads(response.get_data())
        )
        return _json_response(answer, 200, content_type=_JSON_1_1)

    def _prepare_for_moto(self, request: Request, call: ApiCall, body: bytes) -> None:
        """Make the body, which has been read, readable again, and name the service."""
        environ = request.environ
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
        signature = _UNSIGNED.format(region=self._endpoint.region, service=call.service)
        environ.setdefault("HTTP_AUTHORIZATION", signature)

    # -- faults -----------------------------------------------------------------------------------

    def _answer_with_fault(self, request: Request, call: ApiCall, fault: Fault) -> WSGIApplication:
        if fault is Fault.LOSE:
            respond = self._answer_call(request, call)
            response = Response.from_app(respond, request.environ, buffered=True)
            _reset_connection(request.environ)
            return response
        request.get_data()
        if fault is Fault.RESET:
            _reset_connection(request.environ)
            return Response(status=500)
        if fault is Fault.THROTTLE:
            status, code = 429, "TooManyRequestsException"
        else:
            status, code = 500, "ServerException"
        return _error_response(request, status, code, f"{code}: a fault injected by --faults")

    # -- requests that AWS does not have ----------------------------------------------------------

    def _answer_metadata(self, request: Request) -> Response:
        request.get_data()
        path = request.path.removeprefix(self._endpoint.metadata_path)
        task, _, task_path = path.partition("/")
        status, headers, body = self._endpoint.answer_metadata(
            task, request.method, f"/{task_path}", dict(request.headers)
        )
        return Response(body, status, headers)

    def _answer_control(self, request: Request) -> Response:
        verb = request.path.removeprefix(_CONTROL_PATH)
        try:
            members = _parse_json(request.get_data())
            if (request.method, verb) == ("GET", "calls"):
                return _json_response(dict(sorted(self._call_counts.items())))
            if (request.method, verb) == ("POST", "reclaim"):
                return _json_response(self._endpoint.reclaim(*_read_reclaim(members)))
            raise ApiError("NotFound", f"{request.path} does not exist", 404)
        except ApiError as exc:
            return _json_response({"message": exc.message}, exc.status)


# -- requests -------------------------------------------------------------------------------------


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


# -- responses ------------------------------------------------------------------------------------


def _json_response(
    document: object,
    status: int = 200,
    headers: dict[str, str] | None = None,
    content_type: str = "application/json",
) -> Response:
    return Response(json.dumps(document), status, headers, content_type=content_type)


def _error_response(request: Request, status: int, code: str, message: str) -> Response:
    """Return an error in the protocol of the requested service, so that its client can read it."""
    scope = access.signature_scope(request.environ)
    service = "" if scope is None else scope[1]
    is_query = request.mimetype == "application/x-www-form-urlencoded"
    if service != "s3" and not is_query:
        return _json_response({"message": message, "__type": code}, status, _error_type(code))
    xml = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    if service == "ec2":
        xml = f"<Response><Errors>{xml}</Errors></Response>"
    elif is_query:
        xml = f"<ErrorResponse>{xml}</ErrorResponse>"
    return Response(f'<?xml version="1.0" encoding="UTF-8"?>{xml}', status, content_type="text/xml")


def _error_type(code: str) -> dict[str, str]:
    return {"x-amzn-ErrorType": code}


def _reset_connection(environ: WSGIEnvironment) -> None:
    """Break the connection; the client receives nothing that is written to it afterwards."""
    connection = environ.get("werkzeug.socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
