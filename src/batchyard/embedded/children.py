"""What a child is told: its commands and its environment, the same names as on AWS Batch. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batchyard.batch.changes import Start
from batchyard.embedded.runner import Task
from batchyard.folder import RunFolder
from batchyard.plan import PlannedJob
from batchyard.shard import Turn

QUEUE_NAME = "local"
ENVIRONMENT_NAME = "this-machine"

#: whatever of these the engine's own environment has is about another job
_FOREIGN = frozenset(
    [
        "ARRAY_SIZE",
        "LIST_FILE_S3_PATH",
        "BATCHYARD_RUN",
        "BATCHYARD_STEP",
        "BATCHYARD_WORKSPACE",
        "BATCHYARD_DEVICE",
        "BATCHYARD_TOKEN",
    ]
)
_FOREIGN_PREFIX = "AWS_BATCH_"
#: what differs from child to child
_OWN_NAMES = (
    "AWS_BATCH_JOB_ID",
    "AWS_BATCH_JOB_ATTEMPT",
    "AWS_BATCH_JOB_ARRAY_INDEX",
    "BATCHYARD_TOKEN",
)
_GPU_NAMES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@dataclass(slots=True)
class JobTasks:
    """Makes the tasks of one job. The parts that all children share are made once."""

    number: int
    id: str
    job: PlannedJob
    #: the step's list, loaded when the first child starts
    load_list: Callable[[], Sequence[str]]
    #: names of the variables that the engine sets: all that a container gets
    told: tuple[bytes, ...]
    base_environ: dict[bytes, bytes]
    token: str
    #: slot -> the GPU's number as the driver knows it
    gpu_numbers: tuple[int, ...] = ()
    #: commands that have succeeded in an earlier attempt or run
    done: set[int] = field(default_factory=set)
    _list: Sequence[str] | None = None

    def task(self, start: Start) -> Task:
        job = self.job
        index = job.index_in_step(start.child)
        environ = self.base_environ.copy()
        environ[b"AWS_BATCH_JOB_ID"] = (
            f"{self.id}:{start.child}" if job.size > 1 else self.id
        ).encode()
        environ[b"AWS_BATCH_JOB_ATTEMPT"] = b"%d" % start.attempt
        mark = f"{self.token}.{self.number}.{start.child}.{start.attempt}.".encode()
        environ[b"BATCHYARD_TOKEN"] = mark
        if job.is_array:
            environ[b"AWS_BATCH_JOB_ARRAY_INDEX"] = b"%d" % index
        if start.gpus:
            gpus = ",".join(str(self.gpu_numbers[slot]) for slot in start.gpus).encode()
            environ[b"CUDA_VISIBLE_DEVICES"] = environ[b"NVIDIA_VISIBLE_DEVICES"] = gpus
            # The driver's numbers, which CUDA counts otherwise where the GPUs are not all of one kind.
            environ[b"CUDA_DEVICE_ORDER"] = b"PCI_BUS_ID"
        commands = job.commands_of(start.child)
        return Task(
            job_number=self.number,
            job_id=self.id,
            step=job.step,
            child=start.child,
            index_in_step=index,
            attempt=start.attempt,
            turn=Turn(commands, self.done, keep_going=job.keep_going),
            command=self._command,
            environ=environ,
            told=self.told,
            resources=job.resources,
            gpus=start.gpus,
            image=job.image,
            shm_mib=job.shm_mib,
            mark=mark,
            has_several=len(commands) > 1,
        )

    def _command(self, number: int) -> str:
        if self.job.command is not None:
            return self.job.command
        if self._list is None:
            self._list = self.load_list()
        return self._list[number]


def shared_environment(job: PlannedJob, folder: RunFolder, workspace: Path) -> dict[str, str]:
    """What every child of the job is told, the user's own env included."""
    # A child that was given no GPU must not find one that another child was given.
    hidden = {} if job.resources.gpus else {"CUDA_VISIBLE_DEVICES": ""}
    told = {
        **hidden,
        # Commands start in the workspace, and a shell would say so.
        "PWD": str(workspace),
        **job.env,
        "AWS_BATCH_JQ_NAME": QUEUE_NAME,
        "AWS_BATCH_CE_NAME": ENVIRONMENT_NAME,
        "ARRAY_SIZE": str(job.step_size),
        "BATCHYARD_RUN": folder.run_id,
        "BATCHYARD_STEP": job.step,
        "BATCHYARD_WORKSPACE": str(workspace),
        "BATCHYARD_DEVICE": job.device,
    }
    if job.is_array:
        told["AWS_BATCH_JOB_ARRAY_SIZE"] = str(job.step_size)
    if job.has_list:
        told["LIST_FILE_S3_PATH"] = folder.list_of(job.step).absolute().as_uri()
    return told


def names_told(job: PlannedJob, shared: Mapping[str, str]) -> tuple[bytes, ...]:
    """The names that the engine sets: those that all children of the job share, and each one's own."""
    own = _OWN_NAMES + _GPU_NAMES if job.resources.gpus else _OWN_NAMES
    return tuple(dict.fromkeys(os.fsencode(name) for name in (*shared, *own)))


def base_environ(environ: Mapping[str, str], shared: Mapping[str, str]) -> dict[bytes, bytes]:
    """The environment of a process here: the engine's own, cleared of other jobs' variables, and what the job says."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _FOREIGN and not name.startswith(_FOREIGN_PREFIX)
    }
    return {os.fsencode(name): os.fsencode(value) for name, value in (kept | dict(shared)).items()}
