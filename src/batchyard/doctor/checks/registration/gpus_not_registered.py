"""BY024: hosts joined the cluster without their GPUs."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.doctor.checks.base import (
    MAX_LISTED,
    check_environments,
    described_types,
    host_environments,
    update_resources_command,
)
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY024", Severity.ERROR, 88, "GPU hosts registered their GPUs")


@check_environments(KIND, host_environments)
def check(environment: Environment, facts: Facts) -> Findings:
    hosts = require(environment.hosts)
    types = ec2_types.expand([host.type for host in hosts], described_types(facts))
    gpus_of = {t.name: t.gpus for t in types}
    without_gpus = [h for h in hosts if h.is_connected and not h.gpus and gpus_of.get(h.type)]
    if not without_gpus:
        return
    yield Finding(
        KIND,
        f"hosts of {environment.name} joined the cluster without their GPUs",
        tuple(
            f"{h.instance_id} ({h.type}) registered 0 GPUs; it has {gpus_of[h.type]}"
            for h in without_gpus[:MAX_LISTED]
        ),
        (
            "batchyard doctor host"
            "   # on such an instance: driver, runtime, ECS_ENABLE_GPU_SUPPORT",
            update_resources_command(
                environment, "'ec2Configuration=[{imageType=ECS_AL2023_NVIDIA}]'"
            ),
        ),
    )
