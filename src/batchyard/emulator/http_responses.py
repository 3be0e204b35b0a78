"""Responses of the endpoint: JSON documents, errors in each service's protocol, and faults."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from werkzeug.wrappers import Request, Response

from batchyard.emulator import access
from batchyard.emulator.faults import Fault

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: Service -> status and error code of a throttled request. Other services that speak JSON send
#: _OTHER_THROTTLING.
_THROTTLING = {
    "batch": (429, "TooManyRequestsException"),
    "s3": (503, "SlowDown"),
    "ec2": (503, "RequestLimitExceeded"),
}
_OTHER_THROTTLING = (400, "ThrottlingException")
#: Service -> status and error code of a request with expired credentials.
_EXPIRY = {"s3": (400, "ExpiredToken"), "ec2": (400, "RequestExpired")}
_OTHER_EXPIRY = (403, "ExpiredTokenException")
EXPIRED = "The security token included in the request is expired"


def json_response(
    document: object,
    status: int = 200,
    headers: dict[str, str] | None = None,
    content_type: str = "application/json",
) -> Response:
    return Response(json.dumps(document), status, headers, content_type=content_type)


def error_type(code: str) -> dict[str, str]:
    return {"x-amzn-ErrorType": code}


def error_response(request: Request, status: int, code: str, message: str) -> Response:
    """Return an error in the protocol of the requested service, so that its client can read it."""
    scope = access.signature_scope(request.environ)
    service = "" if scope is None else scope[1]
    is_query = request.mimetype == "application/x-www-form-urlencoded"
    if service != "s3" and not is_query:
        return json_response({"message": message, "__type": code}, status, error_type(code))
    xml = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    if service == "ec2":
        xml = f"<Response><Errors>{xml}</Errors></Response>"
    elif is_query:
        xml = f"<ErrorResponse>{xml}</ErrorResponse>"
    return Response(f'<?xml version="1.0" encoding="UTF-8"?>{xml}', status, content_type="text/xml")


# -- faults ---------------------------------------------------------------------------------------


def fault_response(request: Request, service: str, fault: Fault) -> Response:
    """Return the answer to a call that is not performed because of a fault."""
    request.get_data()
    if fault is Fault.RESET:
        reset_connection(request.environ)
        return Response(status=500)
    if fault is Fault.EXPIRE:
        return expired_response(request, service)
    status, code = 500, "ServerException"
    if fault is Fault.CONFLICT:
        status, code = 409, "ConditionalRequestConflict"
    if fault is Fault.THROTTLE:
        status, code = _THROTTLING.get(service, _OTHER_THROTTLING)
    return error_response(request, status, code, f"{code}: a fault injected by --faults")


def expired_response(request: Request, service: str) -> Response:
    status, code = _EXPIRY.get(service, _OTHER_EXPIRY)
    return error_response(request, status, code, EXPIRED)


def reset_connection(environ: WSGIEnvironment) -> None:
    """Break the connection; the client receives nothing that is written to it afterwards."""
    connection = environ.get("werkzeug.socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)


def cut_body(response: Response) -> WSGIApplication:
    """Return an application that sends the headers of a buffered response and half of its body.

    The server closes the connection after each answer, so the client misses the other half.
    """

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = response.get_data()
        response.headers["Content-Length"] = str(len(body))
        chunks = response(environ, start_response)
        return [b"".join(chunks)[: len(body) // 2]]

    return respond
