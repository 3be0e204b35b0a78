"""BY320: the user data of a node of ours did not end, or reported trouble."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import MAX_BOOT_S, check_host
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.host.node import LINES_SHOWN, LOG_FILE, MAX_LOG_LINE_LENGTH, find_trouble

KIND = Kind("BY320", Severity.WARNING, 79, "the node's own user data ended without problems")
_FIRST_LINE, _LAST_LINE = "user data begins", "user data ends"


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if facts.node_log is None:
        return None
    lines = require(facts.node_log)
    trouble = find_trouble(facts)
    if _is_unfinished(facts.uptime_s, lines):
        cause, evidence = "the node's user data began and did not end", lines[-LINES_SHOWN:]
    elif facts.node_check is None and trouble:
        cause, evidence = "the node's user data reported problems", trouble
    else:
        return []
    return Finding(
        KIND,
        cause,
        tuple(f"{LOG_FILE}: {line[:MAX_LOG_LINE_LENGTH]}" for line in evidence),
        (f"less {LOG_FILE} /var/log/cloud-init-output.log", "cloud-init status --long"),
    )


def _is_unfinished(uptime_s: float | None, lines: tuple[str, ...]) -> bool:
    if uptime_s is None or uptime_s <= MAX_BOOT_S:
        return False
    has_begun = any(line.endswith(_FIRST_LINE) for line in lines)
    return has_begun and not any(line.endswith(_LAST_LINE) for line in lines)
