"""BY313: the clock of the host is not synchronized."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY313", Severity.WARNING, 50, "the clock is synchronized")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if require(facts.is_clock_synchronized):
        return []
    return Finding(
        KIND,
        "the clock is not synchronized: AWS refuses requests that are signed five minutes off",
        ("NTPSynchronized=no",),
        ("chronyc tracking; systemctl status chronyd",),
    )
