"""BY018: the environment mixes GPU and CPU instance families. Also used for templates."""

from __future__ import annotations

from batchyard import ec2_types
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
        if not t.gpus and ec2_types.family_of(t.name) not in ec2_types.GPU_FAMILIES
    ]
    if not with_gpus or not without_gpus:
        return
    gpu_names = [name for name in environment.instance_types if _has_gpus(name, types)]
    cpu_names = [name for name in environment.instance_types if name not in gpu_names]
    yield Finding(
        KIND,
        f"{environment.name} mixes GPU and CPU families: "
        "GPU jobs may stay RUNNABLE, CPU jobs may take GPU hosts",
        (f"with GPUs: {join_names(with_gpus)}", f"without: {join_names(without_gpus)}"),
        (
            "make a second environment, so that one has the GPU types and one the others; here:",
            update_resources_command(environment, f"instanceTypes={','.join(cpu_names)}")
            + "   # if it is for CPU jobs",
            update_resources_command(environment, f"instanceTypes={','.join(gpu_names)}")
            + "   # if it is for GPU jobs",
        ),
    )


def _has_gpus(name: str, types: InstanceTypes) -> bool:
    """Return whether a type, or a family, of instanceTypes has GPUs."""
    return any(t.gpus for t in ec2_types.expand((name,), types))


check = check_types(KIND)(examine)
