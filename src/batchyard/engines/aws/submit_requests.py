"""SubmitJob requests of a step, and the orders that the worker reads. Pure."""

from __future__ import annotations

import json
from typing import Any

from batchyard import s3_layout
from batchyard.batch import limits
from batchyard.engines.aws import definitions, index_script, retry_rules
from batchyard.engines.aws.target import Target
from batchyard.plan import PlannedJob, to_ranges

#: Characters of a request's overrides. The limit of AWS includes what AWS adds itself.
MAX_OVERRIDE_CHARS = limits.MAX_OVERRIDE_CHARS - 700
#: A container's stdout and stderr are two streams, which reach the log in any order.
_MERGE_STREAMS = "exec 2>&1; "


def make_request(
    name: str, job: PlannedJob, offset: int, size: int, target: Target
) -> dict[str, Any]:
    """Return the request for ``size`` children from ``offset`` on.

    The revision of the job definition and dependsOn are added when the job is submitted.
    """
    request: dict[str, Any] = {
        "jobName": name,
        "jobQueue": target.queue_of(job),
        "containerOverrides": _make_overrides(job, offset, size, target),
        "propagateTags": True,
        "tags": make_tags(job.step, target),
        **make_share(job, target),
    }
    if size > 1:
        request["arrayProperties"] = {"size": size}
    if job.max_running is not None:
        entry = {"consumableResource": counter_name(target.run_id, job.step), "quantity": 1}
        request["consumableResourcePropertiesOverride"] = {"consumableResourceList": [entry]}
    return request


def make_run_variables(job: PlannedJob, target: Target) -> dict[str, str]:
    """Return the variables of a step's containers that differ from run to run."""
    variables = {
        "BATCHYARD_RUN": target.run_id,
        "BATCHYARD_STEP": job.step,
        "BATCHYARD_WORKSPACE": target.workspace,
        "BATCHYARD_DEVICE": job.device,
        "ARRAY_SIZE": str(job.step_size),
    }
    if definitions.needs_worker(job):
        variables["BATCHYARD_ORDERS"] = s3_layout.orders_address(target.address, job.step)
        if job.has_list:
            variables["LIST_FILE_S3_PATH"] = s3_layout.list_address(target.address, job.step)
    return variables


def make_shell_command(command: str) -> list[str]:
    """Return the words of a container that runs a plain command."""
    return ["sh", "-c", f"{_MERGE_STREAMS}{command}"]


def _make_overrides(job: PlannedJob, offset: int, size: int, target: Target) -> dict[str, Any]:
    variables = make_run_variables(job, target)
    overrides: dict[str, Any] = {}
    if definitions.needs_worker(job):
        if offset:
            variables["BATCHYARD_OFFSET"] = str(offset)
    else:
        assert job.command is not None
        prelude = index_script.make_prelude(job, offset, size)
        overrides["command"] = make_shell_command(f"{prelude}{job.command}")
    overrides["environment"] = [{"name": name, "value": value} for name, value in variables.items()]
    return overrides


def count_override_chars(job: PlannedJob, offset: int, size: int, target: Target) -> int:
    return len(json.dumps(_make_overrides(job, offset, size, target)))


def counter_name(run_id: str, step: str) -> str:
    """Return the name of the consumable resource that limits a step to its max_running."""
    return f"{run_id}-{step}"


def make_counter(name: str, quantity: int, target: Target) -> dict[str, Any]:
    """Return the CreateConsumableResource request of a counter."""
    return {
        "consumableResourceName": name,
        "totalQuantity": quantity,
        "tags": {"batchyard:run": target.run_id},
    }


def make_share(job: PlannedJob, target: Target) -> dict[str, Any]:
    """Return the members about fair share, for queues that have such a policy."""
    if target.queue_of(job) not in target.fair_queues:
        return {}
    # AWS refuses a job with a share and without any priority.
    share = job.share or target.environment.share
    return {"shareIdentifier": share, "schedulingPriorityOverride": job.priority or 0}


def make_tags(step: str, target: Target) -> dict[str, str]:
    return {
        "batchyard:run": target.run_id,
        "batchyard:step": step,
        "batchyard:pipeline": target.run_id.rsplit("-", 2)[0],
        "batchyard:user": target.user,
        "batchyard:environment": target.environment.name,
    }


def make_orders(job: PlannedJob, target: Target) -> dict[str, Any]:
    """Return what the worker must know about its step; it reads these orders from S3."""
    address, step = target.address, job.step
    list_address = s3_layout.list_address(address, step) if job.has_list else None
    index_address = s3_layout.list_index_address(address, step) if job.has_list else None
    return {
        "format": 1,
        "run": target.run_id,
        "step": step,
        "size": job.step_size,
        "is_array": job.is_array,
        "indices": None if job.indices is None else to_ranges(job.indices),
        "command": job.command,
        "command_count": job.command_count,
        "keep_going": job.keep_going,
        "attempts": retry_rules.count_attempts(job, target, has_worker=True),
        "retries": job.retry.attempts - 1,
        "retry_on": list(job.retry_on),
        "fail_on": list(job.fail_on),
        "inputs": list(job.inputs),
        "outputs": list(job.outputs),
        "checkpoint": list(job.checkpoint),
        "workspace": target.workspace,
        "list": list_address,
        "list_index": index_address,
        "done": s3_layout.records_address(address, step),
        "checkpoints": s3_layout.checkpoints_address(address, step),
        "earlier_checkpoints": [
            s3_layout.checkpoints_address(target.environment.run_address(run_id), step)
            for run_id in target.earlier_runs
        ],
        "is_sampled": target.is_sampled,
        **(_make_dynamic_orders(job, target) if job.is_dynamic else {}),
    }


def _make_dynamic_orders(job: PlannedJob, target: Target) -> dict[str, Any]:
    address, step = target.address, job.step
    return {
        "format": 3,
        "blocks": s3_layout.blocks_address(address, step),
        "children": job.size,
        "timeout_s": job.timeout_s,
        "list": s3_layout.ordered_list_address(address, step),
        "list_index": s3_layout.ordered_list_index_address(address, step),
    }
