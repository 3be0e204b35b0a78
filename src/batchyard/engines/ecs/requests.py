"""A step in the shapes of ECS: its task definition, and the RunTask requests of its children. Pure.

What differs from run to run and from child to child is in the overrides of a request, all else in
the definition. A definition is named by the hash of its content, so that steps and runs share one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from batchyard.engines.aws import definitions, submit_requests
from batchyard.engines.aws.target import Target
from batchyard.environments import DEFAULT_LOG_GROUP, Environment
from batchyard.plan import PlannedJob

#: Name of a task's container, and the first part of the name of its log stream.
CONTAINER = "main"
STREAM_PREFIX = "batchyard"
#: ECS counts a vCPU as so many units.
_CPU_UNITS = 1024
#: Memory in MiB of a definition, which every request overrides.
_DEFINITION_MIB = 128
_FARGATE_CPU, _FARGATE_MEMORY = "256", "512"
#: A task definition's largest size.
MAX_DEFINITION_BYTES = 64 * 1024
_MAX_STARTED_BY_CHARS = 128
#: Tag of a task with the clientToken that started it.
LAUNCH_TAG = "batchyard:launch"


class Launch(NamedTuple):
    """Children of one job that one RunTask starts; several only of a dynamic step."""

    #: The clientToken: unique to the launch, so that the same request can be sent again.
    token: str
    #: Number of the job in the store.
    job: int
    attempt: int
    children: Sequence[int]


def is_fargate(environment: Environment) -> bool:
    names = (environment.launch_type, environment.capacity_provider)
    return any(name in ("FARGATE", "FARGATE_SPOT") for name in names)


def log_group_of(environment: Environment) -> str:
    return environment.task_log_group or environment.log_group


def stream_name(task_arn: str) -> str:
    """Return the name of the log stream of a task."""
    return f"{STREAM_PREFIX}/{CONTAINER}/{task_arn.rpartition('/')[2]}"


def make_definition(job: PlannedJob, target: Target) -> dict[str, Any]:
    """Return the RegisterTaskDefinition request of a step."""
    environment = target.environment
    on_fargate = is_fargate(environment)
    mounts = definitions.make_volumes(job)
    linux = {"initProcessEnabled": True} if on_fargate else definitions.make_linux_parameters(job)
    container = {
        "name": CONTAINER,
        "image": target.images[job.step],
        "essential": True,
        "memory": _DEFINITION_MIB,
        "linuxParameters": linux,
        "logConfiguration": _make_log_configuration(job, environment),
        **definitions.make_container_keys(job),
        **{key: value for key, value in mounts.items() if key == "mountPoints"},
    }
    content: dict[str, Any] = {
        "containerDefinitions": [container],
        "requiresCompatibilities": ["FARGATE" if on_fargate else "EC2"],
        "networkMode": "awsvpc" if environment.subnets else "bridge",
        "volumes": mounts.get("volumes", []),
    }
    if on_fargate:
        content |= {"cpu": _FARGATE_CPU, "memory": _FARGATE_MEMORY}
    task_role = environment.task_role or environment.job_role
    if task_role:
        content["taskRoleArn"] = task_role
    if environment.execution_role:
        content["executionRoleArn"] = environment.execution_role
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    tags = [{"key": "batchyard", "value": "definition"}]
    return {"family": f"{environment.definition_prefix}-task-{digest}", **content, "tags": tags}


def _make_log_configuration(job: PlannedJob, environment: Environment) -> dict[str, Any]:
    options = {
        "awslogs-group": log_group_of(environment),
        "awslogs-region": environment.region,
        "awslogs-stream-prefix": STREAM_PREFIX,
        # The default of ECS is non-blocking, which drops lines.
        "mode": job.log_mode,
    }
    if options["awslogs-group"] == DEFAULT_LOG_GROUP:
        # AWS Batch makes this group itself, and nobody else does.
        options["awslogs-create-group"] = "true"
    return {"logDriver": "awslogs", "options": options}


def name_starter(target: Target) -> str:
    """Return the `startedBy` of all tasks of a run."""
    return f"batchyard/{target.run_id}"[:_MAX_STARTED_BY_CHARS]


def make_request(
    job: PlannedJob, target: Target, job_id: str, definition: str, launch: Launch
) -> dict[str, Any]:
    """Return the RunTask request of a launch. ``definition``: its ARN."""
    environment = target.environment
    request: dict[str, Any] = {
        "cluster": environment.cluster,
        "taskDefinition": definition,
        "count": len(launch.children),
        "clientToken": launch.token,
        "startedBy": name_starter(target),
        "overrides": make_overrides(job, target, job_id, launch),
        "tags": [
            {"key": key, "value": value} for key, value in _make_tags(job, target, launch).items()
        ],
    }
    if environment.capacity_provider:
        strategy = {"capacityProvider": environment.capacity_provider, "weight": 1}
        request["capacityProviderStrategy"] = [strategy]
    elif environment.launch_type:
        request["launchType"] = environment.launch_type
    if environment.subnets:
        network: dict[str, Any] = {"subnets": list(environment.subnets)}
        if environment.security_groups:
            network["securityGroups"] = list(environment.security_groups)
        if is_fargate(environment):
            network["assignPublicIp"] = environment.assign_public_ip
        request["networkConfiguration"] = {"awsvpcConfiguration": network}
    return request


def _make_tags(job: PlannedJob, target: Target, launch: Launch) -> dict[str, str]:
    return {**submit_requests.make_tags(job.step, target), LAUNCH_TAG: launch.token}


def make_overrides(job: PlannedJob, target: Target, job_id: str, launch: Launch) -> dict[str, Any]:
    resources = job.resources
    has_worker = definitions.needs_worker(job)
    command = list(definitions.WORKER_COMMAND)
    if not has_worker:
        assert job.command is not None
        command = submit_requests.make_shell_command(job.command)
    variables = {
        **definitions.make_variables(job, target),
        **submit_requests.make_run_variables(job, target),
        **_make_child_variables(job, job_id, launch, has_worker=has_worker),
    }
    container: dict[str, Any] = {
        "name": CONTAINER,
        "command": command,
        "environment": [{"name": name, "value": value} for name, value in variables.items()],
        "cpu": resources.vcpus * _CPU_UNITS,
        "memory": resources.memory_mib,
    }
    if resources.gpus:
        requirement = {"type": "GPU", "value": str(resources.gpus)}
        container["resourceRequirements"] = [requirement]
    overrides: dict[str, Any] = {"containerOverrides": [container]}
    if is_fargate(target.environment):
        memory_mib = definitions.round_fargate_memory(resources) or resources.memory_mib
        container["memory"] = memory_mib
        overrides["cpu"] = str(resources.vcpus * _CPU_UNITS)
        overrides["memory"] = str(memory_mib)
    return overrides


def _make_child_variables(
    job: PlannedJob, job_id: str, launch: Launch, *, has_worker: bool
) -> dict[str, str]:
    """Return the variables that AWS Batch would set.

    Children of a dynamic step are alike, so that one request starts several: their workers find
    out themselves which task they are.
    """
    variables = {"AWS_BATCH_JOB_ATTEMPT": str(launch.attempt)}
    if job.is_dynamic:
        return variables
    (child,) = launch.children
    variables["AWS_BATCH_JOB_ID"] = f"{job_id}:{child}" if job.size > 1 else job_id
    if job.is_array:
        # The worker counts within the job, and gives its commands the number in the step.
        index = child if has_worker else job.index_in_step(child)
        variables["AWS_BATCH_JOB_ARRAY_INDEX"] = str(index)
        variables["AWS_BATCH_JOB_ARRAY_SIZE"] = str(job.step_size)
    return variables


def count_override_chars(job: PlannedJob, target: Target) -> int:
    """Return the largest number of characters that the overrides of a child have."""
    launch = Launch("", 0, 10, [job.size - 1])
    return len(json.dumps(make_overrides(job, target, "0" * 36, launch)))
