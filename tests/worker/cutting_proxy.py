"""A TCP proxy in front of an endpoint, which cuts connections when a test asks for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Proxy:
    """Cuts a connection when ``allows`` returns False for a chunk.

    Its arguments: number of the connection, bytes to the server, count of bytes to the client.
    """

    upstream: str
    allows: Callable[[int, bytes, int], bool]
    url: str = ""
    connections: int = 0
    cuts: int = 0
    _open: list[socket.socket] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        target = urlsplit(self.upstream)
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection((target.hostname, target.port or 80))
            self._open += [client, server]
            threading.Thread(
                target=self._carry, args=(self.connections, client, server), daemon=True
            ).start()

    def _carry(self, number: int, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._back, args=(number, server, client), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(65536):
                if not self.allows(number, data, 0):
                    self._cut(client, server)
                    return
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        back.join()

    def _back(self, number: int, server: socket.socket, client: socket.socket) -> None:
        sent = 0
        with suppress(OSError):
            while data := server.recv(65536):
                sent += len(data)
                if not self.allows(number, b"", sent):
                    client.sendall(data[: len(data) // 2])
                    self._cut(client, server)
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)

    def _cut(self, *sockets: socket.socket) -> None:
        self.cuts += 1
        for open_socket in sockets:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for open_socket in self._open:
            open_socket.close()


@contextmanager
def cutting(upstream: str, allows: Callable[[int, bytes, int], bool]) -> Iterator[Proxy]:
    proxy = Proxy(upstream, allows)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=proxy.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            proxy.close()
