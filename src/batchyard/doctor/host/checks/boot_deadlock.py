"""BY301: systemd jobs wait for each other because of a script that runs at boot."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host import deadlock
from batchyard.doctor.host.checks.base import check_host
from batchyard.doctor.host.deadlock import Deadlock
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY301", Severity.ERROR, 99, "no systemd jobs wait for each other")
_MAX_COMMAND_LENGTH = 120


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    deadlocks = deadlock.find_deadlocks(
        require(facts.jobs), require(facts.units), require(facts.processes), facts.boot_scripts
    )
    return list(map(_finding, deadlocks))


def _finding(deadlock: Deadlock) -> Finding:
    unit, runner, process = deadlock.unit, deadlock.path[-1], deadlock.process
    cause = f"{unit} waits for {runner}, which runs a script that waits for {unit}"
    if unit == runner:
        cause = f"{runner} runs a script that waits for {runner} to end"
    return Finding(
        KIND,
        cause,
        (
            " -> ".join((*deadlock.path, f"process {process.pid}", unit)),
            f"process {process.pid}: {process.command[:_MAX_COMMAND_LENGTH]}",
            *([deadlock.question] if deadlock.question else []),
        ),
        (
            f"kill {process.pid}   # lets this node go on",
            "batchyard doctor userdata /var/lib/cloud/instance/user-data.txt"
            "   # names the line; write `systemctl ... --no-block`, or leave it out",
        ),
    )
