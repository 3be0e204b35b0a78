"""The instance metadata service of the EC2 host that an attempt pretends to be on: version 2, with tokens. Pure.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html
Spot notices are facts, 10.4.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from batchyard.emulator.names import ACCOUNT_ID

#: (status, headers, body)
Answer = tuple[int, dict[str, str], bytes]
#: name -> what is there: a text, or more names
Tree = Mapping[str, "str | Tree"]

_TTL_HEADER = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
_TOKEN_HEADER = "X-Aws-Ec2-Metadata-Token"
_TTLS_S = range(1, 21_600 + 1)
_SIGNATURE_BYTES = 24
_VERSION = re.compile(r"latest|\d{4}-\d{2}-\d{2}")
#: a reclaim is announced so long before it happens
_NOTICE_S = 120
_CREDENTIALS_S = 6 * 3600
_STATUSES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
}
_ERROR_PAGE = """<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
\t"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head>
  <title>{title}</title>
 </head>
 <body>
  <h1>{title}</h1>
 </body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the host's role gives to whatever runs there. They never expire, but say that they do, as AWS's must."""

    role: str
    access_key: str
    secret_key: str
    session_token: str


@dataclass(frozen=True, slots=True)
class Host:
    instance_id: str
    instance_type: str
    region: str
    zone: str
    #: signs the tokens of this host and of no other
    token_key: bytes
    #: when it will be taken away, in seconds since 1970; None while nobody has said so
    notice: float | None = None
    #: None: a host without a role
    credentials: Credentials | None = None
    #: when it came up, in seconds since 1970; None where that is not known
    launched: float | None = None


def answer(host: Host, method: str, path: str, headers: Mapping[str, str], now: float) -> Answer:
    """``path`` as seen from the host: `/latest/meta-data/...`. ``now`` in seconds since 1970."""
    given = {name.lower(): value for name, value in headers.items()}
    parts = [part for part in path.partition("?")[0].split("/") if part]
    if "x-forwarded-for" in given:
        return _error(403)  # whoever comes by way of a proxy is not on the host
    if parts == ["latest", "api", "token"]:
        return (
            _new_token(host, given, now) if method == "PUT" else _error(405, Allow="OPTIONS, PUT")
        )
    if method not in ("GET", "HEAD"):
        return _error(405, Allow="OPTIONS, GET, HEAD")
    seconds_left = _seconds_left(host, given.get(_TOKEN_HEADER.lower(), ""), now)
    if seconds_left is None:
        return _error(401)
    found = _look_up(_root(host, now), parts)
    if found is None:
        return _error(404)
    body = b"" if method == "HEAD" else found.encode()
    return (
        200,
        {"Content-Type": "text/plain", _TTL_HEADER: str(seconds_left), "Server": "EC2ws"},
        body,
    )


def tells_type(path: str) -> bool:
    """Whether an answer may depend on the host's type. Tokens and notices do not, and are asked for all the time."""
    return "/api/token" not in path and "/spot/" not in path


def _error(status: int, **headers: str) -> Answer:
    page = _ERROR_PAGE.format(title=f"{status} - {_STATUSES[status]}")
    return status, {"Content-Type": "text/html", "Server": "EC2ws", **headers}, page.encode()


# -- tokens -----------------------------------------------------------------------------------------------------


def _new_token(host: Host, given: Mapping[str, str], now: float) -> Answer:
    ttl = given.get(_TTL_HEADER.lower(), "")
    if not re.fullmatch(r"[0-9]{1,5}", ttl) or int(ttl) not in _TTLS_S:
        return _error(400)
    expires = (int(now) + int(ttl)).to_bytes(8)
    token = base64.urlsafe_b64encode(expires + _signature(host, expires))
    return 200, {"Content-Type": "text/plain", _TTL_HEADER: ttl, "Server": "EC2ws"}, token


def _seconds_left(host: Host, token: str, now: float) -> int | None:
    """None where the token is none of this host, or has expired."""
    try:
        data = base64.urlsafe_b64decode(token.encode())
    except ValueError:
        return None
    expires, signature = data[:8], data[8:]
    if not hmac.compare_digest(signature, _signature(host, expires)):
        return None
    left = int.from_bytes(expires) - int(now)
    return left if left > 0 else None


def _signature(host: Host, expires: bytes) -> bytes:
    return hmac.digest(host.token_key, host.instance_id.encode() + expires, "sha256")[
        :_SIGNATURE_BYTES
    ]


# -- what there is ----------------------------------------------------------------------------------------------


