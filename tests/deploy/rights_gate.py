"""Stands before an endpoint as IAM stands before AWS: passes on what a policy allows, refuses the
rest, keeps both.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from aws_requests import Request, rights
from policies import Call, allowed

#: of one connection only
_HOP = ("connection", "expect", "transfer-encoding", "keep-alive")


class Gate:
    def __init__(self, upstream: str, statements: list[dict[str, Any]]) -> None:
        self.upstream = urlsplit(upstream)
        self.statements = statements
        self.url = ""
        self.passed: list[tuple[Request, tuple[Call, ...]]] = []
        self.refused: list[tuple[Request, Call]] = []
        self._tags: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    @property
    def used(self) -> set[Call]:
        """Every right that something needed, and had."""
        return {right for _, needed in self.passed for right in needed}

    def judge(self, request: Request) -> Call | None:
        """The first right that is missing."""
        needed = rights(request, self._tags)
        with self._lock:
            for right in needed:
                if not allowed(self.statements, right):
                    self.refused.append((request, right))
                    return right
            self.passed.append((request, tuple(needed)))
            if (request.service, request.operation) == ("batch", "CreateConsumableResource"):
                self._tags[request.members["consumableResourceName"]] = request.members.get(
                    "tags", {}
                )
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gate: Gate

    def _handle(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, self._body())
        missing = self.gate.judge(request)
        if missing is not None:
            return self._refuse(request, missing)
        upstream = http.client.HTTPConnection(
            str(self.gate.upstream.hostname), self.gate.upstream.port or 80
        )
        try:
            kept = {name: value for name, value in headers.items() if name not in _HOP}
            upstream.request(
                self.command,
                self.path,
                request.body,
                {**kept, "content-length": str(len(request.body))},
            )
            answer = upstream.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in (*_HOP, "content-length", "date", "server"):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        finally:
            upstream.close()

    def _refuse(self, request: Request, missing: Call) -> None:
        said = (
            f"User: dev is not authorized to perform: {missing.action} on resource: "
            f"{missing.resource}"
        )
        if request.service in ("batch", "logs", "ecr", "ecs", "servicequotas"):
            body = json.dumps({"__type": "AccessDeniedException", "message": said})
        elif request.service == "s3":
            body = f"<Error><Code>AccessDenied</Code><Message>{said}</Message></Error>"
        else:
            error = f"<Error><Code>AccessDenied</Code><Message>{said}</Message></Error>"
            body = f"<ErrorResponse>{error}</ErrorResponse>"
        self.send_response(403)
        self.send_header("x-amzn-ErrorType", "AccessDeniedException")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body.encode())

    # The names are http.server's.
    do_GET = do_PUT = do_POST = _handle  # noqa: N815 (http.server looks up these names)
    do_DELETE = do_HEAD = do_PATCH = _handle  # noqa: N815 (http.server looks up these names)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def standing_before(upstream: str, statements: list[dict[str, Any]]) -> Iterator[Gate]:
    gate = Gate(upstream, statements)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"gate": gate}))
    server.daemon_threads = True
    gate.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield gate
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
