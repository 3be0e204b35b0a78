"""BY306: /etc/docker/daemon.json is not JSON."""

from __future__ import annotations

import json

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import MAX_LINE_LENGTH, check_host
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY306", Severity.ERROR, 91, "daemon.json is JSON")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if facts.daemon_json is None:
        return None
    try:
        json.loads(require(facts.daemon_json))
    except (ValueError, RecursionError) as exc:
        return _finding(str(exc))
    return []


def _finding(error: str) -> Finding:
    return Finding(
        KIND,
        "daemon.json is not JSON: Docker does not start with it",
        (error[:MAX_LINE_LENGTH],),
        ("python3 -m json.tool /etc/docker/daemon.json", "systemctl restart --no-block docker"),
    )
