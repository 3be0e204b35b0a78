"""Steps that AWS Batch cannot run, and notes about steps that it runs in another way. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from batchyard import child_patterns
from batchyard.batch import limits
from batchyard.engines.aws import definitions, submit_requests
from batchyard.engines.aws.target import Target
from batchyard.environments import Environment
from batchyard.plan import Plan, PlannedJob
from batchyard.units import pluralize

#: Memory that Python, boto3 and transfers use beside the commands; 130 MiB were measured.
_WORKER_MIB = 160


def find_problems(plan: Plan, target: Target) -> list[str]:
    """Return a sentence for everything that AWS Batch would refuse, or accept and never start."""
    problems = [
        f"step {job.step!r}{problem}"
        for job in plan.jobs
        for problem in _find_job_problems(job, target)
    ]
    if plan.fail_fast:
        problems.append("fail_fast: AWS Batch cannot stop other jobs when one fails; leave it out")
    return problems


def _find_job_problems(job: PlannedJob, target: Target) -> Iterator[str]:
    environment = target.environment
    if job.step not in target.images:
        yield " has no image: add `image:` to it or to the file"
    has_batch_timeout = job.timeout_s is not None and not job.is_dynamic
    if has_batch_timeout and (job.timeout_s or 0) < limits.MIN_TIMEOUT_S:
        yield f": timeout {job.timeout_s} s: AWS Batch takes {limits.MIN_TIMEOUT_S} s or more"
    if job.resources.memory_mib < limits.MIN_MEMORY_MIB:
        yield (
            f": memory {job.resources.memory_mib} MiB: AWS Batch takes "
            f"{limits.MIN_MEMORY_MIB} MiB or more"
        )
    yield from find_secret_problems(job, environment)
    if job.is_dynamic:
        yield from find_dynamic_problems(job)
    yield from _find_share_problems(job, target)
    if target.is_on_fargate(job):
        yield from _find_fargate_problems(job, target)
    rules = len(job.retry.evaluate_on_exit)
    if not definitions.needs_worker(job) and rules > limits.MAX_RETRY_RULES:
        yield (
            f": its retry rules come to {rules}, and AWS Batch takes {limits.MAX_RETRY_RULES}: "
            "name fewer exit codes, or give it a list of commands, so that the worker in its "
            "image follows them"
        )
    yield from _find_size_problems(job, target)


def find_secret_problems(job: PlannedJob, environment: Environment) -> Iterator[str]:
    """Return why the secrets of a step cannot be read."""
    if job.secrets and not environment.execution_role:
        yield (
            " has secrets, which AWS reads with the execution role, and environment "
            f"{environment.name!r} has none: add `execution_role:` to it, the ARN of a role that "
            "may read them"
        )


def find_dynamic_problems(job: PlannedJob) -> Iterator[str]:
    """Return what a step cannot have whose children claim their commands."""
    if job.checkpoint:
        yield (
            ": a step with `share_out: dynamic` cannot have a checkpoint, since another child may "
            "go on with its commands: use `share_out: static`"
        )
    patterns = (*job.inputs, *job.outputs)
    for pattern in filter(child_patterns.names_command, patterns):
        yield (
            f": {pattern} names a command, and with `share_out: dynamic` a child has no commands "
            "before it runs: use `share_out: static`, or a pattern for all commands"
        )


def _find_fargate_problems(job: PlannedJob, target: Target) -> Iterator[str]:
    place = f"queue {target.queue_of(job)} is on Fargate"
    resources = job.resources
    if resources.gpus:
        yield f": {place}, which has no GPUs: name another `queue:`"
    elif definitions.round_fargate_memory(resources) is None:
        sizes = ", ".join(
            f"{vcpus} with up to {amounts[-1]:,} MiB"
            for vcpus, amounts in limits.FARGATE_MEMORY_MIB.items()
            if vcpus >= 1
        )
        yield (
            f": {place}, and a child asks for {resources.vcpus} vCPUs and "
            f"{resources.memory_mib:,} MiB; Fargate has {sizes}"
        )
    if not target.environment.execution_role:
        yield (
            f": {place}, and environment {target.environment.name!r} has no execution role: add "
            "`execution_role:` to it, the ARN of a role that may pull images and write logs"
        )
    keys = {
        "shm": job.shm_mib,
        "ulimits": job.ulimits,
        "mounts with `host` or `instance_store`": [m for m in job.mounts if m.efs is None],
    }
    for key, value in keys.items():
        if value:
            yield f": {place}, which has no {key}: leave it out"


def _find_share_problems(job: PlannedJob, target: Target) -> Iterator[str]:
    queue = target.queue_of(job)
    if queue in target.fair_queues and not (job.share or target.environment.share):
        yield (
            f": queue {queue} has a fair-share policy: add `share:` to the step or the environment"
        )
    if queue not in target.fair_queues and (job.share or job.priority is not None):
        yield f": queue {queue} has no fair-share policy, so it takes no `share` or `priority`"


def _find_size_problems(job: PlannedJob, target: Target) -> Iterator[str]:
    if job.step in target.images:
        definition = definitions.make_definition(job, target)
        size = len(json.dumps(definition).encode())
        if size > limits.MAX_DEFINITION_BYTES:
            yield (
                f": its job definition has {size:,} bytes, and AWS Batch takes "
                f"{limits.MAX_DEFINITION_BYTES:,}: put long values of `env` into a file"
            )
    # The longest that the overrides can get is when one child is retried alone: a step that could
    # not be retried is refused before it runs.
    alone = job
    if job.is_array and job.step_size > 1:
        alone = replace(job, size=1, indices=(job.step_size - 1,))
    length = submit_requests.count_override_chars(alone, 0, 1, target)
    if length > submit_requests.MAX_OVERRIDE_CHARS:
        yield (
            f": its command and variables have {length:,} characters, and AWS Batch takes "
            f"{submit_requests.MAX_OVERRIDE_CHARS:,}: put the command into a script, or into a "
            "list (`commands:`), which goes to S3"
        )


def make_notes(plan: Plan, target: Target) -> Iterator[str]:
    """Return sentences about steps that the user should know before they run."""
    for job in plan.jobs:
        memory_mib = definitions.round_fargate_memory(job.resources)
        is_rounded = memory_mib != job.resources.memory_mib
        if memory_mib is not None and is_rounded and target.is_on_fargate(job):
            yield (
                f"{job.step}: Fargate has no {job.resources.memory_mib:,} MiB with "
                f"{job.resources.vcpus} vCPUs; its children get {memory_mib:,} MiB"
            )
    for job in plan.jobs:
        if job.is_dynamic and job.dynamic_children is None:
            children = pluralize(job.size, "child", "children")
            yield f"{job.step}: {children} share its list; `array: N` sets another number"
    plain = [job.step for job in plan.jobs if not definitions.needs_worker(job)]
    if plain:
        yield (
            f"{', '.join(plain)}: a plain command without inputs or outputs, run without the worker"
        )
    for job in plan.jobs:
        if not definitions.needs_worker(job):
            continue
        if job.resources.memory_mib < _WORKER_MIB:
            yield (
                f"{job.step}: of its {job.resources.memory_mib} MiB of memory the worker alone "
                f"takes up to {_WORKER_MIB} MiB; give it more, or it may be killed"
            )
        if not job.outputs:
            yield (
                f"{job.step}: no outputs are named, so the files that its commands write stay in "
                "the containers"
            )
