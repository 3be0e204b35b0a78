"""Builds the server of `batchyard ui`: its address, its rules of access, and its answers."""

from __future__ import annotations

import socket

from batchyard.ui.access import Access, is_loopback
from batchyard.ui.application import Application, Settings
from batchyard.ui.http_server import PageServer

DEFAULT_HOST = "127.0.0.1"
_ALL_ADDRESSES = ("0.0.0.0", "::")


def make_server(
    settings: Settings, host: str = DEFAULT_HOST, port: int = 0
) -> tuple[PageServer, str]:
    """Return a server that listens, and the address that opens its page, with the token.

    Raises OperationalError if the server cannot listen.
    """
    server = PageServer(host, port)
    names: tuple[str, ...] = ()
    if not is_loopback(host):
        names = (host.lower(), socket.gethostname().lower())
    access = Access.make(server.port, names, allows_addresses=host in _ALL_ADDRESSES)
    server.respond = Application(settings, access).respond
    name = socket.gethostname() if host in _ALL_ADDRESSES else host
    name = f"[{name}]" if ":" in name else name
    return server, f"http://{name}:{server.port}/?token={access.token}"


def explain_host(host: str) -> str:
    """Return what it means to listen on an address; empty for one of loopback."""
    if is_loopback(host):
        return ""
    return (
        f"anyone who can reach {host} and has the address below sees commands and logs, and what is"
        " sent is not encrypted. Without --host, `ssh -L PORT:127.0.0.1:PORT` is safer"
    )
