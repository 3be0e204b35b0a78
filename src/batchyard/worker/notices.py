"""The spot notice: that EC2 takes this machine away, from its metadata service (version 2: a token first).

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
_EVERY_S = 5
#: a machine that has none is asked so often
_TRIES = 3
#: what a notice announces where it names no time
_DEFAULT_NOTICE_S = 120


class NoService(Exception):
    """Nobody answers, or not as a metadata service does."""


class Metadata:
    """The metadata service at an address."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._token = ""
        # It is on this machine: a proxy is for what is not.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def notice(self) -> str | None:
        """The notice as it is, or None while there is none."""
        for _ in range(2):
            if not self._token:
                headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
                status, self._token = self._ask("PUT", _TOKEN_PATH, headers)
                if status != 200:
                    self._token = ""
                    raise NoService
            status, body = self._ask("GET", _NOTICE_PATH, {"X-aws-ec2-metadata-token": self._token})
            if status == 200:
                return body
            if status == 404:
                return None
            self._token = ""  # 401: it has expired
        raise NoService

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        try:
            request = urllib.request.Request(self._address + path, None, headers, method=method)
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                return answer.status, answer.read(65536).decode(errors="replace")
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, ""
        except (OSError, ValueError, http.client.HTTPException) as exc:
            raise NoService from exc


def address_of(environ: Mapping[str, str]) -> str | None:
    """Where the metadata service is; None where it is switched off."""
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    return environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _ADDRESS


def watch(
    metadata: Metadata,
    announce: Callable[[float], None],
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.time,
) -> None:
    """Asks until there is a notice, and announces in how many seconds the machine goes; for a thread.

    Gives up where no metadata service has answered at all: on another machine, or where containers may not reach it.
    """
    failures, has_answered = 0, False
    while has_answered or failures < _TRIES:
        try:
            notice = metadata.notice()
            has_answered = True
        except NoService:
            notice = None
            failures += 1
        if notice is not None:
            announce(seconds_left(notice, now()))
            return
        sleep(_EVERY_S)


def seconds_left(notice: str, now: float) -> float:
    """How long after ``now`` the machine goes, by its notice."""
    try:
        at = calendar.timegm(time.strptime(json.loads(notice)["time"], "%Y-%m-%dT%H:%M:%SZ"))
    except (ValueError, TypeError, KeyError):
        return _DEFAULT_NOTICE_S
    # A clock that is wrong must not make it endless, nor nothing.
    return min(max(at - now, 1), _DEFAULT_NOTICE_S)
