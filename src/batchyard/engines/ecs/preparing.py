"""Whether a plan can run on an ECS cluster, on which, and from which files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from batchyard import plan as planning
from batchyard import s3_layout
from batchyard.aws.ecs import MAX_STARTED_TASKS, Ecs
from batchyard.aws.session import AccessDeniedError, AwsRefusedError, AwsSession
from batchyard.batch.limits import MAX_OVERRIDE_CHARS
from batchyard.engines.aws import inputs, refusals
from batchyard.engines.aws.definitions import round_fargate_memory
from batchyard.engines.aws.preparing import (
    DEFAULT_CHILDREN,
    refuse_machine_limits,
    require_environment,
    user_name,
    workspace_address,
    workspace_folder,
)
from batchyard.engines.aws.target import Target
from batchyard.engines.base import (
    HostChoice,
    PreparedRun,
    RunRequest,
    ServiceRequest,
    new_run_id,
)
from batchyard.engines.ecs import cluster_hosts, requests
from batchyard.environments import Environment
from batchyard.errors import InputError
from batchyard.images import registry
from batchyard.plan import Plan, PlannedJob

_STAYS = (
    "a process on this machine starts the tasks and must stay until the end; --detach keeps it in "
    "the background"
)


def prepare(request: RunRequest) -> PreparedRun:
    """Fit the plan to the cluster. Raises InputError for what ECS would refuse."""
    # First what needs no answer from AWS.
    refuse_machine_limits(request.offer)
    refuse_instance_kinds(on_demand=request.on_demand, spot=request.spot)
    if request.spot:
        raise InputError(
            "--spot is about queues of AWS Batch, and a cluster has none", hint="leave it out"
        )
    address = workspace_address(request.pipeline, request.offer.workspace)
    environment = require_environment(request)
    cluster = require_cluster(environment)
    plan = request.plan if request.offer.use_gpus else planning.without_gpus(request.plan)
    plan = planning.with_claiming_children(plan, DEFAULT_CHILDREN)
    folder = None if address else workspace_folder(request.pipeline, request.offer.workspace)
    target = make_target(
        plan,
        environment,
        workspace=address,
        pinned=registry.read_pinned_images(request.home, environment.name),
    )
    target = replace(target, is_sampled=request.is_sampled)
    check_plan(plan, target)
    notes = [*refusals.make_notes(plan, target)]
    if plan.spot is not None:
        notes.append("`spot` has no effect on a cluster, whose instances are what they are")
    hosts, problem = find_hosts_by_step(plan, environment, cluster)
    notes += [problem] if problem else []
    if not request.detached:
        notes.append(_STAYS)
    if folder is not None:
        notes += inputs.check_inputs(plan, folder)
    slots = {
        job.step: min(job.size, job.max_running or job.size) for job in plan.jobs if job.is_dynamic
    }
    return PreparedRun(
        plan,
        target,
        target.run_id,
        tuple(notes),
        folder,
        slots=slots,
        environment=environment,
        hosts=hosts,
    )


def refuse_instance_kinds(*, on_demand: bool, spot: bool = False) -> None:
    """Raise InputError for --on-demand and --spot: the cluster decides about its instances."""
    for flag, is_set in {"--on-demand": on_demand, "--spot": spot}.items():
        if is_set:
            raise InputError(
                f"{flag} chooses a queue of AWS Batch, and a cluster has none",
                hint="leave it out: the cluster's capacity provider says which instances there are",
            )


def require_cluster(environment: Environment) -> Mapping[str, Any]:
    """Return the description of the environment's cluster.

    Raises InputError if the environment has no cluster, or an inactive one.
    """
    name = environment.name
    if environment.cluster is None:
        raise InputError(
            f"environment {name!r} has no ECS cluster",
            hint=f"add `cluster: NAME` to it, or make one: `batchyard deploy ecs --env {name}`",
        )
    session = AwsSession(environment.region, environment.profile)
    cluster: Mapping[str, Any] | None = Ecs(session).cluster(environment.cluster)
    if cluster is None:
        raise InputError(
            f"there is no ECS cluster {environment.cluster} in {environment.region}",
            hint=f"check `cluster` and `region` of environment {name!r}",
        )
    return cluster


def find_hosts_by_step(
    plan: Plan, environment: Environment, cluster: Mapping[str, Any]
) -> tuple[dict[str, tuple[HostChoice, ...]], str]:
    """Return step -> hosts that it may get, and a sentence about why they are not known."""
    session = AwsSession(environment.region, environment.profile)
    try:
        hosts = cluster_hosts.find_hosts(session, environment, cluster)
    except (AccessDeniedError, AwsRefusedError) as exc:
        return {}, f"the hosts of the cluster, and what they cost, are not known: {exc.message}"
    return {job.step: hosts for job in plan.jobs}, ""


def make_target(
    plan: Plan,
    environment: Environment,
    *,
    workspace: str | None = None,
    pinned: dict[str, str] | None = None,
) -> Target:
    """Return where the plan's run goes. See engines.aws.preparing.make_target."""
    run_id = new_run_id(plan)
    images = {job.step: (pinned or {}).get(job.image, job.image) for job in plan.jobs if job.image}
    address = s3_layout.workspace_address(environment.run_address(run_id))
    if workspace:
        address = f"{workspace.rstrip('/')}/"
    return Target(environment, run_id, images, address, user_name())


