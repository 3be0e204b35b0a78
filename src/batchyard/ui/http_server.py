"""The HTTP server of the page: one request a connection, with limits of time, size and number.

A connection gets an answer or is closed after a few seconds, so that slow or silent clients cost a
thread only for that time. If all places are taken, the oldest connection that has not sent a whole
request makes room: thousands of silent connections do not lock out the user.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from batchyard.errors import OperationalError
from batchyard.ui.access import SECURITY_HEADERS
from batchyard.ui.answers import Answer, RefusedError, Request, text_answer

#: Connections that are served at the same time.
MAX_CONNECTIONS = 64
#: Seconds in which a client must send its request, and take each piece of the answer.
REQUEST_S = 5.0
SEND_S = 10.0
#: Bytes of a piece: a slow client, for example behind `ssh -L`, gets all if it takes each in time.
_PIECE = 64 * 1024
MAX_BODY = 4096
_MAX_PARAMETERS = 8
_METHODS = ("GET", "HEAD", "POST")

Respond = Callable[[Request], Answer]


class PageServer(ThreadingHTTPServer):
    """Serves the answers of ``respond`` on an address of this machine; port 0: a free port."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(
        self,
        host: str,
        port: int,
        *,
        max_connections: int = MAX_CONNECTIONS,
        send_s: float = SEND_S,
    ) -> None:
        """Listen. Raises OperationalError."""
        self.send_s = send_s
        self.respond: Respond = lambda request: text_answer(503, "the server is starting")
        self._max_connections = max_connections
        self._lock = threading.Lock()
        #: Connections, in the order of their arrival -> whether their request is read.
        self._connections: dict[socket.socket, bool] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as exc:
            reason = getattr(exc, "strerror", None) or exc
            raise OperationalError(
                f"could not listen on {host}:{port}: {reason}",
                hint="give another --port, or --port 0 for a free one; "
                "--host must be an address of this machine",
            ) from exc

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def server_bind(self) -> None:
        # The parent would look up the name of the host, which can take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._admit(request):
            with suppress(OSError):
                request.settimeout(0)
                request.send(b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def _admit(self, connection: socket.socket) -> bool:
        """Return whether there is a place; close the oldest silent connection to make one."""
        with self._lock:
            if len(self._connections) >= self._max_connections:
                silent = next((c for c, is_read in self._connections.items() if not is_read), None)
                if silent is None:
                    return False
                del self._connections[silent]
                with suppress(OSError):
                    silent.shutdown(socket.SHUT_RDWR)
            self._connections[connection] = False
            return True

    def mark_read(self, connection: socket.socket) -> None:
        """Note that the client has sent its whole request."""
        with self._lock:
            if connection in self._connections:
                self._connections[connection] = True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close the listening socket and all connections: tabs notice that the server is gone."""
        super().server_close()
        self.drop_connections()

    def drop_connections(self) -> None:
        """Close all connections."""
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that goes away is no fault of the server."""


class _TimedReader(io.RawIOBase):
    """Reads from a connection until a time, however slowly the bytes arrive."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        super().__init__()
        self._connection = connection
        self._end_s = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """One connection. HTTP/1.0: the end of the connection is the end of the answer."""

    server: PageServer
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_TimedReader(self.connection, REQUEST_S))

    def version_string(self) -> str:
        return "batchyard"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP. Nothing of the request is repeated."""
        self._send(text_answer(code, "this request cannot be read"))

    def __getattr__(self, name: str) -> Any:
        # The parent calls do_GET, do_POST ..., and answers methods without such a function itself.
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        try:
            request = self._read_request()
        except RefusedError as refusal:
            self._send(text_answer(refusal.status, refusal.message))
            return
        self.server.mark_read(self.connection)
        self._send(self.server.respond(request))

    def _read_request(self) -> Request:
        if self.command not in _METHODS:
            raise RefusedError(405, f"only {', '.join(_METHODS)} are answered")
        names = [name.lower() for name in self.headers]
        if len(set(names) & {"host", "origin", "cookie"}) < sum(
            name in ("host", "origin", "cookie") for name in names
        ):
            raise RefusedError(400, "a header is there twice")
        if "transfer-encoding" in names:
            raise RefusedError(400, "a body in chunks is not read")
        try:
            parts = urlsplit(self.path)
        except ValueError:
            raise RefusedError(400, "the address cannot be read") from None
        is_form = self.command == "POST"
        query = self._read_body() if is_form else parts.query
        return Request(
            method=self.command,
            path=parts.path,
            parameters=_parse_parameters(query),
            headers={name.lower(): value for name, value in self.headers.items()},
        )

    def _read_body(self) -> str:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and int(length[:9]) <= MAX_BODY):
            raise RefusedError(413, f"a body needs a length of at most {MAX_BODY} bytes")
        return self.rfile.read(int(length[:9])).decode("utf-8", errors="replace")

    def _send(self, answer: Answer) -> None:
        self.connection.settimeout(self.server.send_s)
        parts = iter([answer.body]) if isinstance(answer.body, bytes) else answer.body
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            if isinstance(answer.body, bytes):
                self.send_header("Content-Length", str(len(answer.body)))
            for name, value in {**SECURITY_HEADERS, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                for part in parts:
                    for begin in range(0, len(part), _PIECE):
                        self.wfile.write(part[begin : begin + _PIECE])
        except OSError:
            self.close_connection = True  # the client has gone, or does not read
        finally:
            _close(parts)


def _close(parts: Iterator[bytes]) -> None:
    """End a generator whose client has gone, so that it gives back what it holds."""
    close = getattr(parts, "close", None)
    if close is not None:
        close()


def _parse_parameters(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise RefusedError(400, "the parameters cannot be read") from None
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise RefusedError(400, "a parameter is there twice")
    return parameters
