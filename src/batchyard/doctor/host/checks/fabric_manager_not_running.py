"""BY316: fabric manager does not run on a host whose GPUs are joined by a switch."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, count_gpus, find_unit, instance_type_of
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY316", Severity.ERROR, 78, "fabric manager runs where GPUs need it")
#: Smaller sizes of these families have no switch.
_MIN_GPUS = 4


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    family = ec2_types.family_of(instance_type_of(facts))
    gpu_count = count_gpus(facts)
    if family not in ec2_types.NVSWITCH or gpu_count < _MIN_GPUS:
        return None
    require(facts.units)
    unit = find_unit(facts, "nvidia-fabricmanager.service")
    if unit is not None and unit.active == "active":
        return []
    state = unit.active if unit and unit.load == "loaded" else "not installed"
    return Finding(
        KIND,
        "fabric manager does not run: CUDA fails to start though nvidia-smi lists the GPUs",
        (f"{family} joins its {gpu_count} GPUs by a switch", f"nvidia-fabricmanager: {state}"),
        ("systemctl enable --now nvidia-fabricmanager",),
    )
