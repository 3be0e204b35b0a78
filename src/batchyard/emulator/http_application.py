"""The endpoint's HTTP side: from a request to the service that answers it. WSGI; decides nothing about Batch."""

from __future__ import annotations

import io
import json
import re
import socket
import struct
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from batchyard.emulator import access, api_models, ecs_clusters
from batchyard.emulator.api_errors import ApiError, InvalidRequestError, InvalidSubmissionError
from batchyard.emulator.faults import Calls, Fault, Faults

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from batchyard.emulator.endpoint import Endpoint

_JSON = "application/json"
_JSON_1_1 = "application/x-amz-json-1.1"
_LOGS_TARGET = "Logs_20140328."
_ECS_TARGET = "AmazonEC2ContainerServiceV20141113."
_UNSIGNED_LOGS = (
    "AWS4-HMAC-SHA256 Credential=-/-/{region}/logs/aws4_request, SignedHeaders=host, Signature=-"
)
METADATA_PATH = "/imds/"
CONTROL_PATH = "/_batchyard/"
#: what of CloudWatch Logs is about jobs
_LOGS_OPERATIONS = ("GetLogEvents", "FilterLogEvents", "DescribeLogStreams")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    500: "Internal Server Error",
}


class Front:
    def __init__(
        self,
        endpoint: Endpoint,
        others: WSGIApplication,
        token: str | None = None,
        faults: Faults | None = None,
    ) -> None:
        """``others`` answers whatever is not about jobs; ``faults``: trouble on purpose."""
        self._endpoint = endpoint
        self._others = others
        self._token = token
        self._faults = faults
        self._calls = Calls()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", ""))
        is_metadata = path.startswith(self._endpoint.metadata_path)
        refusal = access.refusal(environ, self._token, has_key=is_metadata)
        if refusal:
            # AWS's own words for a key that it does not know, and for who may not.
            code = (
                "UnrecognizedClientException"
                if refusal == access.WRONG_KEY
                else "AccessDeniedException"
            )
            return _failed(start_response, environ, 403, code, refusal)
        length = environ.get("CONTENT_LENGTH", "")
        if not re.fullmatch(r"[0-9]{0,18}", length):
            message = {"message": f"Content-Length {length!r} is no number"}
            return _answer(start_response, 400, message, {"x-amzn-ErrorType": "ClientException"})
        if is_metadata:
            return self._metadata(environ, start_response, path)
        if path.startswith(CONTROL_PATH):
            return self._control(environ, start_response, path.removeprefix(CONTROL_PATH))
        scope = access.signed_for(environ)
        self._calls.add(*_asked_for(scope, environ, path))
        fault = self._faults.next() if self._faults is not None else None
        if fault is not None and fault is not Fault.LOSE:
            _body(environ)
            return _troubled(fault, environ, start_response)
        answer = self._answered(environ, start_response, path, scope)
        if fault is Fault.LOSE:
            answer = [b"".join(answer)]
            _hang_up(environ)
        return answer

    def _answered(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        path: str,
        scope: tuple[str, str] | None,
    ) -> Iterable[bytes]:
        if self._is_batch(scope, environ, path):
            return self._batch(environ, start_response, path, scope)
        target = str(environ.get("HTTP_X_AMZ_TARGET", ""))
        if target.startswith(_LOGS_TARGET):
            return self._logs(environ, start_response, target.removeprefix(_LOGS_TARGET))
        if (
            target.startswith(_ECS_TARGET)
            and target.removeprefix(_ECS_TARGET) in ecs_clusters.OPERATIONS
        ):
            return self._ecs(environ, start_response, target.removeprefix(_ECS_TARGET))
        return self._others(environ, start_response)

    # -- AWS Batch --------------------------------------------------------------------------------------------

    @staticmethod
    def _is_batch(scope: tuple[str, str] | None, environ: WSGIEnvironment, path: str) -> bool:
        if scope is not None:
            return scope[1] == "batch"
        return api_models.find_route("batch", environ["REQUEST_METHOD"], path) is not None

    def _batch(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        path: str,
        scope: tuple[str, str] | None,
    ) -> Iterable[bytes]:
        request_id = str(uuid.uuid4())
        headers = {"x-amzn-RequestId": request_id}
        try:
            region = self._endpoint.region
            if scope is not None and scope[0] != region:
                raise InvalidRequestError(
                    f"this endpoint serves AWS Batch in {region}, and the request is for {scope[0]}"
                )
            operation, request = _read_batch(environ, path)
            return _answer(start_response, 200, self._endpoint.batch(operation, request), headers)
        except ApiError as exc:
            message = exc.message
            if isinstance(exc, InvalidSubmissionError):
                message = f"Error executing request, Exception : {message}, RequestId: {request_id}"
            headers["x-amzn-ErrorType"] = exc.code
            return _answer(start_response, exc.status, {"message": message}, headers)

    # -- CloudWatch Logs --------------------------------------------------------------------------------------

    def _logs(
        self, environ: WSGIEnvironment, start_response: StartResponse, operation: str
    ) -> Iterable[bytes]:
        try:
            body = _body(environ)
            environ["wsgi.input"] = io.BytesIO(body)
            # The others tell services apart by the signature, and this one has none with --no-sign-request.
            environ.setdefault(
                "HTTP_AUTHORIZATION", _UNSIGNED_LOGS.format(region=self._endpoint.region)
            )
            request = _parsed(body)
            group = request.get("logGroupName") or request.get("logGroupIdentifier")
            if operation == "DescribeLogGroups":
                return self._log_groups(environ, start_response, request)
            if (
                operation not in _LOGS_OPERATIONS
                or not isinstance(group, str)
                or not self._endpoint.owns_logs(group)
            ):
                return self._others(environ, start_response)
            answer = self._endpoint.logs(operation, request)
            return _answer(start_response, 200, answer, {}, _JSON_1_1)
        except ApiError as exc:
            return _answer(
                start_response,
                exc.status,
                {"__type": exc.code, "message": exc.message},
                {},
                _JSON_1_1,
            )

    def _log_groups(
        self, environ: WSGIEnvironment, start_response: StartResponse, request: dict[str, Any]
    ) -> Iterable[bytes]:
        """Those of jobs, beside those that somebody has made."""
        ours = self._endpoint.log_groups(request)
        # moto fails with a null, and knows no pattern.
        request = {member: value for member, value in request.items() if value is not None}
        asked = json.dumps(request).encode()
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(asked), str(len(asked))
        status, headers, body = _called(self._others, environ)
        if not status.startswith("200"):
            start_response(status, headers)
            return [body]
        answer = json.loads(body)
        if not request.get("nextToken"):
            there = {group["logGroupName"] for group in answer["logGroups"]}
            answer["logGroups"] += [group for group in ours if group["logGroupName"] not in there]
            answer["logGroups"].sort(key=lambda group: group["logGroupName"])
        pattern = request.get("logGroupNamePattern", "")
        answer["logGroups"] = [
            group for group in answer["logGroups"] if pattern in group["logGroupName"]
        ]
        return _answer(start_response, 200, answer, {}, _JSON_1_1)

    # -- ECS --------------------------------------------------------------------------------------------------

    def _ecs(
        self, environ: WSGIEnvironment, start_response: StartResponse, operation: str
    ) -> Iterable[bytes]:
        try:
            body = _body(environ)
            environ["wsgi.input"] = io.BytesIO(body)
            answer = self._endpoint.ecs(operation, _parsed(body))
        except ApiError as exc:
            return _answer(
                start_response,
                exc.status,
                {"__type": exc.code, "message": exc.message},
                {},
                _JSON_1_1,
            )
        if answer is None:
            return self._others(environ, start_response)
        return _answer(start_response, 200, answer, {}, _JSON_1_1)

    # -- the rest ---------------------------------------------------------------------------------------------

    def _metadata(
        self, environ: WSGIEnvironment, start_response: StartResponse, path: str
    ) -> Iterable[bytes]:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-"): str(value)
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        _body(environ)
        task, _, rest = path.removeprefix(self._endpoint.metadata_path).partition("/")
        status, answer_headers, body = self._endpoint.metadata(
            task, environ["REQUEST_METHOD"], f"/{rest}", headers
        )
        start_response(
            f"{status} {_REASONS.get(status, 'Error')}", [*answer_headers.items(), _length(body)]
        )
        return [body]

    def _control(
        self, environ: WSGIEnvironment, start_response: StartResponse, verb: str
    ) -> Iterable[bytes]:
        """Ours alone: what `batchyard emulate reclaim` asks for."""
        try:
            request = _parsed(_body(environ))
            if (environ["REQUEST_METHOD"], verb) == ("GET", "calls"):
                return _answer(start_response, 200, self._calls.counts, {})
            if environ["REQUEST_METHOD"] != "POST" or verb != "reclaim":
                raise ApiError("NotFound", f"there is no {verb!r} here", 404)
            job_id, notice_s = request.get("jobId"), request.get("notice", 120)
            if (
                not isinstance(job_id, str)
                or isinstance(notice_s, bool)
                or not isinstance(notice_s, int | float)
            ):
                raise InvalidRequestError("jobId should be a string, and notice a number")
            answer = self._endpoint.reclaim(job_id, notice_s)
            return _answer(start_response, 200, answer, {})
        except ApiError as exc:
            return _answer(start_response, exc.status, {"message": exc.message}, {})


