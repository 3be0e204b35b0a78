"""Whether a plan can run on AWS Batch, in which environment, and from which files."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard import plan as planning
from batchyard import s3_layout
from batchyard.aws.batch import Batch
from batchyard.aws.ec2 import Ec2
from batchyard.aws.environment_lookup import find_environment
from batchyard.aws.s3 import Place
from batchyard.aws.session import AccessDeniedError, AwsRefusedError, AwsSession
from batchyard.batch.limits import MAX_TAG_VALUE_CHARS
from batchyard.engines.aws import inputs, queue_hosts, render, spot_fallback
from batchyard.engines.aws.queue_hosts import ComputeEnvironment
from batchyard.engines.aws.target import Target
from batchyard.engines.base import (
    FARGATE_CHOICE,
    HostChoice,
    Offer,
    PreparedRun,
    RetryRequest,
    RunRecord,
    RunRequest,
    ServiceRequest,
    new_run_id,
)
from batchyard.environments import Environment
from batchyard.errors import InputError
from batchyard.images import registry
from batchyard.pipeline import Pipeline
from batchyard.pipeline_file import plain_lists
from batchyard.plan import Plan

#: Characters that AWS does not accept in the value of a tag: it takes letters, digits and blanks
#: of any script, and these signs.
_NOT_IN_TAGS = re.compile(r"[^\w +=.:/@-]")


#: Children of a dynamic step without `array`.
DEFAULT_CHILDREN = 16


def prepare(request: RunRequest) -> PreparedRun:
    """Fit the plan to the environment. Raises InputError for what AWS Batch would refuse."""
    # First what needs no answer from AWS.
    refuse_machine_limits(request.offer)
    address = workspace_address(request.pipeline, request.offer.workspace)
    environment = require_environment(request)
    plan = request.plan if request.offer.use_gpus else planning.without_gpus(request.plan)
    plan = planning.with_claiming_children(plan, DEFAULT_CHILDREN)
    folder = None if address else workspace_folder(request.pipeline, request.offer.workspace)
    spot_fallback.require_on_demand_queues(plan, environment)
    target = make_target(
        plan,
        environment,
        new_run_id(plan),
        on_demand=request.on_demand,
        workspace=address,
        pinned=registry.read_pinned_images(request.home, environment.name),
        refuses_misfits=request.refuses_misfits,
    )
    target = replace(target, is_sampled=request.is_sampled)
    notes = [*render.render(plan, target).notes, *spot_fallback.make_notes(plan, target)]
    if folder is not None:
        notes += inputs.check_inputs(plan, folder)
    return PreparedRun(
        plan,
        target,
        target.run_id,
        tuple(notes),
        folder,
        queues=queues_by_step(plan, target),
        slots={
            job.step: min(job.size, job.max_running or job.size)
            for job in plan.jobs
            if job.is_dynamic
        },
        environment=environment,
        hosts=hosts_by_step(plan, target),
    )


def list_requests(prepared: PreparedRun) -> list[ServiceRequest]:
    """Return the requests to AWS Batch of a run. Asks only which job definitions exist."""
    target: Target = prepared.settings
    rendered = render.render(prepared.plan, target)
    environment = target.environment
    batch = Batch(AwsSession(environment.region, environment.profile))
    active = batch.active_definitions(rendered.definitions)
    return list(render.list_requests(rendered, target, active))


def make_target(
    plan: Plan,
    environment: Environment,
    run_id: str,
    *,
    on_demand: bool = False,
    workspace: str | None = None,
    pinned: Mapping[str, str] | None = None,
    refuses_misfits: bool = True,
) -> Target:
    """Return where the plan's run goes. Raises InputError where a queue is missing or disabled.

    ``workspace``: an s3:// prefix instead of the run's own. ``pinned``: image -> the address with
    digest that it was pushed to. ``refuses_misfits``: as in RunRequest.
    """
    images = {job.step: (pinned or {}).get(job.image, job.image) for job in plan.jobs if job.image}
    if workspace:
        address = f"{workspace.rstrip('/')}/"
    else:
        address = s3_layout.workspace_address(environment.run_address(run_id))
    target = Target(
        *(environment, run_id, images, address, user_name(), on_demand),
        max_reclaims=plan.spot.reclaims if plan.spot else None,
    )
    return check_queues(target, plan, refuses_misfits=refuses_misfits)


def check_queues(target: Target, plan: Plan, *, refuses_misfits: bool = True) -> Target:
    """Return the target with its fair-share queues and those on Fargate.

    Raises InputError where a queue does not exist, accepts no jobs, or has no host for a step.
    """
    environment = target.environment
    names = sorted(set(queues_by_step(plan, target).values()))
    session = AwsSession(environment.region, environment.profile)
    queues = Batch(session).queues(names)
    for name in names:
        if name not in queues:
            raise InputError(
                f"there is no job queue {name} in {environment.region}",
                hint=f"check the queues and the region of environment {environment.name!r}",
            )
        state = queues[name]["state"]
        if state != "ENABLED":
            command = (
                f"aws batch update-job-queue --job-queue {name} --state ENABLED "
                f"--region {environment.region}"
            )
            raise InputError(
                f"job queue {name} is {state}: it takes no jobs",
                hint=f"enable it with `{command}`, or name another queue",
            )
    fair = frozenset(name for name in names if queues[name].get("schedulingPolicyArn"))
    hosts = _find_hosts(Batch(session), {name: queues[name] for name in names})
    fargate = frozenset(
        name for name, entries in hosts.items() if any(entry.is_fargate for entry in entries)
    )
    choices = {
        name: tuple(
            FARGATE_CHOICE
            if entry.is_fargate
            else HostChoice(entry.type_names, entry.max_vcpus, entry.is_spot)
            for entry in entries
            if entry.type_names or entry.is_fargate
        )
        for name, entries in hosts.items()
    }
    target = replace(target, fair_queues=fair, fargate_queues=fargate, hosts=choices)
    if refuses_misfits:
        _require_hosts(plan, target, hosts, session)
    return target


def _find_hosts(
    batch: Batch, queues: Mapping[str, Any]
) -> dict[str, tuple[ComputeEnvironment, ...]]:
    """Return queue -> its compute environments; none where the user may not describe them."""
    arns = {
        entry["computeEnvironment"]
        for queue in queues.values()
        for entry in queue.get("computeEnvironmentOrder", ())
    }
    try:
        documents = batch.compute_environments(sorted(arns))
    except AccessDeniedError:
        documents = {}
    return {name: queue_hosts.read_environments(queue, documents) for name, queue in queues.items()}


def _require_hosts(
    plan: Plan,
    target: Target,
    hosts: Mapping[str, Sequence[ComputeEnvironment]],
    session: AwsSession,
) -> None:
    """Raise InputError for steps that no host of their queue can run."""
    patterns = queue_hosts.list_type_patterns(plan, target, hosts)
    types = {}
    if patterns:
        # Where the user may not ask EC2, sizes of hosts are not checked.
        with suppress(AccessDeniedError, AwsRefusedError):
            types = queue_hosts.read_types(Ec2(session).instance_types(patterns))
    problems = list(queue_hosts.find_misfits(plan, target, hosts, types))
    if problems:
        raise InputError("AWS Batch would never start this:\n  " + "\n  ".join(problems))


def hosts_by_step(plan: Plan, target: Target) -> dict[str, tuple[HostChoice, ...]]:
    return {
        step: target.hosts.get(queue, ()) for step, queue in queues_by_step(plan, target).items()
    }


def queues_by_step(plan: Plan, target: Target) -> dict[str, str]:
    return {job.step: target.queue_of(job) for job in plan.jobs}


def user_name() -> str:
    """Return the name of the user who begins the run, as the value of a tag."""
    try:
        return tag_text(getpass.getuser())
    except (KeyError, OSError):
        return str(os.getuid())


def tag_text(text: str) -> str:
    """Return the text in the characters and the length that the value of a tag may have."""
    return _NOT_IN_TAGS.sub("_", text)[:MAX_TAG_VALUE_CHARS]


def require_environment(request: RunRequest) -> Environment:
    """Return the environment of the run. Raises InputError if it, or an image, is missing."""
    if request.environment is None:
        raise InputError(
            "a run on AWS needs an environment",
            hint='name it with --env NAME, or environment="NAME" in Python',
        )
    without_image = [job.step for job in request.plan.jobs if not job.image]
    path = request.pipeline.path
    if without_image and (path is None or plain_lists.is_command_list(path)):
        raise InputError(
            f"{path or request.pipeline.name} is run on AWS in containers, and no image is named",
            hint='name it with --image NAME:TAG, or image="NAME:TAG" in Python',
        )
    return find_environment(request.home, request.environment)


def refuse_machine_limits(offer: Offer) -> None:
    """Raise InputError for limits of this machine, which mean nothing on AWS."""
    limits = {"cpus": offer.cpus, "memory": offer.memory_mib, "gpus": offer.gpus}
    for name, amount in limits.items():
        if amount is not None:
            raise InputError(
                f"--limit-{name} is about this machine; on AWS the queues of the environment say "
                "how much there is",
                hint=f"leave --limit-{name} out",
            )
    if offer.runner != Offer().runner:
        raise InputError(
            "--runner is about this machine; on AWS every child is a container",
            hint="leave --runner out",
        )


def refuse_sampling_change(record: RunRecord, request: RetryRequest) -> None:
    """Raise InputError if a resumed run is to be sampled in another way than it began."""
    was_sampled: bool = record.settings.is_sampled
    if request.choose_sampling(was_sampled) != was_sampled:
        raise InputError(
            f"--no-sampling is for a new run on AWS: workers of run {record.run_id} may have"
            " their orders already",
            hint="leave it out, or stop the run and use it with `retry`",
        )


def workspace_address(pipeline: Pipeline, override: str | None) -> str | None:
    """Return the s3:// prefix of the workspace, None where the workspace is a folder.

    Raises InputError for an address that names no bucket.
    """
    address = override or pipeline.workspace
    if address is None or not address.startswith("s3://"):
        return None
    Place.of(address)
    return address


def workspace_folder(pipeline: Pipeline, override: str | None) -> Path:
    """Return the folder whose files go to S3 and come back."""
    if override is not None:
        path = Path(override).absolute()
    elif pipeline.workspace:
        path = (pipeline.folder / pipeline.workspace).absolute()
    else:
        path = pipeline.folder
    if not path.is_dir():
        raise InputError(
            f"the workspace {path} is not a folder",
            hint="make it, or name another with --workspace",
        )
    return path
