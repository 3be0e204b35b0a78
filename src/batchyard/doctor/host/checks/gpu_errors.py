"""BY318: the GPU driver has reported errors in the kernel's log."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import MAX_LINE_LENGTH, check_host, has_gpus
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY318", Severity.ERROR, 70, "GPUs report no errors")
_ERRORS_SHOWN = 3


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not has_gpus(facts):
        return None
    errors = require(facts.gpu_errors)
    if not errors:
        return []
    return Finding(
        KIND,
        "the GPU driver has reported errors",
        tuple(line[:MAX_LINE_LENGTH] for line in errors[-_ERRORS_SHOWN:]),
        (
            "nvidia-smi -q -d ECC,PAGE_RETIREMENT",
            "end the instance: a GPU that reports Xid errors seldom recovers",
        ),
    )
