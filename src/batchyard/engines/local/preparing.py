"""Check whether a plan fits this machine, and choose its capacity, GPUs and workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from batchyard import plan as planning
from batchyard.batch.jobs import Resources
from batchyard.embedded import machine
from batchyard.engines.base import Offer, PreparedRun, RunRequest, new_run_id
from batchyard.engines.local.settings import LocalSettings, new_token
from batchyard.errors import InputError
from batchyard.pipeline import Pipeline
from batchyard.plan import Plan


def prepare(request: RunRequest) -> PreparedRun:
    """Fit the plan to this machine. Raises InputError if it could never run on this machine."""
    if request.environment is not None or request.on_demand:
        raise InputError(
            "an environment and on-demand instances are for runs on AWS",
            hint='choose that engine: --engine aws, or engine="aws" in Python',
        )
    plan, offer, notes = request.plan, request.offer, []
    gpu_steps = [job.step for job in plan.jobs if job.resources.gpus]
    gpu_numbers: tuple[int, ...] = ()
    if gpu_steps and not offer.use_gpus:
        plan = planning.without_gpus(plan)
        notes.append(f"no GPU is used: {', '.join(gpu_steps)} will run with BATCHYARD_DEVICE=cpu")
    elif gpu_steps:
        gpu_numbers, gpu_notes = _choose_gpus(offer.gpus, gpu_steps)
        notes += gpu_notes
    if offer.runner == "docker":
        from batchyard.embedded import docker

        _require_images(plan)
        docker.require_engine()
    settings = LocalSettings(
        workspace=_find_workspace(request.pipeline, offer.workspace),
        capacity=_capacity(plan, offer, len(gpu_numbers)),
        gpu_numbers=gpu_numbers,
        runner=offer.runner,
        token=new_token(),
    )
    return PreparedRun(plan, settings, new_run_id(plan), tuple(notes))


def change_capacity(
    settings: LocalSettings, plan: Plan, cpus: int | None, memory_mib: int | None
) -> LocalSettings:
    """Return the settings with another capacity. Raises InputError if a child does not fit."""
    old = settings.capacity
    capacity = replace(old, vcpus=cpus or old.vcpus, memory_mib=memory_mib or old.memory_mib)
    _require_fit(plan, capacity)
    return replace(settings, capacity=capacity)


def _capacity(plan: Plan, offer: Offer, gpu_count: int) -> Resources:
    detected = machine.measure_capacity(gpu_count)
    capacity = Resources(
        offer.cpus or detected.vcpus, offer.memory_mib or detected.memory_mib, detected.gpus
    )
    _require_fit(plan, capacity)
    return capacity


def _require_fit(plan: Plan, capacity: Resources) -> None:
    too_large = planning.find_misfits(plan, capacity)
    if too_large:
        raise InputError(
            f"the pipeline can never run with {capacity}:\n  " + "\n  ".join(too_large),
            hint="ask for less for a child, or let the run use more: --cpus, --memory and --gpus "
            "of a pipeline",
        )


def _choose_gpus(count: int | None, steps: Sequence[str]) -> tuple[tuple[int, ...], list[str]]:
    """Return the numbers of the GPUs to use, and notes about GPUs that do not exist.

    ``count``: None for all GPUs of this machine. Raises InputError if there is none.
    """
    detected = machine.find_gpus()
    if count is None:
        if not detected:
            raise InputError(
                f"this machine has no GPU (nvidia-smi shows none), and {', '.join(steps)} asks "
                "for one",
                hint="run it on a machine with a GPU, or on the CPU with --no-gpu",
            )
        return tuple(gpu.index for gpu in detected), []
    notes = []
    if count > len(detected):
        notes.append(
            f"--gpus {count}, but this machine shows {len(detected)}: the rest are pretended"
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


def _find_workspace(pipeline: Pipeline, override: str | None) -> Path:
    """Return the folder that commands run in: --workspace, that of the file, or the file's folder.

    Raises InputError if it is not a folder of this machine.
    """
    address = override if override is not None else pipeline.workspace
    if address is not None and address.startswith("s3://"):
        raise InputError(
            f"the workspace {address} is not on this machine",
            hint="name a folder with --workspace DIR",
        )
    if override is not None:
        path = Path(override).absolute()
    elif pipeline.workspace is not None:
        path = (pipeline.folder / pipeline.workspace).absolute()
    else:
        path = pipeline.folder
    if not path.is_dir():
        raise InputError(
            f"the workspace {path} is not a folder",
            hint="make it, or name another with --workspace",
        )
    return path
