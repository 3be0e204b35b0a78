"""The instance metadata service (version 2, with tokens) of the emulated EC2 host of an attempt.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html
Spot notices: facts, 10.4.
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

from batchyard.emulator import names

#: (status, headers, body)
Answer = tuple[int, dict[str, str], bytes]
#: Name -> the text of this name, or the names below it.
Tree = Mapping[str, "str | Tree"]

_TTL_HEADER = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
_TOKEN_HEADER = "X-Aws-Ec2-Metadata-Token"
_TTLS_S = range(1, 21_600 + 1)
_SIGNATURE_BYTES = 24
_VERSION = re.compile(r"latest|\d{4}-\d{2}-\d{2}")
#: AWS announces a reclaim so long before it.
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
    """Credentials of the host's role. They have an expiration time, as on AWS, but stay valid."""

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
    #: Signs the tokens of this host.
    token_key: bytes
    #: When the host is reclaimed, in seconds since 1970; None if no reclaim is announced.
    reclaimed_at_s: float | None = None
    #: None for a host without a role.
    credentials: Credentials | None = None
    #: When the host was launched, in seconds since 1970; None if unknown.
    launched_s: float | None = None
    is_spot: bool = True


def answer(host: Host, method: str, path: str, headers: Mapping[str, str], now_s: float) -> Answer:
    """Answer a request to the metadata service.

    ``path`` is the path on the host: `/latest/meta-data/...`. ``now_s`` is in seconds since 1970.
    """
    headers = {name.lower(): value for name, value in headers.items()}
    parts = [part for part in path.partition("?")[0].split("/") if part]
    if "x-forwarded-for" in headers:
        return _error(403)  # The request comes through a proxy, so the client is not on the host.
    if parts == ["latest", "api", "token"]:
        if method != "PUT":
            return _error(405, Allow="OPTIONS, PUT")
        return _new_token(host, headers.get(_TTL_HEADER.lower(), ""), now_s)
    if method not in ("GET", "HEAD"):
        return _error(405, Allow="OPTIONS, GET, HEAD")
    seconds_left = _seconds_left(host, headers.get(_TOKEN_HEADER.lower(), ""), now_s)
    if seconds_left is None:
        return _error(401)
    text = _look_up(_root(host, now_s), parts)
    if text is None:
        return _error(404)
    body = b"" if method == "HEAD" else text.encode()
    return (
        200,
        {"Content-Type": "text/plain", _TTL_HEADER: str(seconds_left), "Server": "EC2ws"},
        body,
    )


def depends_on_type(path: str) -> bool:
    """Return whether the answer may depend on the instance type.

    Tokens and spot notices, which clients request all the time, do not.
    """
    return "/api/token" not in path and "/spot/" not in path


def _error(status: int, **headers: str) -> Answer:
    page = _ERROR_PAGE.format(title=f"{status} - {_STATUSES[status]}")
    return status, {"Content-Type": "text/html", "Server": "EC2ws", **headers}, page.encode()


# -- tokens ---------------------------------------------------------------------------------------


def _new_token(host: Host, ttl: str, now_s: float) -> Answer:
    if not re.fullmatch(r"[0-9]{1,5}", ttl) or int(ttl) not in _TTLS_S:
        return _error(400)
    expires = (int(now_s) + int(ttl)).to_bytes(8)
    token = base64.urlsafe_b64encode(expires + _signature(host, expires))
    return 200, {"Content-Type": "text/plain", _TTL_HEADER: ttl, "Server": "EC2ws"}, token


def _seconds_left(host: Host, token: str, now_s: float) -> int | None:
    """Return the lifetime of a token; None for an expired token or a token of another host."""
    try:
        data = base64.urlsafe_b64decode(token.encode())
    except ValueError:
        return None
    expires, signature = data[:8], data[8:]
    if not hmac.compare_digest(signature, _signature(host, expires)):
        return None
    seconds = int.from_bytes(expires) - int(now_s)
    return seconds if seconds > 0 else None


def _signature(host: Host, expires: bytes) -> bytes:
    signature = hmac.digest(host.token_key, expires, "sha256")
    return signature[:_SIGNATURE_BYTES]


# -- the tree of metadata -------------------------------------------------------------------------


