"""Spot notices: EC2's metadata service (version 2) announces that the machine is taken away.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
"""

from __future__ import annotations

import calendar
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping

_ADDRESS = "http://169.254.169.254"
_TOKEN_PATH = "/latest/api/token"
_NOTICE_PATH = "/latest/meta-data/spot/instance-action"
_TOKEN_TTL_S = 21_600
_TIMEOUT_S = 2
_POLL_S = 2
#: requests after which a service that has never answered is given up
_TRIES = 3
#: time until the end if a notice has none
_DEFAULT_NOTICE_S = 120
#: time until the end if the time in the notice is over: EC2 is late, or a clock is wrong
_LATE_S = 30


class NoMetadataError(Exception):
    """No metadata service answers at the address."""


class Metadata:
    """The metadata service at an address."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._token = ""
        # The service is on this machine, so no proxy is used.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def notice(self) -> str | None:
        """Return the text of the notice; None while there is none. Raises NoMetadataError."""
        return self.read(_NOTICE_PATH)

    def read(self, path: str) -> str | None:
        """Return the text at a path; None if there is none. Raises NoMetadataError."""
        for _ in range(2):
            if not self._token:
                headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
                status, self._token = self._ask("PUT", _TOKEN_PATH, headers)
                if status != 200:
                    self._token = ""
                    raise NoMetadataError
            status, body = self._ask("GET", path, {"X-aws-ec2-metadata-token": self._token})
            if status == 200:
                return body
            if status == 404:
                return None
            self._token = ""  # 401: the token has expired
        raise NoMetadataError

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        try:
            request = urllib.request.Request(self._address + path, None, headers, method=method)
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                return answer.status, answer.read(65536).decode(errors="replace")
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, ""
        except (OSError, ValueError, http.client.HTTPException) as exc:
            raise NoMetadataError from exc


def metadata_address(environ: Mapping[str, str]) -> str | None:
    """Return the address of the metadata service; None if it is switched off."""
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    return environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _ADDRESS


def watch(
    metadata: Metadata,
    announce: Callable[[float], None],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> None:
    """Poll until there is a notice, and announce in how many seconds the machine is gone.

    Runs in a thread. Returns if no metadata service answers: on a machine outside EC2, or where
    containers cannot reach the service.
    """
    failures, has_answered = 0, False
    while has_answered or failures < _TRIES:
        try:
            notice = metadata.notice()
            has_answered = True
        except NoMetadataError:
            notice = None
            failures += 1
        if notice is not None:
            announce(remaining_s(notice, clock()))
            return
        sleep(_POLL_S)


def remaining_s(notice: str, now_s: float) -> float:
    """Return how many seconds after ``now_s`` the machine is gone, by its notice."""
    try:
        end_s = calendar.timegm(time.strptime(json.loads(notice)["time"], "%Y-%m-%dT%H:%M:%SZ"))
    except (ValueError, TypeError, KeyError):
        return _DEFAULT_NOTICE_S
    if end_s <= now_s:
        return _LATE_S
    # With a wrong clock the number could be far too large.
    return min(end_s - now_s, _DEFAULT_NOTICE_S)
