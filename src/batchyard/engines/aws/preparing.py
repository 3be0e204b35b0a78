"""Whether a plan can run on AWS Batch, in which environment, and from which files."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from batchyard import plan as planning
from batchyard import s3_layout
from batchyard.aws.batch import Batch
from batchyard.aws.environment_lookup import find_environment
from batchyard.aws.s3 import Place
from batchyard.aws.session import AwsSession
from batchyard.batch.limits import MAX_TAG_VALUE_CHARS
from batchyard.engines.aws import inputs, render, submit_requests
from batchyard.engines.aws.target import Target
from batchyard.engines.base import Offer, PreparedRun, RunRequest, new_run_id
from batchyard.environments import Environment
from batchyard.errors import InputError
from batchyard.images import registry
from batchyard.pipeline import Pipeline
from batchyard.pipeline_file import reading
from batchyard.plan import Plan

#: Characters that AWS does not accept in the value of a tag: it takes letters, digits and blanks
#: of any script, and these signs.
_NOT_IN_TAGS = re.compile(r"[^\w +=.:/@-]")


def prepare(request: RunRequest) -> PreparedRun:
    """Fit the plan to the environment. Raises InputError for what AWS Batch would refuse."""
    # First what needs no answer from AWS.
    _refuse_machine_limits(request.offer)
    address = _workspace_address(request.pipeline, request.offer.workspace)
    environment = _require_environment(request)
    plan = request.plan if request.offer.use_gpus else planning.without_gpus(request.plan)
    folder = None if address else _workspace_folder(request.pipeline, request.offer.workspace)
    target = make_target(
        plan,
        environment,
        new_run_id(plan),
        on_demand=request.on_demand,
        workspace=address,
        pinned=registry.read_pinned_images(request.home, environment.name),
    )
    notes = [*render.render(plan, target).notes]
    if folder is not None:
        notes += inputs.check_inputs(plan, folder)
    return PreparedRun(
        plan, target, target.run_id, tuple(notes), folder, queues=queues_by_step(plan, target)
    )


def make_target(
    plan: Plan,
    environment: Environment,
    run_id: str,
    *,
    on_demand: bool = False,
    workspace: str | None = None,
    pinned: Mapping[str, str] | None = None,
) -> Target:
    """Return where the plan's run goes. Raises InputError where a queue is missing or disabled.

    ``workspace``: an s3:// prefix instead of the run's own. ``pinned``: image -> the address with
    digest that it was pushed to.
    """
    images = {job.step: (pinned or {}).get(job.image, job.image) for job in plan.jobs if job.image}
    if workspace:
        address = f"{workspace.rstrip('/')}/"
    else:
        address = s3_layout.workspace_address(environment.run_address(run_id))
    target = Target(environment, run_id, images, address, user_name(), on_demand)
    return check_queues(target, plan)


def check_queues(target: Target, plan: Plan) -> Target:
    """Return the target with its fair-share queues.

    Raises InputError where a queue does not exist or accepts no jobs.
    """
    environment = target.environment
    names = sorted(set(queues_by_step(plan, target).values()))
    queues = Batch(AwsSession(environment.region, environment.profile)).queues(names)
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
    return replace(target, fair_queues=fair)


def queues_by_step(plan: Plan, target: Target) -> dict[str, str]:
    return {job.step: submit_requests.queue_of(job, target) for job in plan.jobs}


def user_name() -> str:
    """Return the name of the user who begins the run, as the value of a tag."""
    try:
        return tag_text(getpass.getuser())
    except (KeyError, OSError):
        return str(os.getuid())


def tag_text(text: str) -> str:
    """Return the text in the characters and the length that the value of a tag may have."""
    return _NOT_IN_TAGS.sub("_", text)[:MAX_TAG_VALUE_CHARS]


def _require_environment(request: RunRequest) -> Environment:
    if request.environment is None:
        raise InputError(
            "a run on AWS needs an environment",
            hint='name it with --env NAME, or environment="NAME" in Python',
        )
    without_image = [job.step for job in request.plan.jobs if not job.image]
    path = request.pipeline.path
    if without_image and path is not None and reading.is_command_list(path):
        raise InputError(
            f"{path} is run on AWS in containers, and no image is named",
            hint="name it with --image NAME:TAG",
        )
    return find_environment(request.home, request.environment)


def _refuse_machine_limits(offer: Offer) -> None:
    """Raise InputError for limits of this machine, which mean nothing on AWS."""
    limits = {"cpus": offer.cpus, "memory": offer.memory_mib, "gpus": offer.gpus}
    for name, amount in limits.items():
        if amount is not None:
            raise InputError(
                f"--{name} is about this machine; on AWS the queues of the environment say how "
                "much there is",
                hint=f"leave --{name} out",
            )
    if offer.runner != Offer().runner:
        raise InputError(
            "--runner is about this machine; on AWS every child is a container",
            hint="leave --runner out",
        )


def _workspace_address(pipeline: Pipeline, override: str | None) -> str | None:
    """Return the s3:// prefix of the workspace, None where the workspace is a folder.

    Raises InputError for an address that names no bucket.
    """
    address = override or pipeline.workspace
    if address is None or not address.startswith("s3://"):
        return None
    Place.of(address)
    return address


def _workspace_folder(pipeline: Pipeline, override: str | None) -> Path:
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
