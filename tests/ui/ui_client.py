"""Raw requests to the page's server, as a browser, another web page or an attacker sends them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from batchyard.ui import server as ui_server
from batchyard.ui.application import Settings
from batchyard.ui.http_server import PageServer


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Page:
    """A server of the page that runs in this process."""

    server: PageServer
    address: str
    cookie: str = ""

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.address).query)["token"][0]

    def sign_in(self) -> None:
        reply = self.ask(f"/?token={self.token}", cookie="")
        self.cookie = reply.headers["set-cookie"].partition(";")[0]

    def get(self, path: str, **parameters: object) -> Reply:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return self.ask(f"{path}{query}")

    def ask(
        self,
        target: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        cookie: str | None = None,
    ) -> Reply:
        """Send one request. ``headers`` replace the usual ones; an empty value leaves one out."""
        cookie = self.cookie if cookie is None else cookie
        fields = {"Host": f"127.0.0.1:{self.port}", "Cookie": cookie, **(headers or {})}
        if body or method == "POST":
            fields.setdefault("Content-Length", str(len(body)))
        lines = [f"{method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items() if value]
        return self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def send(self, data: bytes) -> Reply:
        with self.connect() as connection:
            connection.sendall(data)
            received = b""
            while part := connection.recv(65536):
                received += part
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return Reply(int(first.split()[1]), {name.lower(): value for name, value in pairs}, body)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    @contextmanager
    def events(self, path: str, **parameters: object) -> Iterator[Iterator[tuple[str, Any]]]:
        """Follow a stream: names and values of its events."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        with self.connect() as connection, connection.makefile("rb") as file:
            connection.sendall(
                f"GET {path}{query} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
                f"Cookie: {self.cookie}\r\n\r\n".encode()
            )
            assert b" 200 " in file.readline()
            while file.readline().strip():
                pass

            def parse() -> Iterator[tuple[str, Any]]:
                name = ""
                for line in file:
                    if line.startswith(b"event: "):
                        name = line[7:].strip().decode()
                    elif line.startswith(b"data: "):
                        yield name, json.loads(line[6:])

            yield parse()


@contextmanager
def serve(home: Path, port: int = 0, **settings: Any) -> Iterator[Page]:
    """Serve the runs of a folder."""
    server, address = ui_server.make_server(Settings(home, **settings), port=port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        page = Page(server, address)
        page.sign_in()
        yield page
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
