"""Requests that the page must refuse, and clients that must not hinder others."""

from __future__ import annotations

import itertools
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from ui_client import Page, Reply, serve

from batchyard.ui import http_server
from batchyard.ui.access import SECURITY_HEADERS, Access, is_loopback
from batchyard.ui.answers import TEXT, Answer
from batchyard.ui.application import ACTION_HEADER, Application, Settings
from batchyard.ui.http_server import PageServer

#: All addresses of the page, from its code: a new one is attacked, too.
ROUTES = Application(Settings(Path(), allows_actions=True), Access.make(1)).routes
ADDRESSES = ("/page/main.js", *(path for method, path in ROUTES if method == "GET"))


def test_every_answer_has_the_headers_that_bind_a_browser(page: Page) -> None:
    for target in ("/", "/page/main.js", "/nothing", "/api/about"):
        reply = page.ask(target)
        for name, value in SECURITY_HEADERS.items():
            assert reply.headers[name.lower()] == value
        assert "'unsafe-inline'" not in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "attacker.example:{port}",
        "127.0.0.1.attacker.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "user@127.0.0.1:{port}",
        "127.0.0.1:{port}/x",
        "192.168.1.5:{port}",
        "",
    ],
)
def test_another_host_is_refused(page: Page, host: str) -> None:
    """DNS rebinding: the page of an attacker has his name, and the address 127.0.0.1."""
    for target in (*ADDRESSES, f"/?token={page.token}"):
        reply = page.ask(target, headers={"Host": host.format(port=page.port)})
        assert reply.status == 403
        assert "set-cookie" not in reply.headers