def _look_up(root: Tree, parts: list[str]) -> str | None:
    """Return the text at a path, or the names below it; None for an unknown path."""
    if not parts:
        return "latest"
    if not _VERSION.fullmatch(parts[0]):
        return None
    node = _find_node(root, parts[1:])
    if node is None or isinstance(node, str):
        return node
    # The names at the root and the names of roles have no slash behind them.
    has_slashes = len(parts) > 1 and parts[-1] != "security-credentials"
    return "\n".join(
        f"{name}/" if has_slashes and not isinstance(node[name], str) else name
        for name in sorted(node)
    )


def _find_node(root: Tree, parts: list[str]) -> str | Tree | None:
    node: str | Tree = root
    for part in parts:
        if isinstance(node, str) or part not in node:
            return None
        node = node[part]
    return node


def _root(host: Host, now_s: float) -> Tree:
    return {
        "dynamic": {"instance-identity": {"document": _json(_identity(host))}},
        "meta-data": _meta_data(host, now_s),
    }


def _meta_data(host: Host, now_s: float) -> Tree:
    hostname = _hostname(host)
    events: dict[str, str | Tree] = {"maintenance": {"history": "[]", "scheduled": "[]"}}
    tree: dict[str, str | Tree] = {
        "ami-id": _image(host),
        "ami-launch-index": "0",
        "events": events,
        "hostname": hostname,
        "instance-action": "none",
        "instance-id": host.instance_id,
        "instance-life-cycle": "spot" if host.is_spot else "on-demand",
        "instance-type": host.instance_type,
        "local-hostname": hostname,
        "local-ipv4": _address(host),
        "placement": {"availability-zone": host.zone, "region": host.region},
        "services": {
            "domain": "amazonaws.com" + (".cn" if host.region.startswith("cn-") else ""),
            "partition": names.partition_of(host.region),
        },
    }
    if host.credentials is not None:
        tree["iam"] = _iam(host.credentials, host.region, now_s)
    if host.reclaimed_at_s is not None and host.is_spot:
        end = _format_time(host.reclaimed_at_s)
        tree["spot"] = {
            "instance-action": json.dumps({"action": "terminate", "time": end}),
            "termination-time": end,
        }
        notice_time = _format_time(host.reclaimed_at_s - _NOTICE_S)
        rebalance = json.dumps({"noticeTime": notice_time})
        events["recommendations"] = {"rebalance": rebalance}
    return tree


def _iam(credentials: Credentials, region: str, now_s: float) -> Tree:
    # The answer changes once an hour, because AWS renews credentials only from time to time.
    updated_s = now_s - now_s % 3600
    keys = {
        "Code": "Success",
        "LastUpdated": _format_time(updated_s),
        "Type": "AWS-HMAC",
        "AccessKeyId": credentials.access_key,
        "SecretAccessKey": credentials.secret_key,
        "Token": credentials.session_token,
        "Expiration": _format_time(updated_s + _CREDENTIALS_S),
    }
    info = {
        "Code": "Success",
        "LastUpdated": _format_time(updated_s),
        "InstanceProfileArn": names.iam_arn(region, f"instance-profile/{credentials.role}"),
        "InstanceProfileId": f"AIPA{_digest(credentials.role)[:17].upper()}",
    }
    return {"info": _json(info), "security-credentials": {credentials.role: _json(keys)}}


def _identity(host: Host) -> dict[str, Any]:
    document: dict[str, Any] = {
        "accountId": names.ACCOUNT_ID,
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
    if host.launched_s is not None:
        document["pendingTime"] = _format_time(host.launched_s)
    return document


def _architecture(instance_type: str) -> str:
    """Return arm64 for Graviton types, which have a g after the number of their generation."""
    return "arm64" if re.match(r"a1\.|[a-z]+\d+g", instance_type) else "x86_64"


def _image(host: Host) -> str:
    return f"ami-0{_digest(host.region + _architecture(host.instance_type))[:16]}"


def _address(host: Host) -> str:
    """Return an address in 10.0.0.0/8 that is derived from the instance id."""
    numbers = bytes.fromhex(_digest(host.instance_id)[:6])
    return ".".join(map(str, (10, *numbers)))


def _hostname(host: Host) -> str:
    domain = "ec2.internal" if host.region == "us-east-1" else f"{host.region}.compute.internal"
    return f"ip-{_address(host).replace('.', '-')}.{domain}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: object) -> str:
    """Format with the white space that AWS uses."""
    return json.dumps(value, indent=2, separators=(",", " : "))
