"""The commands and the environment of a child, with the variables of AWS Batch. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from batchyard.batch.changes import Start
from batchyard.batch.jobs import Dependency, DependencyType
from batchyard.embedded.posix_spawn import Environ, SharedEnviron
from batchyard.embedded.runner import COMMAND_VARIABLE, Task
from batchyard.folder import RunFolder
from batchyard.paired_children import pair_children
from batchyard.plan import Plan, PlannedJob
from batchyard.quick_dataclasses import dataclass
from batchyard.shard import Turn

QUEUE_NAME = "local"
ENVIRONMENT_NAME = "this-machine"

#: Variables that belong to another job if they are in the engine's own environment.
_OTHER_JOB_NAMES = frozenset(
    [
        "ARRAY_SIZE",
        "LIST_FILE_S3_PATH",
        "BATCHYARD_RUN",
        "BATCHYARD_STEP",
        "BATCHYARD_WORKSPACE",
        "BATCHYARD_COMMAND",
        "BATCHYARD_DEVICE",
        "BATCHYARD_TOKEN",
    ]
)
_OTHER_JOB_PREFIX = "AWS_BATCH_"
#: Variables whose values differ between the children of a job.
_CHILD_NAMES = (
    "AWS_BATCH_JOB_ID",
    "AWS_BATCH_JOB_ATTEMPT",
    "AWS_BATCH_JOB_ARRAY_INDEX",
    "BATCHYARD_COMMAND",
    "BATCHYARD_TOKEN",
)
_GPU_NAMES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def make_dependencies(
    plan: Plan, job: PlannedJob, job_ids: Mapping[str, str]
) -> tuple[Dependency, ...]:
    """Return what a job waits for. ``job_ids``: step -> id of its job."""
    return tuple(
        _make_pair_dependency(job, plan.job(need.step), job_ids[need.step])
        if need.each
        else Dependency(job_ids[need.step])
        for need in job.needs
    )


def _make_pair_dependency(job: PlannedJob, needed: PlannedJob, needed_id: str) -> Dependency:
    """Return the dependency of each child on the needed job's child of the same number."""
    pairs = pair_children(job.numbers, needed.numbers)
    if pairs is None and job.size == 1:
        return Dependency(needed_id)
    return Dependency(needed_id, DependencyType.N_TO_N, pairs)


