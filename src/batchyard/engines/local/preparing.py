"""Check whether a plan fits this machine, and choose its capacity, GPUs and workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from batchyard import plan as planning
from batchyard.batch.jobs import Resources
from batchyard.embedded import machine
from batchyard.engines.base import Offer, PreparedRun, RetryRequest, RunRequest, new_run_id
from batchyard.engines.local.settings import LocalSettings, new_token
from batchyard.errors import InputError
from batchyard.pipeline import Pipeline
from batchyard.plan import Plan


def prepare(request: RunRequest) -> PreparedRun:
    """Fit the plan to this machine. Raises InputError if it could never run on this machine."""
    if request.environment is not None or request.on_demand or request.spot:
        raise InputError(
            "an environment, on-demand and spot instances are for runs on AWS",
            hint='choose that engine: --engine aws, or engine="aws" in Python',
        )
    plan, offer, notes = planning.with_child_per_command(request.plan), request.offer, []
    gpu_steps = [job.step for job in plan.jobs if job.resources.gpus]
    gpu_numbers: tuple[int, ...] = ()
    if gpu_steps and not offer.use_gpus:
        plan = planning.without_gpus(plan)
        notes.append(f"no GPU is used: {', '.join(gpu_steps)} will run with BATCHYARD_DEVICE=cpu")
    elif gpu_steps:
        place = request.pipeline.locate(gpu_steps[0], "gpus")
        gpu_numbers, gpu_notes = _choose_gpus(offer.gpus, gpu_steps, place)
        notes += gpu_notes
    if offer.runner == "docker":
        from batchyard.embedded import docker

        _require_images(plan)
        _require_mounts(plan)
        docker.require_engine()
    else:
        notes += _describe_unused_keys(plan)
    settings = LocalSettings(
        workspace=_find_workspace(request.pipeline, offer.workspace),
        capacity=_capacity(plan, offer, len(gpu_numbers), request.pipeline),
        gpu_numbers=gpu_numbers,
        runner=offer.runner,
        token=new_token(),
        limited=_limited(offer),
        is_sampled=request.is_sampled,
    )
    slots = planning.count_slots(plan, settings.capacity)
    return PreparedRun(plan, settings, new_run_id(plan), tuple(notes), slots=slots)


def change_settings(settings: LocalSettings, plan: Plan, request: RetryRequest) -> LocalSettings:
    """Return the settings of a run that is retried or resumed.

    Raises InputError if a child does not fit, or if the workspace does not exist.
    """
    old = settings.capacity
    capacity = replace(
        old,
        vcpus=request.cpus or old.vcpus,
        memory_mib=request.memory_mib or old.memory_mib,
    )
    _require_fit(plan, capacity)
    workspace = settings.workspace
    if request.workspace is not None:
        workspace = _require_folder(request.workspace)
    elif not workspace.is_dir():
        raise InputError(
            f"the workspace of the run, {workspace}, is not a folder",
            hint="if it was moved, name its new place: --workspace DIR",
        )
    limited = tuple(sorted({*settings.limited, *_limited(request)}))
    return replace(
        settings,
        capacity=capacity,
        workspace=workspace,
        limited=limited,
        is_sampled=request.choose_sampling(settings.is_sampled),
    )


def _limited(request: Offer | RetryRequest) -> tuple[str, ...]:
    """Return the amounts that a request limits. See LocalSettings."""
    amounts = {"memory_mib": request.memory_mib, "vcpus": request.cpus}
    return tuple(name for name, amount in amounts.items() if amount)


def _capacity(plan: Plan, offer: Offer, gpu_count: int, pipeline: Pipeline) -> Resources:
    detected = machine.measure_capacity(gpu_count)
    # More than the machine has if so many commands at once are asked for, as with `xargs -P`.
    at_once = min(offer.at_once or 0, plan.jobs[0].size)
    child = plan.jobs[0].resources
    capacity = Resources(
        offer.cpus or max(detected.vcpus, at_once * child.vcpus),
        offer.memory_mib or max(detected.memory_mib, at_once * child.memory_mib),
        detected.gpus,
    )
    _require_fit(plan, capacity, pipeline.locate)
    return capacity


def _require_fit(
    plan: Plan, capacity: Resources, locate: Callable[[str, str], str] = lambda step, key: ""
) -> None:
    too_large = planning.find_misfits(plan, capacity, locate)
    if too_large:
        raise InputError(
            f"the pipeline can never run with {capacity}:\n  " + "\n  ".join(too_large),
            hint="ask for less for a child, or let the run use more: --limit-cpus, --limit-memory "
            "and --limit-gpus",
        )


def _choose_gpus(
    count: int | None, steps: Sequence[str], place: str
) -> tuple[tuple[int, ...], list[str]]:
    """Return the numbers of the GPUs to use, and notes about GPUs that do not exist.

    ``count``: None for all GPUs of this machine. ``place`` is where the first step asks for one.
    Raises InputError if there is none.
    """
    detected = machine.find_gpus()
    if count is None:
        if not detected:
            raise InputError(
                f"{place}this machine has no GPU (nvidia-smi shows none), and {', '.join(steps)}"
                " asks for one",
                hint="run it on a machine with a GPU, or on the CPU with --no-gpu",
            )
        return tuple(gpu.index for gpu in detected), []
    notes = []
    if count > len(detected):
        notes.append(
            f"--limit-gpus {count}, but this machine shows {len(detected)}: the rest are pretended"
        )
    real = [gpu.index for gpu in detected[:count]]
    first_pretended = max(real, default=-1) + 1
    pretended = range(first_pretended, first_pretended + count - len(real))
    return (*real, *pretended), notes


def _require_images(plan: Plan) -> None:
    missing = [job.step for job in plan.jobs if not job.image]
    if missing:
        raise InputError(
            f"--runner docker needs an image for each step; without one: {', '.join(missing)}",
            hint="add `image: NAME:TAG` to the step, or to the file for all steps",
        )


def _require_mounts(plan: Plan) -> None:
    """Raise InputError if a step mounts what this machine does not have."""
    problems = []
    for job in plan.jobs:
        for mount in job.mounts:
            if mount.efs is not None:
                problems.append(
                    f"step '{job.step}': {mount.path} is the EFS file system {mount.efs}, which "
                    "only hosts on AWS can mount"
                )
            elif mount.host is not None and not Path(mount.host).exists():
                problems.append(
                    f"step '{job.step}': {mount.path} is the folder {mount.host} of the host, and "
                    "this machine has none"
                )
    if problems:
        raise InputError(
            "this machine cannot mount what the pipeline asks for:\n  " + "\n  ".join(problems),
            hint="make the folder, name one of this machine with `host:`, or run it with "
            "--engine aws",
        )


def _describe_unused_keys(plan: Plan) -> list[str]:
    """Return a note about keys that only containers have."""
    steps: dict[str, list[str]] = {}
    for job in plan.jobs:
        for key in ("mounts", "ulimits", "user"):
            if getattr(job, key):
                steps.setdefault(key, []).append(job.step)
    return [
        f"`{key}` of {', '.join(names)} has no effect on processes: --runner docker applies it"
        for key, names in steps.items()
    ]


def _find_workspace(pipeline: Pipeline, override: str | None) -> Path:
    """Return the folder that commands run in: --workspace, that of the file, or the file's folder.

    Raises InputError if it is not a folder of this machine.
    """
    if override is not None:
        return _require_folder(override)
    if pipeline.workspace is not None:
        return _require_folder(pipeline.workspace, pipeline.folder)
    return _require_folder(str(pipeline.folder))


def _require_folder(address: str, base: Path = Path()) -> Path:
    """Return the folder of this machine with that address. Raises InputError.

    ``base``: the folder that a relative address begins in.
    """
    if address.startswith("s3://"):
        raise InputError(
            f"the workspace {address} is not on this machine",
            hint="name a folder with --workspace DIR",
        )
    path = (base / address).absolute()
    if not path.is_dir():
        raise InputError(
            f"the workspace {path} is not a folder",
            hint="make it, or name another with --workspace",
        )
    return path
