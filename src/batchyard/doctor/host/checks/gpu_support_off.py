"""BY309: ecs.config does not switch GPU support on."""

from __future__ import annotations

from batchyard.doctor.facts import require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.doctor.host.checks.base import check_host, has_gpus, is_ecs_node
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.host.parse import find_setting

KIND = Kind("BY309", Severity.ERROR, 83, "GPU support is on in ecs.config")
_SETTING = "ECS_ENABLE_GPU_SUPPORT"
_TRUE = ("true", "1", "yes")


@check_host(KIND)
def check(facts: HostFacts) -> Verdict:
    if not has_gpus(facts) or not is_ecs_node(facts):
        return None
    # The file in /etc wins over the file of the image.
    values = {
        "/etc/ecs/ecs.config": find_setting(require(facts.ecs_config), _SETTING),
        "/var/lib/ecs/ecs.config": find_setting(require(facts.image_ecs_config), _SETTING),
    }
    effective = next((value for value in values.values() if value is not None), "")
    if effective.lower() in _TRUE:
        return []
    evidence = tuple(
        f"{path}: {_SETTING}={value if value is not None else ' not set'}"
        for path, value in values.items()
    )
    remedy = (f"echo {_SETTING}=true >> /etc/ecs/ecs.config", "systemctl restart --no-block ecs")
    return Finding(KIND, "GPU support of the ECS agent is not switched on", evidence, remedy)
