"""A plan in AWS Batch's own shapes: job definitions and submissions. Pure; what AWS cannot be told is refused here.

A *part* is one AWS job: a step is one, or several where its array is larger than AWS takes. What differs from run to
run is in the submission, all else in the definition, which is named by the hash of its content and so is there once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from batchyard import environments, s3_layout
from batchyard.batch import limits
from batchyard.engines.aws import definitions as defining
from batchyard.engines.aws import numbering
from batchyard.environments import Environment
from batchyard.errors import InputError
from batchyard.plan import Plan, PlannedJob, to_ranges

#: characters of a submission's overrides; AWS's limit includes what it adds itself
_MOST_OVERRIDES = limits.MAX_OVERRIDE_CHARS - 700
#: a container's stdout and stderr are two streams, which reach the log in any order
_ONE_STREAM = "exec 2>&1; "
#: what Python, boto3 and transfers take beside the commands; 130 MiB were seen
_WORKER_MIB = 160


@dataclass(frozen=True, slots=True)
class Target:
    """Where a run goes: all that the plan does not say."""

    environment: Environment
    run_id: str
    #: step -> image
    images: Mapping[str, str]
    #: s3:// prefix of the files that the steps share
    workspace: str
    user: str
    on_demand: bool = False
    #: queues with a scheduling policy, by the name that the plan uses
    fair_queues: frozenset[str] = frozenset()

    @property
    def address(self) -> str:
        return self.environment.run_address(self.run_id)


def target_to_json(target: Target) -> dict[str, Any]:
    return {
        "environment": environments.to_json(target.environment),
        "run_id": target.run_id,
        "images": dict(target.images),
        "workspace": target.workspace,
        "user": target.user,
        "on_demand": target.on_demand,
        "fair_queues": sorted(target.fair_queues),
    }


def target_from_json(record: Mapping[str, Any]) -> Target:
    return Target(
        **{
            **record,
            "environment": environments.from_json(record["environment"]),
            "fair_queues": frozenset(record["fair_queues"]),
        }
    )


@dataclass(frozen=True, slots=True)
class Part:
    """One AWS job to be."""

    #: its name is unique to the run, so that it can be found again
    name: str
    step: str
    size: int
    #: number in the plan's job of its first child
    offset: int
    definition: str
    #: SubmitJob, but for jobDefinition's revision and dependsOn
    request: Mapping[str, Any]
    #: (name of the part that it waits for, whether child by child)
    needs: tuple[tuple[str, bool], ...] = ()
    #: nothing but a knot: more dependencies than AWS takes are tied together by it
    is_barrier: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    #: name -> RegisterJobDefinition
    definitions: Mapping[str, dict[str, Any]]
    #: each after what it waits for
    parts: tuple[Part, ...]
    #: name -> quantity: consumable resources that hold max_running
    counters: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def render(plan: Plan, target: Target) -> Rendered:
    """Raises InputError, with all that is wrong at once."""
    problems = [problem for job in plan.jobs for problem in _problems(job, target)]
    if plan.fail_fast:
        problems.append(
            "fail_fast: AWS Batch has nothing that stops other jobs when one fails; leave it out"
        )
    if problems:
        raise InputError("AWS Batch cannot run this as it is:\n  " + "\n  ".join(problems))
    definitions: dict[str, dict[str, Any]] = {}
    parts: list[Part] = []
    by_step: dict[str, list[Part]] = {}
    counters = {}
    counts = _part_counts(plan, target)
    for job in plan.jobs:
        definition = defining.definition(job, target)
        definitions[definition["jobDefinitionName"]] = definition
        if job.max_running is not None:
            counters[counter_name(target.run_id, job.step)] = job.max_running
        own = []
        for number, (offset, size) in enumerate(_split(job.size, counts[job.step])):
            needs = _needs(job, number, by_step)
            name = f"{target.run_id}-{job.step}" + (f"-{number}" if counts[job.step] > 1 else "")
            knots, needs = _tied(name, job, size, needs, definition["jobDefinitionName"], target)
            parts += knots
            request = _request(name, job, offset, size, target)
            own.append(
                Part(name, job.step, size, offset, definition["jobDefinitionName"], request, needs)
            )
        parts += own
        by_step[job.step] = own
    return Rendered(definitions, tuple(parts), counters, (*_notes(plan), *_notes_on_knots(parts)))


def counter_name(run_id: str, step: str) -> str:
    return f"{run_id}-{step}"


def orders(job: PlannedJob, target: Target) -> dict[str, Any]:
    """What the worker is told about its step, by way of S3."""
    address = target.address
    return {
        "format": 1,
        "run": target.run_id,
        "step": job.step,
        "size": job.step_size,
        "is_array": job.is_array,
        "indices": None if job.indices is None else to_ranges(job.indices),
        "command": job.command,
        "command_count": job.command_count,
        "keep_going": job.keep_going,
        "attempts": defining.attempts(job, target),
        "retries": job.retry.attempts - 1,
        "retry_on": list(job.retry_on),
        "fail_on": list(job.fail_on),
        "inputs": list(job.inputs),
        "outputs": list(job.outputs),
        "checkpoint": list(job.checkpoint),
        "workspace": target.workspace,
        "list": s3_layout.list_address(address, job.step) if job.has_list else None,
        "list_index": s3_layout.list_index_address(address, job.step) if job.has_list else None,
        "done": s3_layout.records_address(address, job.step),
        "checkpoints": s3_layout.checkpoints_address(address, job.step),
    }


def queue_of(job: PlannedJob, target: Target) -> str:
    environment = target.environment
    return job.queue or environment.queue(
        needs_gpu=bool(job.resources.gpus), on_demand=target.on_demand
    )


# -- what cannot be ---------------------------------------------------------------------------------------------


def _problems(job: PlannedJob, target: Target) -> list[str]:
    where = f"step {job.step!r}"
    found = []
    if job.step not in target.images:
        found.append(f"{where} has no image: add `image:` to it or to the file")
    if job.timeout_s is not None and job.timeout_s < limits.MIN_TIMEOUT_S:
        found.append(
            f"{where}: timeout {job.timeout_s} s: AWS Batch takes {limits.MIN_TIMEOUT_S} s or more"
        )
    if job.resources.memory_mib < limits.MIN_MEMORY_MIB:
        found.append(
            f"{where}: memory {job.resources.memory_mib} MiB: AWS Batch takes 4 MiB or more"
        )
    if job.secrets and not target.environment.execution_role:
        found.append(
            f"{where} has secrets, which AWS reads with the execution role, and environment "
            f"{target.environment.name!r} has none: add `execution_role:` to it, the ARN of a role that may read them"
        )
    queue = queue_of(job, target)
    share = job.share or target.environment.share
    if queue in target.fair_queues and not share:
        found.append(
            f"{where}: queue {queue} has a fair-share policy: add `share:` to the step or the environment"
        )
    if queue not in target.fair_queues and (job.share or job.priority is not None):
        found.append(
            f"{where}: queue {queue} has no fair-share policy, so it takes no `share` or `priority`"
        )
    if not defining.needs_worker(job):
        rules = len(job.retry.evaluate_on_exit)
        if rules > limits.MAX_RETRY_RULES:
            found.append(
                f"{where}: its retry rules come to {rules}, and AWS Batch takes {limits.MAX_RETRY_RULES}: name fewer exit "
                f"codes, or give it a list of commands, so that the worker in its image follows them"
            )
    return [*found, *(f"{where}: {problem}" for problem in _too_large(job, target))]


def _too_large(job: PlannedJob, target: Target) -> Iterable[str]:
    """What AWS would refuse for its size, or accept and then never start."""
    if job.step in target.images:
        size = len(json.dumps(defining.definition(job, target)).encode())
        if size > limits.MAX_DEFINITION_BYTES:
            yield (
                f"its job definition has {size:,} bytes, and AWS Batch takes {limits.MAX_DEFINITION_BYTES:,}: "
                f"put what is long in `env` into a file"
            )
    # As long as it can get when one child is tried again: what cannot be retried is said before it runs.
    alone = (
        replace(job, size=1, indices=(job.step_size - 1,))
        if job.is_array and job.step_size > 1
        else job
    )
    overrides = _overrides_length(alone, 0, 1, target)
    if overrides > _MOST_OVERRIDES:
        yield (
            f"its command and variables have {overrides:,} characters, and AWS Batch takes {_MOST_OVERRIDES:,}: "
            f"put the command into a script, or into a list (`commands:`), which goes to S3"
        )


def _overrides_length(job: PlannedJob, offset: int, size: int, target: Target) -> int:
    return len(json.dumps(_request("", job, offset, size, target)["containerOverrides"]))


def _notes(plan: Plan) -> Iterable[str]:
    plain = [job.step for job in plan.jobs if not defining.needs_worker(job)]
    if plain:
        yield f"{', '.join(plain)}: a plain command without inputs or outputs, run without the worker"
    for job in plan.jobs:
        if defining.needs_worker(job) and job.resources.memory_mib < _WORKER_MIB:
            yield (
                f"{job.step}: of its {job.resources.memory_mib} MiB of memory the worker alone takes up to "
                f"{_WORKER_MIB} MiB; give it more, or it may be killed"
            )
        if defining.needs_worker(job) and not job.outputs:
            yield f"{job.step}: no outputs are named, so what its commands write stays in the containers"


def _notes_on_knots(parts: Iterable[Part]) -> Iterable[str]:
    by_step: dict[str, int] = {}
    for part in parts:
        if part.is_barrier and part.size > 1:
            by_step[part.step] = by_step.get(part.step, 0) + part.size
    for step, count in by_step.items():
        yield (
            f"{step}: waits child by child for more than {limits.MAX_DEPENDENCIES} steps, which AWS Batch does not "
            f"take: {count:,} children that do nothing, in its image and with its resources, tie them together"
        )


# -- submissions ------------------------------------------------------------------------------------------------


def _part_counts(plan: Plan, target: Target) -> dict[str, int]:
    """Step -> of how many parts it is: as few as AWS allows. Steps that wait for each other child by child, which are
    of one size, have the same number, so that their parts are pairs."""
    counts = {job.step: _fewest_parts(job, target) for job in plan.jobs}
    tied = {job.step: {job.step} for job in plan.jobs}
    for job in plan.jobs:
        for need in job.needs:
            if need.each and tied[need.step] is not tied[job.step]:
                tied[job.step] |= tied[need.step]
                tied.update(dict.fromkeys(tied[need.step], tied[job.step]))
    return {step: max(counts[other] for other in others) for step, others in tied.items()}


def _fewest_parts(job: PlannedJob, target: Target) -> int:
    """What a compacted plain command is told of its children's numbers must fit as well."""
    count = -(-job.size // limits.MAX_CHILDREN)
    if job.indices is None or defining.needs_worker(job):
        return count
    room = _MOST_OVERRIDES - (fixed := _overrides_length(job, 0, 1, target))
    while count < job.size:
        longest = max(
            _overrides_length(job, offset, size, target) for offset, size in _split(job.size, count)
        )
        if longest <= _MOST_OVERRIDES:
            break
        count = max(count + 1, -(-count * (longest - fixed) // room)) if room > 0 else job.size
    return min(count, job.size)


def _split(size: int, count: int) -> list[tuple[int, int]]:
    """(offset, size) of the parts of an array, of one size but for one child."""
    bounds = [size * number // count for number in range(count + 1)]
    return [(start, end - start) for start, end in pairwise(bounds)]


def _needs(
    job: PlannedJob, number: int, by_step: Mapping[str, Sequence[Part]]
) -> tuple[tuple[str, bool], ...]:
    needs = []
    for need in job.needs:
        others = by_step[need.step]
        if need.each:
            # Equal sizes are split alike.
            needs.append((others[number].name, others[number].size > 1))
        else:
            needs += [(other.name, False) for other in others]
    return tuple(needs)


def _tied(
    name: str,
    job: PlannedJob,
    size: int,
    needs: tuple[tuple[str, bool], ...],
    definition: str,
    target: Target,
) -> tuple[list[Part], tuple[tuple[str, bool], ...]]:
    """Where a part waits for more than AWS takes: jobs that do nothing but wait for twenty of them each. What is waited
    for child by child is tied by an array of the same size, child by child."""
    if len(needs) <= limits.MAX_DEPENDENCIES:
        return [], needs
    knots: list[Part] = []
    singly = [need for need in needs if need[1]]
    wholly = [need for need in needs if not need[1]]
    while len(singly) + len(wholly) > limits.MAX_DEPENDENCIES:
        kind, is_each = (singly, True) if len(singly) > len(wholly) else (wholly, False)
        tied = tuple(kind[: limits.MAX_DEPENDENCIES])
        knot = f"{name}-wait{len(knots)}"
        request = {
            "jobName": knot,
            "jobQueue": queue_of(job, target),
            "containerOverrides": {"command": ["true"]},
            "tags": _tags(job.step, target),
            **({"arrayProperties": {"size": size}} if is_each else {}),
            **_share(job, target),
        }
        knots.append(
            Part(knot, job.step, size if is_each else 1, 0, definition, request, tied, True)
        )
        kind[:] = [*kind[limits.MAX_DEPENDENCIES :], (knot, is_each)]
    return knots, (*singly, *wholly)


def _request(name: str, job: PlannedJob, offset: int, size: int, target: Target) -> dict[str, Any]:
    told = {
        "BATCHYARD_RUN": target.run_id,
        "BATCHYARD_STEP": job.step,
        "BATCHYARD_WORKSPACE": target.workspace,
        "BATCHYARD_DEVICE": job.device,
        "ARRAY_SIZE": str(job.step_size),
    }
    overrides: dict[str, Any] = {}
    if defining.needs_worker(job):
        told["BATCHYARD_ORDERS"] = s3_layout.orders_address(target.address, job.step)
        if offset:
            told["BATCHYARD_OFFSET"] = str(offset)
        if job.has_list:
            told["LIST_FILE_S3_PATH"] = s3_layout.list_address(target.address, job.step)
    else:
        assert job.command is not None
        overrides["command"] = [
            "sh",
            "-c",
            f"{_ONE_STREAM}{numbering.prelude(job, offset, size)}{job.command}",
        ]
    overrides["environment"] = [{"name": key, "value": value} for key, value in told.items()]
    request: dict[str, Any] = {
        "jobName": name,
        "jobQueue": queue_of(job, target),
        "containerOverrides": overrides,
        "propagateTags": True,
        "tags": _tags(job.step, target),
        **_share(job, target),
    }
    if size > 1:
        request["arrayProperties"] = {"size": size}
    if job.max_running is not None:
        entry = {"consumableResource": counter_name(target.run_id, job.step), "quantity": 1}
        request["consumableResourcePropertiesOverride"] = {"consumableResourceList": [entry]}
    return request


def _share(job: PlannedJob, target: Target) -> dict[str, Any]:
    if queue_of(job, target) not in target.fair_queues:
        return {}
    # AWS refuses a job with a share and no priority at all.
    share = job.share or target.environment.share
    return {"shareIdentifier": share, "schedulingPriorityOverride": job.priority or 0}


def _tags(step: str, target: Target) -> dict[str, str]:
    pipeline = target.run_id.rsplit("-", 2)[0]
    return {
        "batchyard:run": target.run_id,
        "batchyard:step": step,
        "batchyard:pipeline": pipeline,
        "batchyard:user": target.user,
    }
