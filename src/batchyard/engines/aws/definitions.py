"""Job definitions: the part of a step that is the same in every run. Pure.

A definition is named by the hash of its content, so that steps and runs with equal content share
one.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from batchyard.batch.jobs import EvaluateOnExit
from batchyard.engines.aws.target import Target
from batchyard.environments import Environment
from batchyard.plan import PlannedJob

#: Exit code by which the worker asks for another attempt.
RETRY_EXIT_CODE = 75
WORKER_COMMAND = ("batchyard-worker",)
#: Attempts of a step without retries on a spot queue: it survives two reclaims.
_SPOT_ATTEMPTS = 3
#: The default /dev/shm of a GPU step is this part of its memory: data loaders use it, and Docker's
#: own default is 64 MiB.
_SHM_DIVISOR = 2
#: Word of retry_on -> reason in AWS Batch's terms.
_REASONS = {"image": "CannotPullContainerError*", "oom": "OutOfMemoryError*"}


def needs_worker(job: PlannedJob) -> bool:
    """Return whether the step's image must contain the worker.

    A plain command without inputs and outputs runs without it.
    """
    return job.has_list or bool(job.inputs or job.outputs or job.checkpoint)


def make_definition(job: PlannedJob, target: Target) -> dict[str, Any]:
    """Return the RegisterJobDefinition request of a step."""
    content: dict[str, Any] = {
        "type": "container",
        "platformCapabilities": ["EC2"],
        "propagateTags": True,
        "containerProperties": _make_container(job, target),
        "retryStrategy": _make_retry_strategy(job, target),
    }
    if job.timeout_s is not None:
        content["timeout"] = {"attemptDurationSeconds": job.timeout_s}
    if job.priority is not None:
        content["schedulingPriority"] = job.priority
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"{target.environment.definition_prefix}-{digest}"
    return {"jobDefinitionName": name, **content, "tags": {"batchyard": "definition"}}


def _make_container(job: PlannedJob, target: Target) -> dict[str, Any]:
    resources = job.resources
    requirements = {
        "VCPU": resources.vcpus,
        "MEMORY": resources.memory_mib,
        "GPU": resources.gpus,
    }
    container: dict[str, Any] = {
        "image": target.images[job.step],
        # A plain command is in the request, since it may begin with the numbers of its children.
        "command": list(WORKER_COMMAND) if needs_worker(job) else ["true"],
        "resourceRequirements": [
            {"type": kind, "value": str(amount)} for kind, amount in requirements.items() if amount
        ],
        "environment": [{"name": name, "value": value} for name, value in sorted(job.env.items())],
        "logConfiguration": _make_log_configuration(target.environment),
        "linuxParameters": _make_linux_parameters(job),
    }
    if target.environment.job_role:
        container["jobRoleArn"] = target.environment.job_role
    if target.environment.execution_role:
        container["executionRoleArn"] = target.environment.execution_role
    if job.secrets:
        container["secrets"] = [
            {"name": name, "valueFrom": arn} for name, arn in sorted(job.secrets.items())
        ]
    return container


def _make_linux_parameters(job: PlannedJob) -> dict[str, Any]:
    # Without an init process the command would be process 1, which ignores SIGTERM: each stop
    # would take its full 30 s.
    parameters: dict[str, Any] = {"initProcessEnabled": True}
    gpu_shm_mib = job.resources.memory_mib // _SHM_DIVISOR if job.resources.gpus else None
    shm_mib = job.shm_mib or gpu_shm_mib
    if shm_mib:
        parameters["sharedMemorySize"] = shm_mib
    return parameters


def _make_log_configuration(environment: Environment) -> dict[str, Any]:
    return {
        "logDriver": "awslogs",
        "options": {
            "awslogs-group": environment.log_group,
            "awslogs-region": environment.region,
        },
    }


def count_attempts(job: PlannedJob, target: Target) -> int:
    """Return how often a child is tried at most."""
    if job.retry.attempts == 1 and not target.on_demand:
        return _SPOT_ATTEMPTS
    return job.retry.attempts


def _make_retry_strategy(job: PlannedJob, target: Target) -> dict[str, Any]:
    count = count_attempts(job, target)
    if count == 1:
        return {"attempts": 1}
    if not needs_worker(job) and job.retry.attempts > 1:
        rules = [_make_rule(rule) for rule in job.retry.evaluate_on_exit]
        return {"attempts": count, **({"evaluateOnExit": rules} if rules else {})}
    return {"attempts": count, "evaluateOnExit": _make_standard_rules(job)}


def _make_standard_rules(job: PlannedJob) -> list[dict[str, str]]:
    """Return the rules of a job with a worker, or of a command without retries on Spot."""
    rules = []
    if needs_worker(job):
        # The worker follows the user's rules about exit codes, and asks for another attempt with
        # one exit code.
        rules.append({"onExitCode": str(RETRY_EXIT_CODE), "action": "RETRY"})
    survives_reclaim = not {"spot", "any"} & set(job.fail_on)
    rules.append({"onStatusReason": "Host EC2*", "action": "RETRY" if survives_reclaim else "EXIT"})
    words = job.retry_on if job.retry.attempts > 1 else ()
    for word, reason in _REASONS.items():
        if ({word, "any"} & set(words)) and word not in job.fail_on:
            rules.append({"onReason": reason, "action": "RETRY"})
    rules.append({"onReason": "*", "action": "EXIT"})
    return rules


def _make_rule(rule: EvaluateOnExit) -> dict[str, str]:
    conditions = {
        "onStatusReason": rule.on_status_reason,
        "onReason": rule.on_reason,
        "onExitCode": rule.on_exit_code,
    }
    present = {name: text for name, text in conditions.items() if text is not None}
    return {**present, "action": rule.action.value.upper()}
