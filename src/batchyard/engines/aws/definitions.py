"""Job definitions: the part of a step that is the same in every run. Pure.

A definition is named by the hash of its content, so that steps and runs with equal content share
one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from batchyard.batch import limits
from batchyard.batch.jobs import Resources
from batchyard.engines.aws import retry_rules
from batchyard.engines.aws.target import Target
from batchyard.environments import Environment
from batchyard.pipeline import Mount
from batchyard.plan import PlannedJob

WORKER_COMMAND = ("batchyard-worker",)
#: Where hosts have their NVMe disks: infra/userdata/common.sh mounts them.
INSTANCE_STORE = "/mnt/instance-store"
#: Memory of a job that only waits. Docker takes no less than 6 MiB, and entry points need some.
_BARRIER_MIB = 64
_FARGATE_BARRIER = {"VCPU": 0.25, "MEMORY": 512}
#: The default /dev/shm of a GPU step is this part of its memory: data loaders use it, and Docker's
#: own default is 64 MiB.
_SHM_DIVISOR = 2


def needs_worker(job: PlannedJob) -> bool:
    """Return whether the step's image must contain the worker.

    A plain command without inputs and outputs runs without it.
    """
    return job.has_list or bool(job.inputs or job.outputs or job.checkpoint)


def make_definition(job: PlannedJob, target: Target) -> dict[str, Any]:
    """Return the RegisterJobDefinition request of a step."""
    is_fargate = target.is_on_fargate(job)
    memory_mib = job.resources.memory_mib
    if is_fargate:
        memory_mib = round_fargate_memory(job.resources) or memory_mib
    requirements = {"VCPU": job.resources.vcpus, "MEMORY": memory_mib, "GPU": job.resources.gpus}
    content: dict[str, Any] = {
        "type": "container",
        "platformCapabilities": ["FARGATE" if is_fargate else "EC2"],
        "propagateTags": True,
        "containerProperties": _make_container(job, target, requirements),
        "retryStrategy": retry_rules.make_strategy(job, target, has_worker=needs_worker(job)),
    }
    # The commands of a dynamic step have the time limit, and the worker holds it.
    if job.timeout_s is not None and not job.is_dynamic:
        content["timeout"] = {"attemptDurationSeconds": job.timeout_s}
    if job.priority is not None:
        content["schedulingPriority"] = job.priority
    return _name_definition(content, target)


def make_barrier_definition(job: PlannedJob, target: Target) -> dict[str, Any]:
    """Return the RegisterJobDefinition request of the step's jobs that only wait.

    They run in the step's image, with little memory and without its GPUs, secrets and timeout. Any
    failure of them is retried: their failure would be that of all steps that wait.
    """
    is_fargate = target.is_on_fargate(job)
    barrier = PlannedJob(
        step=job.step,
        size=1,
        is_array=False,
        resources=Resources(vcpus=1, memory_mib=_BARRIER_MIB),
        command="true",
        queue=target.queue_of(job),
    )
    requirements = _FARGATE_BARRIER if is_fargate else {"VCPU": 1, "MEMORY": _BARRIER_MIB}
    content = {
        "type": "container",
        "platformCapabilities": ["FARGATE" if is_fargate else "EC2"],
        "propagateTags": True,
        "containerProperties": _make_container(barrier, target, requirements),
        "retryStrategy": {"attempts": limits.MAX_ATTEMPTS},
    }
    return _name_definition(content, target)


def _name_definition(content: dict[str, Any], target: Target) -> dict[str, Any]:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"{target.environment.definition_prefix}-{digest}"
    return {"jobDefinitionName": name, **content, "tags": {"batchyard": "definition"}}


def round_fargate_memory(resources: Resources) -> int | None:
    """Return the least memory in MiB that Fargate has for a child; None if there is no such."""
    amounts = limits.FARGATE_MEMORY_MIB.get(resources.vcpus, ())
    return min((mib for mib in amounts if mib >= resources.memory_mib), default=None)


def _make_container(
    job: PlannedJob, target: Target, requirements: Mapping[str, float]
) -> dict[str, Any]:
    container: dict[str, Any] = {
        "image": target.images[job.step],
        # A plain command is in the request, since it may begin with the numbers of its children.
        "command": list(WORKER_COMMAND) if needs_worker(job) else ["true"],
        "resourceRequirements": [
            {"type": kind, "value": str(amount)} for kind, amount in requirements.items() if amount
        ],
        "environment": [
            {"name": name, "value": value}
            for name, value in sorted(make_variables(job, target).items())
        ],
        "logConfiguration": _make_log_configuration(job, target.environment),
        "linuxParameters": make_linux_parameters(job),
    }
    if target.is_on_fargate(job):
        container["networkConfiguration"] = {"assignPublicIp": target.environment.assign_public_ip}
        container["fargatePlatformConfiguration"] = {"platformVersion": "LATEST"}
    if target.environment.job_role:
        container["jobRoleArn"] = target.environment.job_role
    if target.environment.execution_role:
        container["executionRoleArn"] = target.environment.execution_role
    return container | make_volumes(job) | make_container_keys(job)


def make_container_keys(job: PlannedJob) -> dict[str, Any]:
    """Return the members of a container for `ulimits`, `user` and `secrets` of its step."""
    members: dict[str, Any] = {}
    if job.ulimits:
        members["ulimits"] = [
            {"name": name, "softLimit": int(soft), "hardLimit": int(hard)}
            for name, limit in sorted(job.ulimits.items())
            for soft, hard in [limit.split(":")]
        ]
    if job.user:
        members["user"] = job.user
    if job.secrets:
        members["secrets"] = [
            {"name": name, "valueFrom": arn} for name, arn in sorted(job.secrets.items())
        ]
    return members


def make_volumes(job: PlannedJob) -> dict[str, Any]:
    """Return `volumes` and `mountPoints` of a step; nothing for a step without mounts."""
    if not job.mounts:
        return {}
    names = [f"mount{number}" for number in range(len(job.mounts))]
    return {
        "volumes": [
            {"name": name, **_make_source(mount)}
            for name, mount in zip(names, job.mounts, strict=True)
        ],
        "mountPoints": [
            {"sourceVolume": name, "containerPath": mount.path, "readOnly": mount.read_only}
            for name, mount in zip(names, job.mounts, strict=True)
        ],
    }


def _make_source(mount: Mount) -> dict[str, Any]:
    if mount.efs is None:
        return {"host": {"sourcePath": mount.host or INSTANCE_STORE}}
    # EFS accepts an access point only with encryption in transit.
    configuration: dict[str, Any] = {
        "fileSystemId": mount.efs,
        "rootDirectory": mount.folder,
        "transitEncryption": "ENABLED",
    }
    if mount.access_point:
        configuration["authorizationConfig"] = {"accessPointId": mount.access_point}
    return {"efsVolumeConfiguration": configuration}


def make_linux_parameters(job: PlannedJob) -> dict[str, Any]:
    """Return linuxParameters of the step's container: an init process, and /dev/shm."""
    # Without an init process the command would be process 1, which ignores SIGTERM: each stop
    # would take its full 30 s.
    parameters: dict[str, Any] = {"initProcessEnabled": True}
    gpu_shm_mib = job.resources.memory_mib // _SHM_DIVISOR if job.resources.gpus else None
    shm_mib = job.shm_mib or gpu_shm_mib
    if shm_mib:
        parameters["sharedMemorySize"] = shm_mib
    return parameters


def make_variables(job: PlannedJob, target: Target) -> dict[str, str]:
    """Return the variables of a step that are the same in every run."""
    own_region = job.env.get("AWS_REGION") or job.env.get("AWS_DEFAULT_REGION")
    region = own_region or target.environment.region
    # The ECS agent may set neither of them. boto3 reads only the second one.
    variables = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region}
    if needs_worker(job):
        variables |= retry_rules.make_variables(job, target)
        if job.timeout_s is not None and not job.is_dynamic:
            variables["BATCHYARD_TIMEOUT_S"] = str(job.timeout_s)
    return {**variables, **job.env}


def _make_log_configuration(job: PlannedJob, environment: Environment) -> dict[str, Any]:
    return {
        "logDriver": "awslogs",
        "options": {
            "awslogs-group": environment.log_group,
            "awslogs-region": environment.region,
            # The default of ECS is non-blocking, which drops lines.
            "mode": job.log_mode,
        },
    }
