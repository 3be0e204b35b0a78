"""Access to the endpoint: programs on this machine or clients with the token, but no web page.

The endpoint runs commands, so it refuses web pages: a page in a browser can send requests to
127.0.0.1, either directly (with an Origin header) or under a host name of its own that resolves to
127.0.0.1 (with this name in the Host header). If the endpoint listens beyond loopback, clients need
the token.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qs

WRONG_KEY = "the access key is not this endpoint's token"
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_ACCESS_KEY = re.compile(r"Credential=([^/,\s]+)/")
_CREDENTIAL = re.compile(r"Credential=([^,\s]+)")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]*))(?::[0-9]*)?")


def find_refusal(
    environ: Mapping[str, object], token: str | None, *, has_secret_path: bool = False
) -> str | None:
    """Return why a request is refused, or None for an accepted request.

    ``environ`` is the WSGI environment. ``token`` is None for an endpoint on loopback.
    ``has_secret_path`` says that the path of the request contains a secret, as the paths of the
    metadata service do; its clients have no credentials yet.
    """
    if environ.get("HTTP_ORIGIN"):
        return "requests of web pages (with an Origin) are refused: this endpoint runs commands"
    if token is None:
        return _host_refusal(str(environ.get("HTTP_HOST", "")))
    if has_secret_path:
        return None
    key = access_key(environ)
    if key is None or not hmac.compare_digest(key.encode(), token.encode()):
        return WRONG_KEY
    return None


def _host_refusal(header: str) -> str | None:
    host = _strip_port(header)
    if host in _LOOPBACK_HOSTS or host.endswith(".localhost"):
        return None
    return f"Host {host!r} is refused: this endpoint is for 127.0.0.1 and localhost"


def is_usable_token(token: str) -> bool:
    """Return whether a client can send the token as its access key in a signature."""
    return re.fullmatch(r"[A-Za-z0-9_.~+=-]+", token) is not None


def access_key(environ: Mapping[str, object]) -> str | None:
    """Return the access key id in the Authorization header or the query of a signed request."""
    match = _ACCESS_KEY.search(str(environ.get("HTTP_AUTHORIZATION", "")))
    if match:
        return match[1]
    query = parse_qs(str(environ.get("QUERY_STRING", "")))
    # AWSAccessKeyId belongs to signature version 2, which S3 clients still use for presigned URLs.
    credential = query.get("X-Amz-Credential") or query.get("AWSAccessKeyId") or [""]
    return credential[0].partition("/")[0] or None


def signature_scope(environ: Mapping[str, object]) -> tuple[str, str] | None:
    """Return (region, service) of the signature, or None for an unsigned request."""
    match = _CREDENTIAL.search(str(environ.get("HTTP_AUTHORIZATION", "")))
    if match:
        credential = match[1]
    else:
        query = parse_qs(str(environ.get("QUERY_STRING", "")))
        credential = query.get("X-Amz-Credential", [""])[0]
    parts = credential.split("/")
    return (parts[-3], parts[-2]) if len(parts) >= 5 else None


def _strip_port(header: str) -> str:
    """Return the host of a Host header in lower case; an invalid header is returned whole."""
    match = _HOST.fullmatch(header)
    return (match[1] or match[2] if match else header).lower()
