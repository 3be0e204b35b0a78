"""BY315: a container does not see the GPUs. Checked only where `--gpu-container` was given."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host
from batchyard.doctor.host.facts import HostFacts

KIND = Kind("BY315", Severity.ERROR, 95, "a container sees the GPUs")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    run = facts.container
    if run is None:
        return None
    gpu_count = run.output.count("GPU ") if run.exit_code == 0 else 0
    if gpu_count:
        return []
    return Finding(
        KIND,
        "a container does not see the GPUs",
        (f"{run.image}: exit code {run.exit_code}, {gpu_count} GPUs", *run.output.splitlines()[:2]),
        ("the findings above say why; with none, try an image that is built on nvidia/cuda",),
    )
