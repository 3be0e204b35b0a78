"""BY302: the NVIDIA driver does not answer, or lists only some of the GPUs."""

from __future__ import annotations

from batchyard.doctor.facts import Missing
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, count_gpus, has_gpus
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY302", Severity.ERROR, 92, "the NVIDIA driver answers")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not has_gpus(facts):
        return None
    gpu_count = count_gpus(facts)
    if isinstance(facts.gpus, Missing):
        cause, evidence = "the NVIDIA driver does not answer", facts.gpus.reason
    elif len(facts.gpus) < gpu_count:
        cause = "the NVIDIA driver sees only some of the GPUs"
        evidence = f"nvidia-smi lists {len(facts.gpus)} of {gpu_count}"
    else:
        return []
    remedy = (
        "nvidia-smi; journalctl -b -k | grep -i nvrm; systemctl status nvidia-kmod-load",
        "use the image type ECS_AL2023_NVIDIA, whose driver fits its kernel",
    )
    return Finding(KIND, cause, (evidence, f"GPUs on this machine: {gpu_count}"), remedy)