def _look_up(root: Tree, parts: list[str]) -> str | None:
    """A text, or the names in a folder; None where there is neither."""
    if not parts:
        return "latest"
    if not _VERSION.fullmatch(parts[0]):
        return None
    at: str | Tree = root
    for part in parts[1:]:
        if isinstance(at, str) or part not in at:
            return None
        at = at[part]
    if isinstance(at, str):
        return at
    # The root's folders and the roles are listed by name alone.
    is_bare = len(parts) == 1 or parts[-1] == "security-credentials"
    return "\n".join(
        name if is_bare or isinstance(at[name], str) else f"{name}/" for name in sorted(at)
    )


def _root(host: Host, now: float) -> Tree:
    return {
        "dynamic": {"instance-identity": {"document": _json(_identity(host))}},
        "meta-data": _meta_data(host, now),
    }


def _meta_data(host: Host, now: float) -> Tree:
    hostname = _hostname(host)
    events: dict[str, str | Tree] = {"maintenance": {"history": "[]", "scheduled": "[]"}}
    found: dict[str, str | Tree] = {
        "ami-id": _image(host),
        "ami-launch-index": "0",
        "events": events,
        "hostname": hostname,
        "instance-action": "none",
        "instance-id": host.instance_id,
        "instance-life-cycle": "spot",
        "instance-type": host.instance_type,
        "local-hostname": hostname,
        "local-ipv4": _address(host),
        "placement": {"availability-zone": host.zone, "region": host.region},
        "services": {"domain": "amazonaws.com", "partition": "aws"},
    }
    if host.credentials is not None:
        found["iam"] = _iam(host.credentials, now)
    if host.notice is not None:
        found["spot"] = {
            "instance-action": json.dumps({"action": "terminate", "time": _time(host.notice)}),
            "termination-time": _time(host.notice),
        }
        advice = json.dumps({"noticeTime": _time(host.notice - _NOTICE_S)})
        found["events"] = {
            "maintenance": {"history": "[]", "scheduled": "[]"},
            "recommendations": {"rebalance": advice},
        }
    return found


def _iam(credentials: Credentials, now: float) -> Tree:
    # The same answer for an hour, as the real ones are renewed from time to time only.
    updated = now - now % 3600
    keys = {
        "Code": "Success",
        "LastUpdated": _time(updated),
        "Type": "AWS-HMAC",
        "AccessKeyId": credentials.access_key,
        "SecretAccessKey": credentials.secret_key,
        "Token": credentials.session_token,
        "Expiration": _time(updated + _CREDENTIALS_S),
    }
    info = {
        "Code": "Success",
        "LastUpdated": _time(updated),
        "InstanceProfileArn": f"arn:aws:iam::{ACCOUNT_ID}:instance-profile/{credentials.role}",
        "InstanceProfileId": f"AIPA{_digest(credentials.role)[:17].upper()}",
    }
    return {"info": _json(info), "security-credentials": {credentials.role: _json(keys)}}


def _identity(host: Host) -> dict[str, Any]:
    document: dict[str, Any] = {
        "accountId": ACCOUNT_ID,
        "architecture": _architecture(host.instance_type),
        "availabilityZone": host.zone,
        "billingProducts": None,
        "devpayProductCodes": None,
        "marketplaceProductCodes": None,
        "imageId": _image(host),
        "instanceId": host.instance_id,
        "instanceType": host.instance_type,
        "kernelId": None,
        "privateIp": _address(host),
        "ramdiskId": None,
        "region": host.region,
        "version": "2017-09-30",
    }
    if host.launched is not None:
        document["pendingTime"] = _time(host.launched)
    return document


def _architecture(instance_type: str) -> str:
    """Graviton types have a g after the number of their generation."""
    return "arm64" if re.match(r"a1\.|[a-z]+\d+g", instance_type) else "x86_64"


def _image(host: Host) -> str:
    return f"ami-0{_digest(host.region + _architecture(host.instance_type))[:16]}"


def _address(host: Host) -> str:
    """One for each host, in 10.0.0.0/8."""
    numbers = bytes.fromhex(_digest(host.instance_id)[:6])
    return ".".join(map(str, (10, *numbers)))


def _hostname(host: Host) -> str:
    domain = "ec2.internal" if host.region == "us-east-1" else f"{host.region}.compute.internal"
    return f"ip-{_address(host).replace('.', '-')}.{domain}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: object) -> str:
    """With AWS's blanks."""
    return json.dumps(value, indent=2, separators=(",", " : "))
