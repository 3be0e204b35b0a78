"""Describe a command of the user that is measured on CPU and GPU. Values only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchyard.bench.workload import KINDS
from batchyard.errors import InputError
from batchyard.pipeline import Pipeline
from batchyard.units import quote

AUTO = "auto"
#: replaced by each size in the words of a command
SIZE = "{size}"
#: environment variable of the measured command, as of every step: cpu or gpu
DEVICE_VARIABLE = "BATCHYARD_DEVICE"
MAX_RUNS = 1000
DEFAULT_RUNS = 5
_MAX_TITLE = 80
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command to measure, and how."""

    #: program and arguments; the word `{size}` in them is replaced by each size
    words: tuple[str, ...]
    #: runs for each device and size, the first included
    runs: int = DEFAULT_RUNS
    sizes: tuple[int, ...] = ()
    #: cpu, gpu, or auto: both if there is a GPU
    device: str = AUTO
    #: folder for the results
    out: Path = Path("benchmark")
    #: folder in which the command runs; None: the current folder
    folder: Path | None = None
    #: environment variables of the command, besides those of this process
    env: Mapping[str, str] = field(default_factory=dict)
    #: files and folders that are sent with jobs; the command runs in the folder that has them
    files: tuple[Path, ...] = ()
    #: kind of device -> EC2 instance type, for the price
    instance_types: Mapping[str, str] = field(default_factory=dict)
    #: if there is no GPU, run without one in its place
    stand_in: bool = False
    #: memory that a job requests at most; None: that of its machine
    memory_mib: int | None = None
    #: container image of jobs; None: that of `bench submit`
    image: str | None = None
    #: the command as text; empty: the words
    text: str = ""

    @property
    def title(self) -> str:
        """The command on one line, shortened; the name of its operation in tables."""
        line = " ".join((self.text or shlex.join(self.words)).split())
        line = line if line.isprintable() else quote(line, _MAX_TITLE)
        return line if len(line) <= _MAX_TITLE else line[: _MAX_TITLE - 3] + "..."

    def words_for(self, size: int | None) -> list[str]:
        if size is None:
            return list(self.words)
        return [word.replace(SIZE, str(size)) for word in self.words]


def require_command(request: CommandRequest) -> None:
    """Raise InputError if the request cannot be carried out anywhere."""
    if not request.words or not request.words[0]:
        raise InputError(
            "there is no command to measure",
            hint="write it after `--`, as in `batchyard bench command -- python train.py`",
        )
    if request.device not in (AUTO, *KINDS):
        raise InputError(
            f"--device {request.device}: there is no such device", hint="use cpu, gpu or auto"
        )
    if not 1 <= request.runs <= MAX_RUNS:
        raise InputError(f"--runs {request.runs}: it must be between 1 and {MAX_RUNS}")
    _require_sizes(request)
    for kind, name in request.instance_types.items():
        if name and not _TYPE.fullmatch(name):
            raise InputError(
                f"--{kind}-type {name!r} is no instance type",
                hint="an instance type looks like g5.xlarge",
            )


def _require_sizes(request: CommandRequest) -> None:
    """Raise InputError unless the command has a place for the sizes, or there are none."""
    has_size = any(SIZE in word for word in request.words)
    if request.sizes and not has_size:
        raise InputError(
            f"--sizes needs {SIZE} in the command, which is replaced by each size",
            hint=f"for example --sizes 100,1000 -- python train.py --steps {SIZE}",
        )
    if has_size and not request.sizes:
        raise InputError(
            f"the command has {SIZE}, but there are no sizes",
            hint="name the sizes with --sizes, like --sizes 100,1000",
        )


def request_of_step(pipeline: Pipeline, name: str, request: CommandRequest) -> CommandRequest:
    """Return the request with command, environment variables and image of a pipeline's step.

    Of an array, the child 0 is measured; of a list, its first command. The command runs in the
    workspace of the pipeline, unless the request has a folder or sends files. Raises InputError.
    """
    steps = {step.name: step for step in pipeline.steps}
    if name not in steps:
        raise InputError(
            f"pipeline {pipeline.name!r} has no step {name!r}", hint=f"it has {', '.join(steps)}"
        )
    step = steps[name]
    text = step.command if step.command is not None else (step.commands or ("",))[0]
    index: tuple[str, ...] = ()
    if step.array is not None:
        index = ("env", "AWS_BATCH_JOB_ARRAY_INDEX=0", f"ARRAY_SIZE={step.size}")
    return replace(
        request,
        words=(*index, "sh", "-c", text),
        text=text,
        env={**step.env, **request.env},
        folder=_choose_folder(pipeline, request),
        image=request.image or step.image,
    )


def _choose_folder(pipeline: Pipeline, request: CommandRequest) -> Path | None:
    """Return the folder that the command runs in; None if its files are sent with it."""
    if request.folder is not None or request.files or pipeline.path is None:
        return request.folder
    return pipeline.path.parent / (pipeline.workspace or "")
