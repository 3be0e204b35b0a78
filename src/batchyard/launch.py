"""From a pipeline to a run under way: what this machine offers, whether the plan fits, who executes it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from batchyard import plan as planning
from batchyard import runs, units
from batchyard.batch.jobs import Resources
from batchyard.embedded import machine
from batchyard.engines.base import RunState, RunWatcher
from batchyard.engines.local.engine import Setting
from batchyard.engines.local.reading import load_list
from batchyard.errors import InputError, OperationalError, RunLockedError
from batchyard.pipeline import Pipeline
from batchyard.plan import Plan
from batchyard.runs import Record

_DETACH_TIMEOUT_S = 30.0
RUNNERS = ("process", "docker")


@dataclass(frozen=True, slots=True)
class Offer:
    """What the user lets a run have; None: all that the machine has. Raises InputError for what nobody can have."""

    cpus: int | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    use_gpus: bool = True
    runner: str = "process"
    workspace: str | None = None

    def __post_init__(self) -> None:
        _require_count("cpus", self.cpus, 1)
        _require_count("gpus", self.gpus, 0)
        _require_memory(self.memory_mib)
        if self.runner not in RUNNERS:
            raise InputError(
                f"Offer: there is no runner {self.runner!r}",
                hint='the runners are "process" and "docker"',
            )


def _require_count(name: str, value: object, least: int) -> None:
    if value is not None and (
        not isinstance(value, int) or isinstance(value, bool) or value < least
    ):
        raise InputError(
            f"Offer: {name} is {value!r}",
            hint=f"write a whole number, at least {least}, or leave it out",
        )


def _require_memory(value: object) -> None:
    """The limits are those of ``--memory``; an amount as it is written there is told as a number."""
    least, most = units.MIN_MEMORY_MIB, units.MAX_MEMORY_MIB
    if value is None or (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    ):
        return
    hint = f"write a whole number of MiB, {least} to {most:,}, or leave it out"
    if isinstance(value, str):
        with suppress(units.AmountError):
            hint = f"write it in MiB: memory_mib={units.memory_mib(value)}"
    raise InputError(f"Offer: memory_mib is {value!r}", hint=hint)


def fit(plan: Plan, pipeline: Pipeline, offer: Offer) -> tuple[Plan, Setting, list[str]]:
    """The plan as it can run here, where that is, and what the user should know. Raises InputError if it never could."""
    notes: list[str] = []
    gpu_steps = [job.step for job in plan.jobs if job.resources.gpus]
    gpu_numbers: tuple[int, ...] = ()
    if gpu_steps and not offer.use_gpus:
        plan = planning.without_gpus(plan)
        notes.append(f"no GPU is used: {', '.join(gpu_steps)} will run with BATCHYARD_DEVICE=cpu")
    elif gpu_steps:
        gpu_numbers = _gpu_numbers(offer.gpus, gpu_steps, notes)
    found = machine.capacity(len(gpu_numbers))
    capacity = Resources(
        offer.cpus or found.vcpus, offer.memory_mib or found.memory_mib, found.gpus
    )
    _require_fit(plan, capacity)
    if offer.runner == "docker":
        from batchyard.embedded import docker

        _require_images(plan)
        docker.require_engine()
    setting = Setting(
        workspace=workspace_of(pipeline, offer.workspace),
        capacity=capacity,
        gpu_numbers=gpu_numbers,
        runner=offer.runner,
        token=new_token(),
    )
    return plan, setting, notes


def with_capacity(
    setting: Setting, plan: Plan, cpus: int | None, memory_mib: int | None
) -> Setting:
    """The setting with other limits; raises InputError where a child would no longer fit."""
    before = setting.capacity
    capacity = replace(
        before, vcpus=cpus or before.vcpus, memory_mib=memory_mib or before.memory_mib
    )
    _require_fit(plan, capacity)
    return replace(setting, capacity=capacity)


def new_token() -> str:
    """What marks everything that one run starts."""
    return f"by{os.urandom(16).hex()}"


def workspace_of(pipeline: Pipeline, given: str | None) -> Path:
    """--workspace, else what the file says, else the file's folder."""
    if given is not None:
        path = Path(given).absolute()
    elif pipeline.workspace is not None and pipeline.workspace.startswith("s3://"):
        raise InputError(
            f"the workspace {pipeline.workspace} is not on this machine",
            hint="name a folder with --workspace DIR",
        )
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


