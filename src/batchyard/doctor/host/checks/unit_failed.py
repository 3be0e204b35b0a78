"""BY317: a systemd unit that the node needs has failed."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host import node
from batchyard.doctor.host.checks.base import check_host
from batchyard.doctor.host.facts import HostFacts, NodeCheck

KIND = Kind("BY317", Severity.WARNING, 75, "no unit that the node needs has failed")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    # BY319 reports the failed GPU check of our own nodes, with its reason.
    reported_unit = node.CHECK_UNIT if isinstance(facts.node_check, NodeCheck) else ""
    failed_units = [
        unit.name
        for unit in require(facts.units)
        if unit.active == "failed" and unit.name != reported_unit
    ]
    return [
        Finding(
            KIND,
            f"{name} has failed",
            ("ActiveState failed",),
            (f"systemctl status {name}", f"journalctl -b -u {name} -n 50 --no-pager"),
        )
        for name in failed_units
    ]
