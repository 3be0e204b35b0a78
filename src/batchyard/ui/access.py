"""Which requests the page answers: of this machine's user, and of no other web page. Pure.

Web pages of others can make a browser send requests to 127.0.0.1: under a host name of theirs that
resolves to 127.0.0.1 (DNS rebinding; the Host header has the name), or from their own origin (the
headers Origin and Sec-Fetch-Site say so). Other users of this machine can connect, too. So each
request must name this host, must not come from another origin, and must have the secret of the
first address, or the cookie that the first answer has set.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from batchyard.quick_dataclasses import dataclass

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
#: Values of Sec-Fetch-Site of requests that no other web page has caused.
_OWN_SITES = ("same-origin", "none")

#: Headers of every answer. No script, style or other content comes from elsewhere or is inline, and
#: no other page can show this one in a frame.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can connect to this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one server."""

    port: int
    #: The secret in the address that `batchyard ui` prints.
    token: str
    #: The value of the cookie.
    session: str
    #: Host names that requests may use beside those of loopback, in lower case.
    names: tuple[str, ...] = ()
    #: Whether requests may use any address, since the server listens on all of them. DNS rebinding
    #: needs a name, so that an address is safe.
    allows_addresses: bool = False

    @classmethod
    def make(cls, port: int, names: tuple[str, ...] = (), allows_addresses: bool = False) -> Access:
        """Return rules with new secrets."""
        token, session = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        return cls(port, token, session, names, allows_addresses)

    @property
    def cookie_name(self) -> str:
        # Cookies do not belong to a port: two servers need two names.
        return f"batchyard-ui-{self.port}"

    @property
    def cookie(self) -> str:
        """The value of Set-Cookie."""
        return f"{self.cookie_name}={self.session}; HttpOnly; SameSite=Strict; Path=/"

    def find_refusal(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Return why a request is refused whatever it asks for, or None.

        ``headers``: their names in lower case.
        """
        host = headers.get("host", "")
        if not self._is_own_host(host):
            return (
                f"the host {host[:100]!r} is not this server: use the address that it printed; "
                "`ssh -L` must forward the same port"
            )
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return "requests of other web pages are refused"
        # A link on another page may lead here; all else of another page is refused.
        is_navigation = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in _OWN_SITES and not is_navigation:
            return "requests of other web pages are refused"
        if method == "POST" and origin is None:
            return "a POST must have an Origin, as that of a browser has"
        return None

    def is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def has_session(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request has the cookie, whatever cookies of other servers it has."""
        pairs = (text.partition("=") for text in headers.get("cookie", "").split(";"))
        values = [value.strip() for name, _, value in pairs if name.strip() == self.cookie_name]
        session = self.session.encode()
        return any(hmac.compare_digest(value.encode(errors="replace"), session) for value in values)

    def _is_own_host(self, header: str) -> bool:
        try:
            parts = urlsplit(f"//{header}")
            name, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        if parts.netloc != header or parts.username is not None or (port or 80) != self.port:
            return False
        return name in _LOOPBACK_NAMES or name in self.names or self._is_allowed_address(name)

    def _is_allowed_address(self, name: str) -> bool:
        if not self.allows_addresses:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
