"""BY311: cloud-init failed, or does not end."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import MAX_BOOT_S, MAX_LINE_LENGTH, check_host
from batchyard.doctor.host.facts import HostFacts
from batchyard.units import format_duration

KIND = Kind("BY311", Severity.ERROR, 80, "cloud-init ended well")
_LINES_SHOWN = 3


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if facts.cloud_init is None:
        return None
    cloud_init = require(facts.cloud_init)
    uptime_s = facts.uptime_s or 0
    if cloud_init.status.startswith(("error", "degraded")):
        cause = "cloud-init failed: the user data did not run to its end"
    elif cloud_init.status.startswith("running") and uptime_s > MAX_BOOT_S:
        cause = (
            f"cloud-init has been running for {format_duration(uptime_s)}: "
            "the user data does not end"
        )
    else:
        return []
    detail = f"; {cloud_init.detail}" if cloud_init.detail else ""
    last_lines = cloud_init.output.splitlines()[-_LINES_SHOWN:]
    return Finding(
        KIND,
        cause,
        (
            f"status: {cloud_init.status}{detail}",
            *(f"output: {line[:MAX_LINE_LENGTH]}" for line in last_lines if line.strip()),
        ),
        (
            "less /var/log/cloud-init-output.log",
            "batchyard doctor userdata /var/lib/cloud/instance/user-data.txt",
        ),
    )
