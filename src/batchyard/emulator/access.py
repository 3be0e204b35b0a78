"""Who may talk to the endpoint, which runs commands: this machine's programs, and no web page. Pure.

A page in a browser can send requests to 127.0.0.1, directly (they carry an Origin) or under a name of its own that it
lets point here (they carry that Host). Both are refused. Beyond loopback, whoever has the token is let in.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qs

WRONG_KEY = "the access key is not this endpoint's token"
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]*))(?::[0-9]*)?")


def refusal(
    environ: Mapping[str, object], token: str | None, *, has_key: bool = False
) -> str | None:
    """Why the request is refused; None where it is not. ``environ`` is WSGI's, ``token`` None on loopback; ``has_key``:
    its address has a key of its own, as the metadata service's has, where nobody has credentials yet."""
    if environ.get("HTTP_ORIGIN"):
        return "requests of web pages (with an Origin) are refused: this endpoint runs commands"
    if token is not None and has_key:
        return None
    if token is not None:
        given = access_key(environ)
        if given is None or not hmac.compare_digest(given.encode(), token.encode()):
            return WRONG_KEY
        return None
    host = _host(str(environ.get("HTTP_HOST", "")))
    if host not in ("127.0.0.1", "localhost", "::1") and not host.endswith(".localhost"):
        return f"Host {host!r} is refused: this endpoint is for 127.0.0.1 and localhost"
    return None


def is_usable(token: str) -> bool:
    """Whether a client can send it as its access key, and the key be told from what is around it in a signature."""
    return re.fullmatch(r"[A-Za-z0-9_.~+=-]+", token) is not None


def access_key(environ: Mapping[str, object]) -> str | None:
    """The access key id that a request was signed with, in its header or in its address."""
    found = _CREDENTIAL.search(str(environ.get("HTTP_AUTHORIZATION", "")))
    if found:
        return found[1]
    query = parse_qs(str(environ.get("QUERY_STRING", "")))
    # The second one in addresses signed the old way, which S3's clients still do.
    credential = query.get("X-Amz-Credential") or query.get("AWSAccessKeyId") or [""]
    return credential[0].partition("/")[0] or None


def signed_for(environ: Mapping[str, object]) -> tuple[str, str] | None:
    """(region, service) of the signature's scope; None where the request is not signed."""
    header = str(environ.get("HTTP_AUTHORIZATION", ""))
    found = re.search(r"Credential=([^,\s]+)", header)
    scope = (
        found[1]
        if found
        else parse_qs(str(environ.get("QUERY_STRING", ""))).get("X-Amz-Credential", [""])[0]
    )
    parts = scope.split("/")
    return (parts[-3], parts[-2]) if len(parts) >= 5 else None


def _host(value: str) -> str:
    """Without its port; as it is where it is no host at all."""
    found = _HOST.fullmatch(value)
    return (found[1] or found[2] if found else value).lower()