@dataclass(slots=True)
class JobTasks:
    """Makes the tasks of one job. What all children share is made only once."""

    number: int
    id: str
    job: PlannedJob
    #: Loads the step's list of commands, when the first child starts.
    load_list: Callable[[], Sequence[str]]
    #: Names of the variables that the engine sets. A container gets only these.
    engine_variables: tuple[bytes, ...]
    base_environ: SharedEnviron
    token: str
    #: Numbers of the GPUs in the driver, by slot.
    gpu_numbers: tuple[int, ...] = ()
    #: Numbers of commands that have succeeded in an earlier attempt or run.
    done: set[int] = field(default_factory=set)
    _list: Sequence[str] | None = None
    #: Properties of the job, which are computed from others.
    _is_dynamic: bool = field(init=False)
    _has_list: bool = field(init=False)
    _has_several_commands: bool = field(init=False)

    def __post_init__(self) -> None:
        self._is_dynamic = self.job.is_dynamic
        self._has_list = self.job.has_list
        self._has_several_commands = self.job.has_several_commands

    def task(self, start: Start, slot: int) -> Task:
        """Return the task of an attempt that the scheduler has placed.

        ``slot``: the lowest number that no other running attempt of the job has.
        """
        job = self.job
        index = job.index_in_step(start.child)
        mark = f"{self.token}.{self.number}.{start.child}.{start.attempt}.".encode()
        job_id = f"{self.id}:{start.child}" if job.size > 1 else self.id
        environ = {
            b"AWS_BATCH_JOB_ID": job_id.encode(),
            b"AWS_BATCH_JOB_ATTEMPT": b"%d" % start.attempt,
            b"BATCHYARD_TOKEN": mark,
        }
        if job.is_array:
            # A child of a dynamic step is one of those that share the list, not a command of it.
            environ[b"AWS_BATCH_JOB_ARRAY_INDEX"] = b"%d" % (slot if self._is_dynamic else index)
        if start.gpus:
            gpus = ",".join(str(self.gpu_numbers[slot]) for slot in start.gpus).encode()
            environ[b"CUDA_VISIBLE_DEVICES"] = environ[b"NVIDIA_VISIBLE_DEVICES"] = gpus
            # Without this, CUDA numbers GPUs of several types in another order than the driver.
            environ[b"CUDA_DEVICE_ORDER"] = b"PCI_BUS_ID"
        commands = range(index, index + 1) if self._is_dynamic else job.commands_of(start.child)
        if self._has_list and commands:
            environ[COMMAND_VARIABLE] = b"%d" % commands[0]
        return Task(
            job_number=self.number,
            job_id=self.id,
            step=job.step,
            child=start.child,
            index_in_step=index,
            attempt=start.attempt,
            turn=Turn(commands, self.done, keep_going=job.keep_going),
            command=self._command,
            environ=Environ(environ, self.base_environ),
            engine_variables=self.engine_variables,
            resources=job.resources,
            gpus=start.gpus,
            image=job.image,
            shm_mib=job.shm_mib,
            mounts=job.mounts,
            ulimits=job.ulimits,
            user=job.user,
            mark=mark,
            has_several_commands=self._has_several_commands,
        )

    def _command(self, number: int) -> str:
        if self.job.command is not None:
            return self.job.command
        if self._list is None:
            self._list = self.load_list()
        return self._list[number]


def shared_environment(job: PlannedJob, folder: RunFolder, workspace: Path) -> dict[str, str]:
    """Return the variables that all children of a job share, with the `env` of the step."""
    # A child without GPUs must not use a GPU of another child.
    hidden = {} if job.resources.gpus else {"CUDA_VISIBLE_DEVICES": ""}
    variables = {
        **hidden,
        # A shell would set PWD to the workspace, where commands start.
        "PWD": str(workspace),
        **job.env,
        "AWS_BATCH_JQ_NAME": QUEUE_NAME,
        "AWS_BATCH_CE_NAME": ENVIRONMENT_NAME,
        "ARRAY_SIZE": str(_array_size(job)),
        "BATCHYARD_RUN": folder.run_id,
        "BATCHYARD_STEP": job.step,
        "BATCHYARD_WORKSPACE": str(workspace),
        "BATCHYARD_DEVICE": job.device,
    }
    if job.is_array:
        variables["AWS_BATCH_JOB_ARRAY_SIZE"] = str(_array_size(job))
    if job.has_list:
        variables["LIST_FILE_S3_PATH"] = folder.list_of(job.step).absolute().as_uri()
    return variables


def _array_size(job: PlannedJob) -> int:
    """Return the number of children that the commands are told."""
    return job.dynamic_children or 1 if job.is_dynamic else job.step_size


def list_engine_variables(job: PlannedJob, shared: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the names of all variables that the engine sets for a child of the job."""
    child_names = _CHILD_NAMES + _GPU_NAMES if job.resources.gpus else _CHILD_NAMES
    return tuple(dict.fromkeys(os.fsencode(name) for name in (*shared, *child_names)))


def base_environ(environ: Mapping[str, str], shared: Mapping[str, str]) -> SharedEnviron:
    """Return the engine's environment without variables of other jobs, and with the shared ones."""
    inherited = {
        name: value
        for name, value in environ.items()
        if name not in _OTHER_JOB_NAMES and not name.startswith(_OTHER_JOB_PREFIX)
    }
    variables = inherited | dict(shared)
    return SharedEnviron(
        {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
    )
