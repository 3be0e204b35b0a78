"""BY303: GPUs have no device files, so ECS registers none."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY303", Severity.ERROR, 85, "every GPU has its device file")
_CONTROL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not isinstance(facts.gpus, tuple) or not facts.gpus:
        return None
    devices = require(facts.devices)
    gpu_files = [path for path in devices if path.removeprefix("/dev/nvidia").isdigit()]
    missing = [path for path in _CONTROL_FILES if path not in devices]
    if len(gpu_files) >= len(facts.gpus) and not missing:
        return []
    evidence = [f"{len(gpu_files)} device files for {len(facts.gpus)} GPUs"]
    if missing:
        evidence.append(f"missing: {', '.join(missing)}")
    remedy = (
        "nvidia-modprobe -c 0 -u   # makes them",
        "systemctl restart --no-block ecs   # counts them again",
    )
    return Finding(KIND, "GPUs have no device files: ECS registers none", tuple(evidence), remedy)
