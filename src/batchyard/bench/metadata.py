"""Which EC2 instance this is, from the metadata service. One short question on the local link; none elsewhere."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

_ADDRESS = "http://169.254.169.254"
_TIMEOUT_S = 1.0
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")
_TYPE = re.compile(r"[a-z0-9-]{1,20}\.[a-z0-9-]{1,20}")


def instance_type(environ: Mapping[str, str], vendor: str | None = None) -> str | None:
    """None where this is no EC2 instance, or it does not say."""
    endpoint = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    # Elsewhere nobody would answer, and the silence would take seconds.
    if not endpoint and "amazon" not in (_vendor() if vendor is None else vendor).lower():
        return None
    try:
        token = _ask(
            endpoint or _ADDRESS,
            "PUT",
            "/latest/api/token",
            {"X-aws-ec2-metadata-token-ttl-seconds": "60"},
        )
        headers = {"X-aws-ec2-metadata-token": token}
        said = _ask(endpoint or _ADDRESS, "GET", "/latest/meta-data/instance-type", headers)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return said if _TYPE.fullmatch(said) else None


def _vendor() -> str:
    try:
        return _VENDOR.read_text()
    except OSError:
        return ""


def _ask(endpoint: str, method: str, path: str, headers: Mapping[str, str]) -> str:
    where = urlsplit(endpoint)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=_TIMEOUT_S)
    try:
        connection.request(method, where.path.rstrip("/") + path, headers=dict(headers))
        answer = connection.getresponse()
        text = answer.read(1024).decode("ascii", "replace").strip()
        if answer.status != 200:
            raise ValueError(f"{path}: {answer.status}")
        return text
    finally:
        connection.close()
