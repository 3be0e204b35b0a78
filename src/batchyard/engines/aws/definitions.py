"""Job definitions: what of a step is the same in every run. Pure.

A definition is named by the hash of its content, so that steps and runs that want the same share one.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from batchyard.batch.jobs import EvaluateOnExit
from batchyard.plan import PlannedJob

if TYPE_CHECKING:
    from batchyard.engines.aws.render import Target

#: the exit code by which the worker asks for another attempt
AGAIN = 75
#: attempts of a step without retries on a spot queue: two reclaims are survived
_SPOT_ATTEMPTS = 3
#: a GPU step's /dev/shm where it says nothing: half its memory, since data loaders live there and Docker gives 64 MiB
_SHM_SHARE = 2
WORKER = ("batchyard-worker",)


def needs_worker(job: PlannedJob) -> bool:
    """A plain command that neither takes nor gives files needs nothing of ours in its image."""
    return job.has_list or bool(job.inputs or job.outputs or job.checkpoint)


def definition(job: PlannedJob, target: Target) -> dict[str, Any]:
    environment = target.environment
    resources = job.resources
    requirements = [
        ("VCPU", resources.vcpus),
        ("MEMORY", resources.memory_mib),
        ("GPU", resources.gpus),
    ]
    container: dict[str, Any] = {
        "image": target.images[job.step],
        # What a plain command is, is in the submission: it may be told its numbers there.
        "command": list(WORKER) if needs_worker(job) else ["true"],
        "resourceRequirements": [
            {"type": kind, "value": str(value)} for kind, value in requirements if value
        ],
        "environment": [{"name": name, "value": value} for name, value in sorted(job.env.items())],
        "logConfiguration": {
            "logDriver": "awslogs",
            "options": {
                "awslogs-group": environment.log_group,
                "awslogs-region": environment.region,
            },
        },
    }
    if environment.job_role:
        container["jobRoleArn"] = environment.job_role
    if environment.execution_role:
        container["executionRoleArn"] = environment.execution_role
    if job.secrets:
        container["secrets"] = [
            {"name": name, "valueFrom": arn} for name, arn in sorted(job.secrets.items())
        ]
    shm_mib = job.shm_mib or (resources.memory_mib // _SHM_SHARE if resources.gpus else None)
    # Without an init the command would be process 1, which ignores SIGTERM: each stop would take its full 30 s.
    container["linuxParameters"] = {
        "initProcessEnabled": True,
        **({"sharedMemorySize": shm_mib} if shm_mib else {}),
    }
    content: dict[str, Any] = {
        "type": "container",
        "platformCapabilities": ["EC2"],
        "propagateTags": True,
        "containerProperties": container,
        "retryStrategy": _retry(job, target),
    }
    if job.timeout_s is not None:
        content["timeout"] = {"attemptDurationSeconds": job.timeout_s}
    if job.priority is not None:
        content["schedulingPriority"] = job.priority
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    name = f"{environment.definition_prefix}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return {"jobDefinitionName": name, **content, "tags": {"batchyard": "definition"}}


def attempts(job: PlannedJob, target: Target) -> int:
    on_spot = not target.on_demand
    return (
        max(job.retry.attempts, _SPOT_ATTEMPTS)
        if on_spot and job.retry.attempts == 1
        else job.retry.attempts
    )


def _retry(job: PlannedJob, target: Target) -> dict[str, Any]:
    count = attempts(job, target)
    if count == 1:
        return {"attempts": 1}
    if not needs_worker(job) and job.retry.attempts > 1:
        rules = [_rule(rule) for rule in job.retry.evaluate_on_exit]
        return {"attempts": count, **({"evaluateOnExit": rules} if rules else {})}
    # The worker follows the user's rules about exit codes, and asks for another attempt with one code.
    words = job.retry_on if job.retry.attempts > 1 else ()
    may_lose_host = not {"spot", "any"} & set(job.fail_on)
    rules = [{"onStatusReason": "Host EC2*", "action": "RETRY" if may_lose_host else "EXIT"}]
    if needs_worker(job):
        rules.insert(0, {"onExitCode": str(AGAIN), "action": "RETRY"})
    by_word = {"image": "CannotPullContainerError*", "oom": "OutOfMemoryError*"}
    for word, reason in by_word.items():
        if ({word, "any"} & set(words)) and word not in job.fail_on:
            rules.append({"onReason": reason, "action": "RETRY"})
    rules.append({"onReason": "*", "action": "EXIT"})
    return {"attempts": count, "evaluateOnExit": rules}


def _rule(rule: EvaluateOnExit) -> dict[str, str]:
    given = {
        "onStatusReason": rule.on_status_reason,
        "onReason": rule.on_reason,
        "onExitCode": rule.on_exit_code,
    }
    return {
        **{name: text for name, text in given.items() if text is not None},
        "action": rule.action.value.upper(),
    }
