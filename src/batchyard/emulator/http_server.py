"""The HTTP server of the endpoint: a listening socket, and werkzeug's server with threads on it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchyard.errors import OperationalError

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from werkzeug.serving import BaseWSGIServer


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on an address of this machine; port 0 chooses a free one. Raises OperationalError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as exc:
        listener.close()
        is_taken = exc.errno in (errno.EADDRINUSE, errno.EACCES)
        raise OperationalError(
            f"could not listen on {host}:{port}: {exc.strerror}",
            hint="give another --port, or --port 0 for a free one"
            if is_taken
            else "check --host: it must be an address of this machine",
        ) from exc
    with listener:
        yield listener


def address_of(listener: socket.socket) -> str:
    """Return the URL by which this machine reaches the listener."""
    host, port = listener.getsockname()[:2]
    # A socket that listens on all addresses is reached by loopback.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make(listener: socket.socket, application: WSGIApplication) -> BaseWSGIServer:
    """Return a server that answers each request on a thread of its own."""
    from werkzeug.serving import make_server

    from batchyard.emulator import moto_adapter

    class Handler(moto_adapter.request_handler()):  # type: ignore[misc]
        #: S3 clients send "Expect: 100-continue" before an upload. HTTP/1.0 cannot answer it.
        protocol_version = "HTTP/1.1"
        #: With Nagle's algorithm the body of an answer waits 40 ms for an acknowledgement.
        disable_nagle_algorithm = True

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Print nothing: the endpoint reports jobs, not requests."""

    host, port = listener.getsockname()[:2]
    return make_server(
        host, port, application, threaded=True, request_handler=Handler, fd=listener.fileno()
    )
