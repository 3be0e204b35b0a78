"""Ask the EC2 metadata service for the type of this instance.

One short request on the local link, and none on a machine that is not an EC2 instance.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

_ENDPOINT = "http://169.254.169.254"
_TIMEOUT_S = 1.0
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")
_TYPE = re.compile(r"[a-z0-9-]{1,20}\.[a-z0-9-]{1,20}")


def instance_type(environ: Mapping[str, str], vendor: str | None = None) -> str | None:
    """Return the EC2 instance type; None if this is no instance or the service does not answer."""
    endpoint = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    # On any other machine the request would only run into its timeout.
    if not endpoint and "amazon" not in (_vendor() if vendor is None else vendor).lower():
        return None
    try:
        token = _request(
            endpoint or _ENDPOINT,
            "PUT",
            "/latest/api/token",
            {"X-aws-ec2-metadata-token-ttl-seconds": "60"},
        )
        headers = {"X-aws-ec2-metadata-token": token}
        answer = _request(endpoint or _ENDPOINT, "GET", "/latest/meta-data/instance-type", headers)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return answer if _TYPE.fullmatch(answer) else None


def _vendor() -> str:
    try:
        return _VENDOR.read_text()
    except OSError:
        return ""


def _request(endpoint: str, method: str, path: str, headers: Mapping[str, str]) -> str:
    url = urlsplit(endpoint)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=_TIMEOUT_S)
    try:
        connection.request(method, url.path.rstrip("/") + path, headers=dict(headers))
        response = connection.getresponse()
        text = response.read(1024).decode("ascii", "replace").strip()
        if response.status != 200:
            raise ValueError(f"{path}: {response.status}")
        return text
    finally:
        connection.close()