def unfinished_part(record: Record) -> tuple[Plan, dict[str, list[int]]]:
    """What `retry` runs: the plan of all that has no success record, and the commands of it that have one."""
    engine = record.open_local()
    try:
        if engine.run_state is RunState.RUNNING:
            doing = "is still running" if engine.holder else "is not over: its process died"
            command = "stop" if engine.holder else "resume"
            raise InputError(
                f"run {record.run_id} {doing}", hint=f"`batchyard {command} {record.run_id}` first"
            )
        children_left, commands_done = engine.unfinished()
    finally:
        engine.close()
    if not any(children_left.values()):
        raise InputError(f"run {record.run_id} has nothing to retry: everything in it succeeded")
    lists = {
        job.step: load_list(record.folder.list_of(job.step))
        for job in record.plan.jobs
        if job.has_list and children_left.get(job.step)
    }
    left = planning.only_unfinished(record.plan, children_left)
    return replace(left, lists=lists), commands_done


def begin_retry(old: Record, cpus: int | None = None, memory_mib: int | None = None) -> Record:
    """Records a new run, beside the old one, of only what failed or never ran in it; nothing executes yet."""
    plan, done = unfinished_part(old)
    setting = with_capacity(replace(old.setting, token=new_token()), plan, cpus, memory_mib)
    home = old.folder.path.parents[1]
    file = Path(old.file) if old.file else None
    return runs.begin(home, plan, setting, file=file, retry_of=old.run_id, done=done)


def require_resumable(record: Record) -> None:
    """Raises unless the run is not over and nobody executes it."""
    engine = record.open_local()
    try:
        state, holder = engine.run_state, engine.holder
    finally:
        engine.close()
    if holder is not None:
        raise RunLockedError(
            f"run {record.run_id} is being executed by {holder}", hint="there is nothing to resume"
        )
    if state is not RunState.RUNNING:
        hint = (
            ""
            if state is RunState.SUCCEEDED
            else f"`batchyard retry {record.run_id}` runs what is left"
        )
        raise InputError(f"run {record.run_id} is over: {state.value}", hint=hint)


def execute(record: Record, watcher: RunWatcher, *, carry_out_old_stops: bool = False) -> RunState:
    """Executes the run in this process, to its end."""
    engine = record.open_local()
    try:
        return engine.execute(
            record.setting, os.environ, watcher, carry_out_old_stops=carry_out_old_stops
        )
    finally:
        engine.close()


def execute_detached(record: Record, timeout_s: float = _DETACH_TIMEOUT_S) -> None:
    """Executes the run in a process of its own that outlives this one; returns once it holds the run."""
    import subprocess  # slow to import, and most runs start none

    command = [sys.executable, "-m", "batchyard", "execute", str(record.folder.path)]
    log_begins = record.folder.engine_log.stat().st_size if record.folder.engine_log.exists() else 0
    with record.folder.engine_log.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    deadline = time.monotonic() + timeout_s
    engine = record.open_local()
    try:
        while engine.executed_by != process.pid and engine.run_state is RunState.RUNNING:
            if process.poll() is not None and engine.run_state is RunState.RUNNING:
                said = (
                    record.folder.engine_log.read_bytes()[log_begins:]
                    .decode(errors="replace")
                    .strip()
                )
                raise OperationalError(
                    f"the engine of run {record.run_id} did not start: {said or process.returncode}"
                )
            if time.monotonic() > deadline:
                raise OperationalError(
                    f"the engine of run {record.run_id} did not start within {timeout_s:.0f} s"
                )
            time.sleep(0.01)
    finally:
        engine.close()
    # It is nobody's business to wait for it: the warning that it still runs would be noise.
    process.returncode = 0


def _require_fit(plan: Plan, capacity: Resources) -> None:
    too_large = planning.misfits(plan, capacity)
    if too_large:
        raise InputError(
            f"the pipeline can never run with {capacity}:\n  " + "\n  ".join(too_large),
            hint="ask for less for a child, or let the run use more: --cpus, --memory and --gpus of a pipeline",
        )


def _gpu_numbers(wanted: int | None, steps: Sequence[str], notes: list[str]) -> tuple[int, ...]:
    found = machine.find_gpus()
    names = ", ".join(steps)
    if wanted is None:
        if not found:
            raise InputError(
                f"this machine has no GPU (nvidia-smi shows none), and {names} asks for one",
                hint="run it on a machine with a GPU, or on the CPU with --no-gpu",
            )
        return tuple(gpu.index for gpu in found)
    if wanted > len(found):
        notes.append(
            f"--gpus {wanted}, but this machine shows {len(found)}: the rest are pretended"
        )
    known = [gpu.index for gpu in found[:wanted]]
    return (
        *known,
        *range(max(known, default=-1) + 1, max(known, default=-1) + 1 + wanted - len(known)),
    )


def _require_images(plan: Plan) -> None:
    missing = [job.step for job in plan.jobs if not job.image]
    if missing:
        raise InputError(
            f"--runner docker needs an image, and {', '.join(missing)} has none",
            hint="add `image: NAME:TAG` to the step, or to the file for all steps",
        )
