"""BY305: Docker has no nvidia runtime."""

from __future__ import annotations

from batchyard.doctor.facts import Missing
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, has_gpus
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.host.parse import find_setting

KIND = Kind("BY305", Severity.ERROR, 88, "Docker has the nvidia runtime")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not has_gpus(facts) or isinstance(facts.docker, Missing):
        return None
    ecs_config = facts.ecs_config if isinstance(facts.ecs_config, str) else None
    runtime = find_setting(ecs_config, "ECS_NVIDIA_RUNTIME") or "nvidia"
    if runtime in facts.docker.runtimes:
        return []
    return Finding(
        KIND,
        f"Docker has no runtime named {runtime}: GPU containers cannot be started",
        (f"runtimes: {', '.join(facts.docker.runtimes) or 'none'}",),
        (
            "dnf install -y nvidia-container-toolkit "
            "&& nvidia-ctk runtime configure --runtime=docker",
            "systemctl restart --no-block docker",
        ),
    )