def check_plan(plan: Plan, target: Target) -> None:
    """Raise InputError with everything that ECS would refuse."""
    problems = [
        f"step {job.step!r}{problem}"
        for job in plan.jobs
        for problem in _find_problems(job, target)
    ]
    if problems:
        raise InputError("ECS cannot run this as it is:\n  " + "\n  ".join(problems))


def _find_problems(job: PlannedJob, target: Target) -> Iterator[str]:
    environment = target.environment
    if job.step not in target.images:
        yield " has no image: add `image:` to it or to the file"
        return
    yield from refusals.find_secret_problems(job, environment)
    if job.is_dynamic:
        yield from refusals.find_dynamic_problems(job)
    if requests.is_fargate(environment):
        if job.resources.gpus:
            yield ": Fargate has no GPUs: name another capacity provider"
        elif round_fargate_memory(job.resources) is None:
            yield f": Fargate has no tasks of {job.resources}"
    for key, value in {"queue": job.queue, "share": job.share, "priority": job.priority}.items():
        if value is not None:
            yield f": `{key}` is about queues of AWS Batch, and a cluster has none: leave it out"
    size = len(json.dumps(requests.make_definition(job, target)).encode())
    if size > requests.MAX_DEFINITION_BYTES:
        yield (
            f": its task definition has {size:,} bytes, and ECS takes "
            f"{requests.MAX_DEFINITION_BYTES:,}: name fewer mounts and secrets"
        )
    length = requests.count_override_chars(job, target)
    if length > MAX_OVERRIDE_CHARS:
        yield (
            f": its command and variables have {length:,} characters, and ECS takes "
            f"{MAX_OVERRIDE_CHARS:,}: put the command into a script, or into a list "
            "(`commands:`), which goes to S3"
        )


def list_requests(prepared: PreparedRun) -> Iterator[ServiceRequest]:
    """Return a request for each new task definition, and for the first children of each step.

    Asks only which task definitions exist.
    """
    target: Target = prepared.settings
    environment = target.environment
    ecs = Ecs(AwsSession(environment.region, environment.profile))
    definitions: dict[str, str] = {}
    for job in prepared.plan.jobs:
        definition = requests.make_definition(job, target)
        family = definition["family"]
        if family not in definitions:
            definitions[family] = ecs.find_definition(family) or ""
            if not definitions[family]:
                yield ServiceRequest("ecs", "RegisterTaskDefinition", definition)
    for number, job in enumerate(prepared.plan.jobs):
        family = requests.make_definition(job, target)["family"]
        children = range(min(job.size, MAX_STARTED_TASKS if job.is_dynamic else 1))
        launch = requests.Launch("<token>", number, 1, children)
        arn = definitions[family] or family
        request = requests.make_request(job, target, f"<id of {job.step}>", arn, launch)
        yield ServiceRequest("ecs", "RunTask", request)