def test_hosts_of_loopback_are_accepted(page: Page) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        assert page.ask("/api/about", headers={"Host": f"{host}:{page.port}"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://attacker.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_another_origin_is_refused(page: Page, headers: dict[str, str]) -> None:
    for target in ADDRESSES:
        assert page.ask(target, headers=headers).status == 403


def test_a_link_on_another_page_opens_this_one_with_the_token_only(page: Page) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert page.ask(f"/?token={page.token}", headers=link, cookie="").status == 200
    assert page.ask("/", headers=link, cookie="").status == 403


def test_no_token_and_guessed_tokens(page: Page) -> None:
    name = page.cookie.partition("=")[0]
    guesses = ["", "x", page.token, page.token[:-1], "%00", "a" * 5000]
    for target in ADDRESSES:
        assert page.ask(target, cookie="").status == 403
        for guess in guesses:
            assert page.ask(target, cookie=f"{name}={guess}").status == 403
    for guess in ["", "x", page.token[:-1], page.token + "x", page.token.lower() + "é"]:
        reply = page.ask(f"/?token={guess.encode().hex() if 'é' in guess else guess}", cookie="")
        assert reply.status == 403
        assert "set-cookie" not in reply.headers


def test_the_cookie_is_for_this_page_only(page: Page) -> None:
    reply = page.ask(f"/?token={page.token}", cookie="")
    assert reply.status == 200
    _, _, attributes = reply.headers["set-cookie"].partition("; ")
    assert attributes == "HttpOnly; SameSite=Strict; Path=/"
    assert page.token not in reply.headers["set-cookie"] and page.token not in reply.text


def test_cookies_of_other_servers_do_not_lock_out_the_user() -> None:
    """A browser sends the cookies of all ports of a host, also those that break the grammar."""
    access = Access(8080, "t", "secret")
    own = "batchyard-ui-8080=secret"
    for cookies in (
        f'prefs={{"x":"y"}}; {own}',
        f"{own}; a b=\xe9,[]",
        f"=;; ;{own}",
        f"x; {own};",
    ):
        assert access.has_session({"cookie": cookies})
    for cookies in ("", "x=secret", "batchyard-ui-8081=secret", "batchyard-ui-8080", f"a={own}"):
        assert not access.has_session({"cookie": cookies})


def test_unsafe_methods_are_refused(page: Page, run_id: str) -> None:
    own = {"Origin": f"http://127.0.0.1:{page.port}"}
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X"):
        for target in ("/", "/api/run", f"/?token={page.token}"):
            assert page.ask(target, method, own).status in (400, 404, 405)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://evil.example"}
    for origin in (form, {**form, "Origin": ""}):
        reply = page.ask("/api/act", "POST", origin, f"run={run_id}&action=stop".encode())
        assert reply.status == 403


#: Values that would leave a folder, a table or a line if they became part of a path or a header.
BAD_VALUES = [
    "../../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "/etc/passwd",
    "demo-20250101-000000/../x",
    "work/../../x",
    "work\x00",
    "work\r\nX-Evil: 1",
    "-1",
    "1e3",
    "²",
    "9" * 400,
    "$(touch evil)",
    "`touch evil`",
    "",
]


#: Parameter -> a value that every address accepts.
GOOD_VALUES = {
    **{"step": "work", "index": "3", "attempt": "1", "begin": "0", "state": "FAILED"},
    **{"text": "line", "action": "retry"},
}
#: Addresses that refuse even these: nothing of this run waits, and it must not be repeated here.
REFUSING = ("/api/doctor", "/api/act")
#: Any text may be searched for.
FREE_TEXTS = ("text",)


def send(page: Page, method: str, path: str, values: dict[str, str]) -> Reply:
    """Send a request as the page does."""
    if method == "GET":
        return page.get(path, **values)
    own = {"Origin": f"http://127.0.0.1:{page.port}", ACTION_HEADER: "1"}
    return page.ask(path, method, own, urlencode(values).encode())


@pytest.mark.parametrize(("method", "path"), ROUTES, ids="-".join)
def test_no_parameter_of_any_address_reaches_a_path(
    home: Path, run_id: str, method: str, path: str
) -> None:
    names = ROUTES[method, path].parameters
    good = {"run": run_id, **GOOD_VALUES}
    assert set(names) <= good.keys(), "a new parameter needs a value here"
    with serve(home, allows_actions=True) as page:
        before = list_files(home)
        values = {name: good[name] for name in names}
        for name, bad in itertools.product(names, BAD_VALUES):
            reply = send(page, method, path, {**values, name: bad})
            if not (bad and name in FREE_TEXTS):
                assert reply.status in (400, 404), (name, bad, reply)
            assert "x-evil" not in reply.headers and b"root:" not in reply.body
        assert send(page, method, path, {**values, "surprise": "x"}).status == 400
        for name in names:
            missing = {key: value for key, value in values.items() if key != name}
            assert read_status(page, method, path, missing) in (200, 400)
        if path not in REFUSING:
            assert read_status(page, method, path, values) == 200
        assert list_files(home) == before


def read_status(page: Page, method: str, path: str, values: dict[str, str]) -> int:
    """Return the status of an answer that may have no end."""
    if method == "POST":
        return send(page, method, path, values).status
    with page.connect() as connection:
        connection.sendall(
            f"GET {path}?{urlencode(values)} HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n"
            f"Cookie: {page.cookie}\r\n\r\n".encode()
        )
        return int(connection.recv(1000).split()[1])


def list_files(home: Path) -> list[Path]:
    """All files but those that SQLite makes while a database is open."""
    return sorted(path for path in home.rglob("*") if not path.name.startswith("state.db-"))


@pytest.mark.parametrize(
    "target",
    [
        "/page/../server.py",
        "/page/..%2fserver.py",
        "/page/%2e%2e/server.py",
        "//etc/passwd",
        "/page//main.js",
        "/page/",
        "/page/main.js/",
        "/page/main.js\\..",
        "/../../../../etc/passwd",
        "http://[x/",
    ],
)
def test_only_the_files_of_the_page_are_served(page: Page, target: str) -> None:
    assert page.ask(target).status in (400, 404)


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n",
        b"POST /api/act HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 99999999\r\n\r\n",
        b"POST /api/act HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /?" + b"&".join(b"a%d=1" % n for n in range(100)) + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_requests_that_are_no_http(page: Page, data: bytes) -> None:
    with page.connect() as connection:
        try:
            connection.sendall(data.replace(b"{port}", str(page.port).encode()))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1000)
        except OSError:  # the server has closed the connection
            answer = b""
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert page.ask("/api/about").status == 200


def test_names_and_commands_are_data(page: Page, run_id: str) -> None:
    child = page.get("/api/child", run=run_id, step="work", index=3)
    assert child.headers["content-type"] == "application/json"
    assert "<script>" in child.json()["commands"][0]["text"]
    log = page.get("/api/log", run=run_id, step="prepare", index=0)
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    assert b"<script>" in log.body and b"\x1b[31m" in log.body


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for both ends of a thousand connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"a process may open only {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_silent_connections_do_not_lock_out_the_user(page: Page) -> None:
    silent = []
    try:
        for _ in range(1000):
            connection = page.connect()
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
            silent.append(connection)
        assert page.ask("/api/about").status == 200
        assert len(page.server._connections) <= http_server.MAX_CONNECTIONS
    finally:
        for connection in silent:
            connection.close()


def test_a_client_that_sends_a_byte_at_a_time_is_cut_off(page: Page) -> None:
    with page.connect() as connection:
        connection.settimeout(0.5)
        received = None
        for _ in range(40):
            try:
                connection.sendall(b"G")
                received = connection.recv(100)
                break
            except TimeoutError:
                continue
            except ConnectionError:
                received = b""
                break
        assert received is not None and b"200" not in received


def test_a_client_that_does_not_read_holds_no_answer(page: Page, run_id: str) -> None:
    """A tab that takes nothing blocks only its own thread, and its stream ends with it."""
    with page.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.sendall(
            f"GET /api/run?run={run_id}&step=work HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n"
            f"Cookie: {page.cookie}\r\n\r\n".encode()
        )
        assert page.ask("/api/about").status == 200


@contextmanager
def connect_for_answer(data: bytes, send_s: float) -> Iterator[tuple[PageServer, socket.socket]]:
    """Ask a server for an answer of one part; a client must take each piece in ``send_s``."""
    with PageServer("127.0.0.1", 0, send_s=send_s) as server:
        server.respond = lambda request: Answer(200, TEXT, iter([data]))
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            with socket.socket() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                connection.settimeout(30)
                connection.connect(("127.0.0.1", server.port))
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                yield server, connection
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_a_slow_client_gets_the_whole_answer() -> None:
    """Each piece arrives in time, all of them together do not."""
    data = b"x" * (16 << 20)
    with connect_for_answer(data, send_s=2.0) as (_, connection):
        received = 0
        while part := connection.recv(1 << 17):
            received += len(part)
            time.sleep(0.03)
    assert received > len(data)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    with connect_for_answer(b"x" * (16 << 20), send_s=0.2) as (server, connection):
        connection.recv(1)
        while server._connections:
            time.sleep(0.05)


def test_addresses_beyond_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "10.0.0.1", "host.example"))
    everywhere = Access(80, "t", "s", names=("yard",), allows_addresses=True)
    for host in ("10.1.2.3:80", "10.1.2.3", "yard", "[fe80::1]:80"):
        assert everywhere.find_refusal("GET", {"host": host}) is None
    assert everywhere.find_refusal("GET", {"host": "attacker.example"}) is not None
