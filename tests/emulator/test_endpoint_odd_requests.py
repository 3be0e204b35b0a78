"""Requests that no client of AWS sends get AWS's errors, and files are private to the user."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from emulator_endpoint import Endpoint

HUGE = "9" * 17


def sign(service: str) -> str:
    scope = f"key/20260101/us-east-1/{service}/aws4_request"
    return (
        f"Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0\r\n"
    )


def send(endpoint: Endpoint, request_line: str, headers: str, body: str = "") -> tuple[int, str]:
    """Return the status and the body of the answer."""
    host, _, port = endpoint.url.removeprefix("http://").rpartition(":")
    text = f"{request_line} HTTP/1.1\r\nHost: {host}:{port}\r\n{headers}\r\n{body}"
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(1 << 16):
            answer += data
    head, _, content = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), content


@pytest.mark.parametrize(
    ("request_line", "headers", "body", "status", "code"),
    [
        ("POST /v1/describejobs", f"Content-Length: {HUGE}\r\n", "{}", 400, "EntityTooLarge"),
        (
            *("POST /v1/describejobs", f"{sign('batch')}Content-Length: {HUGE}\r\n", "{}"),
            *(413, "RequestEntityTooLargeException"),
        ),
        (
            *("PUT /bucket/key", f"{sign('s3')}Content-Length: {'9' * 30}\r\n", "{}"),
            *(400, "<Code>EntityTooLarge</Code>"),
        ),
        ("POST /v1/describejobs", "Content-Length: 20\r\n", "{}", 400, "IncompleteBody"),
        (
            *("POST /v1/describejobs", "Transfer-Encoding: chunked\r\n", "zzz\r\n{}"),
            *(400, "IncompleteBody"),
        ),
        ("POST /v2/odd%ff", "Content-Length: 0\r\n", "", 403, "MissingAuthenticationToken"),
        ("PUT /a", "Content-Length: 3\r\n", "abc", 403, "MissingAuthenticationToken"),
        ("GET /%00/../[x", "", "", 404, "NoSuchBucket"),
    ],
)
def test_an_odd_request_gets_an_error_of_aws(
    endpoint: Endpoint, request_line: str, headers: str, body: str, status: int, code: str
) -> None:
    answer_status, content = send(endpoint, request_line, headers, body)
    assert answer_status == status and code in content
    assert "Traceback" not in endpoint.said.read_text()


def test_only_the_user_can_read_the_state_and_the_logs(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "2")
    endpoint.queue("queue", endpoint.environment("cpu"))
    short, long = endpoint.run("echo", "short"), endpoint.run("sh", "-c", "echo long; sleep 1.5")
    for job_id in (short, long):
        endpoint.wait(job_id)
    home = endpoint.folder / "home" / "emulator"
    files = [path for path in home.rglob("*") if path.is_file() and path.name != "lock"]
    assert {"state.db", "state.db-wal", "short.log", "0-1.log"} <= {path.name for path in files}
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in files} == {
        path.name: "0o600" for path in files
    }
    endpoint.stop()
    # An earlier version made the database readable for all.
    (home / "state.db").chmod(0o644)
    start("--cpus", "2")
    assert (home / "state.db").stat().st_mode & 0o777 == 0o600