def _asked_for(
    scope: tuple[str, str] | None, environ: WSGIEnvironment, path: str
) -> tuple[str, str]:
    """(service, operation) for the count of calls; where the operation cannot be told, the method."""
    service = scope[1] if scope is not None else "?"
    route = (
        api_models.find_route("batch", environ["REQUEST_METHOD"], path)
        if service in ("batch", "?")
        else None
    )
    if route is not None:
        return "batch", route[0].operation
    target = str(environ.get("HTTP_X_AMZ_TARGET", ""))
    return service, target.rpartition(".")[2] or str(environ["REQUEST_METHOD"])


def _troubled(fault: Fault, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    if fault is Fault.RESET:
        _hang_up(environ)
        start_response("500 Internal Server Error", [("Content-Length", "0")])
        return [b""]
    status, code = (
        (429, "TooManyRequestsException") if fault is Fault.THROTTLE else (500, "ServerException")
    )
    return _failed(start_response, environ, status, code, f"{code}: trouble on purpose")


def _failed(
    start_response: StartResponse, environ: WSGIEnvironment, status: int, code: str, message: str
) -> list[bytes]:
    """An error in the form of the service that was asked, as far as that can be told: clients read no other."""
    scope = access.signed_for(environ)
    service = scope[1] if scope is not None else ""
    is_query = str(environ.get("CONTENT_TYPE", "")).startswith("application/x-www-form-urlencoded")
    if service != "s3" and not is_query:
        document = {"message": message, "__type": code}
        return _answer(start_response, status, document, {"x-amzn-ErrorType": code})
    text = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    if service == "ec2":
        text = f"<Response><Errors>{text}</Errors></Response>"
    elif is_query:
        text = f"<ErrorResponse>{text}</ErrorResponse>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()
    start_response(
        f"{status} {_REASONS.get(status, 'Error')}", [("Content-Type", "text/xml"), _length(body)]
    )
    return [body]


def _hang_up(environ: WSGIEnvironment) -> None:
    """Breaks the connection: what is written to it from now on goes nowhere."""
    connection = environ.get("werkzeug.socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)


def _read_batch(environ: WSGIEnvironment, path: str) -> tuple[str, dict[str, Any]]:
    method = environ["REQUEST_METHOD"]
    found = api_models.find_route("batch", method, path)
    body = _body(environ)
    if found is None:
        raise InvalidRequestError(f"AWS Batch has no operation {method} {path}")
    route, members = found
    request = _parsed(body)
    query = parse_qs(str(environ.get("QUERY_STRING", "")))
    if "tagKeys" in query:
        request["tagKeys"] = query["tagKeys"]
    return route.operation, {**request, **members}


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise InvalidRequestError("the request's body is no JSON object")
    return request


def _body(environ: WSGIEnvironment) -> bytes:
    length = environ.get("CONTENT_LENGTH")
    if length:
        return bytes(environ["wsgi.input"].read(int(length)))
    return bytes(environ["wsgi.input"].read()) if environ.get("wsgi.input_terminated") else b""


def _called(
    application: WSGIApplication, environ: WSGIEnvironment
) -> tuple[str, list[tuple[str, str]], bytes]:
    """What another application answers."""
    told: list[Any] = []

    def start_response(
        status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        told[:] = [status, headers]
        return lambda data: None

    parts = application(environ, start_response)
    body = b"".join(parts)
    return told[0], told[1], body


def _answer(
    start_response: StartResponse,
    status: int,
    document: object,
    headers: dict[str, str],
    kind: str = _JSON,
) -> list[bytes]:
    body = json.dumps(document).encode()
    start_response(
        f"{status} {_REASONS.get(status, 'Error')}",
        [("Content-Type", kind), _length(body), *headers.items()],
    )
    return [body]


def _length(body: bytes) -> tuple[str, str]:
    return "Content-Length", str(len(body))
