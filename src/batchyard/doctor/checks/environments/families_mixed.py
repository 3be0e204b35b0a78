"""BY018: the environment mixes GPU and CPU instance families. Also used for templates."""

from __future__ import annotations

from batchyard.doctor import catalogue
from batchyard.doctor.checks.base import (
    InstanceTypes,
    check_types,
    join_names,
    update_resources_command,
)
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY018", Severity.WARNING, 55, "GPU and CPU families are not mixed in an environment")


def examine(environment: Environment, types: InstanceTypes) -> Findings:
    with_gpus = [t.name for t in types if t.gpus]
    without_gpus = [
        t.name
        for t in types
        if not t.gpus and catalogue.family_of(t.name) not in catalogue.GPU_FAMILIES
    ]
    if not with_gpus or not without_gpus:
        return
    yield Finding(
        KIND,
        f"{environment.name} mixes GPU and CPU families: "
        "GPU jobs may stay RUNNABLE, CPU jobs may take GPU hosts",
        (f"with GPUs: {join_names(with_gpus)}", f"without: {join_names(without_gpus)}"),
        (
            update_resources_command(environment, f"instanceTypes={','.join(with_gpus[:4])}"),
            "and a second environment for CPU jobs",
        ),
    )


check = check_types(KIND)(examine)
