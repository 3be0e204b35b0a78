"""Turn a benchmark request into a pipeline of two steps; ``packing`` packs what its jobs run.

The image needs no batchyard: a job unpacks the code that is sent with it (``bootstrap``), and runs
`batchyard bench run`.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources

from batchyard.batch.hosts import registered_mib
from batchyard.bench.command_request import CommandRequest
from batchyard.bench.packing import PICTURES, USER_FOLDER, JobRequest
from batchyard.bench.request import Request
from batchyard.bench.results import Results
from batchyard.bench.workload import CPU, GPU
from batchyard.ec2_types import TYPES, WORDS
from batchyard.pipeline import Pipeline, Step

PIPELINE = "benchmark"
STEPS = (CPU, GPU)
STAND_IN = "--stand-in"
CODE = "code.zip"
RESULTS = "results/"
#: environment variable of a step: the requested instance type, or ANY_TYPE
TYPE_VARIABLE = "BENCHMARK_TYPE"
ANY_TYPE = "any"
#: has Python 3.11, NumPy and PyTorch with CUDA; the same image measures CPU and GPU
IMAGE = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
#: libraries that the image lacks, so that each device is measured with its fastest code
EXTRA_PACKAGES = {
    CPU: ("scipy", "opencv-python-headless", "numba", "pillow"),
    # Pictures are decoded by OpenCV on the CPU for one of the GPU's candidates.
    GPU: ("cupy-cuda12x[ctk]", "scipy", "opencv-python-headless", "pillow"),
}
#: packages of the system that the image lacks: torch.compile needs a compiler
EXTRA_SYSTEM_PACKAGES = ("g++",)
#: environment variable of a step: packages that a job installs before it measures
INSTALL_VARIABLE = "BENCHMARK_INSTALL"
SYSTEM_INSTALL_VARIABLE = "BENCHMARK_APT_INSTALL"

_TIMEOUT_S = 7200
#: fraction of the expected memory of a host that a job requests; with more it might never start
_MEMORY_FRACTION = 0.97
_GPU_FAMILY = re.compile(r"(g|gr|p)\d")
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Shape:
    """The vCPUs and memory that a job requests."""

    cpus: int
    memory_mib: int


#: shapes if the instance type is unknown: those of the smallest usual types
SMALL = {CPU: Shape(4, 7168), GPU: Shape(4, 14336)}
#: shapes for the emulator, which may run on a small machine: with --quick, and without
TINY, MODEST = Shape(1, 1024), Shape(1, 3072)


# -- types --


def whole_machine_shape(instance_type: str) -> Shape | None:
    """Return what a job requests to have a machine for itself; None if the type is not listed."""
    listed = TYPES.get(instance_type)
    if listed is None:
        return None
    offered_mib = registered_mib(listed.memory_mib, instance_type)
    return Shape(listed.vcpus, int(offered_mib * _MEMORY_FRACTION))


def requested_shape(
    kind: str, instance_type: str, request: JobRequest, *, is_emulated: bool
) -> Shape:
    """Return the shape of the job of this kind. ``instance_type`` may be empty.

    The request's memory makes a job smaller, never larger. A job on an unlisted type always
    requests the same shape; `--memory` then limits only what the benchmark uses.
    """
    if is_emulated:
        is_quick = isinstance(request, Request) and request.quick
        shape: Shape | None = TINY if is_quick else MODEST
    else:
        shape = whole_machine_shape(instance_type)
    if shape is None:
        return SMALL[kind]
    return replace(shape, memory_mib=min(request.memory_mib or shape.memory_mib, shape.memory_mib))


def only_type(instance_types: Iterable[str]) -> str | None:
    """Return the instance type if there is exactly one, else None."""
    types = set(instance_types)
    return types.pop() if len(types) == 1 and _TYPE.fullmatch(next(iter(types))) else None


def type_problem(kind: str, instance_type: str, queue_types: Iterable[str], queue: str) -> str:
    """Return why a queue with these types cannot run the job; empty if it can.

    ``instance_type``: the requested type, or empty. AWS Batch chooses among the types of a queue's
    compute environments; a job cannot request one.
    """
    listed = sorted(set(queue_types)) or ["default_x86_64"]
    offer = f"queue {queue} has {', '.join(listed)}"
    if not instance_type:
        if kind == GPU and not any(_GPU_FAMILY.match(name) for name in listed):
            return f"{offer}: none with a GPU, so the job would wait for ever"
        return ""
    if not _TYPE.fullmatch(instance_type):
        return f"{instance_type!r} is no instance type"
    if not _offers(listed, instance_type):
        return f"{offer}, and no {instance_type}"
    if kind == GPU and not _GPU_FAMILY.match(instance_type):
        return f"{instance_type} has no GPU"
    return ""


def _offers(queue_types: Sequence[str], instance_type: str) -> bool:
    """Whether the type, its family or a group of families is among the types of a queue."""
    family = instance_type.partition(".")[0]
    if instance_type in queue_types or family in queue_types:
        return True
    has_group = any(name in WORDS for name in queue_types)
    return has_group and not _GPU_FAMILY.match(family)


def add_instance_type(
    results: Results, requested_type: str, *, is_emulated: bool
) -> tuple[Results, str]:
    """Return the results with their instance type, and a note about it, which may be empty.

    The type that the job ran on counts; the requested type only if the job could not find out. The
    types of the emulator are invented.
    """
    if requested_type in ("", ANY_TYPE, results.instance_type):
        return results, ""
    requested = f"{results.kind}: {requested_type} was requested"
    if is_emulated or results.stands_for:
        return results, f"{requested}, but is not what was measured, so there is no price"
    if results.instance_type is None:
        return (
            replace(results, instance_type=requested_type),
            f"{requested}; the job could not find out its instance type",
        )
    return results, f"{requested}, but the job ran on {results.instance_type}, which counts"


# -- pipeline --


def make_pipeline(
    request: JobRequest,
    image: str,
    shapes: Mapping[str, Shape],
    types: Mapping[str, str],
    *,
    gpu_queue: str | None = None,
    installs_extras: bool = False,
) -> Pipeline:
    """Return the pipeline with one step per kind of device.

    ``gpu_queue``: the queue of a stand-in, which runs there without requesting a GPU;
    ``installs_extras``: jobs install the libraries that the default image lacks.
    """
    steps = []
    user_env = request.env if isinstance(request, CommandRequest) else {}
    for kind in STEPS:
        # `exec`, because a shell as the first process of a container would not forward SIGTERM.
        python = ["exec", "python3", "-c", bootstrap_source(), kind]
        command = [*python, *arguments(replace(request, device=kind))]
        steps.append(
            Step(
                name=kind,
                command=shlex.join(command),
                cpus=shapes[kind].cpus,
                memory_mib=shapes[kind].memory_mib,
                gpus=1 if kind == GPU and gpu_queue is None else 0,
                queue=gpu_queue if kind == GPU else None,
                timeout_s=_TIMEOUT_S,
                image=image,
                env={
                    **user_env,
                    **(_install_env(kind) if installs_extras else {}),
                    TYPE_VARIABLE: types.get(kind) or ANY_TYPE,
                },
            )
        )
    return Pipeline(PIPELINE, tuple(steps))


def _install_env(kind: str) -> dict[str, str]:
    return {
        INSTALL_VARIABLE: " ".join(EXTRA_PACKAGES[kind]),
        SYSTEM_INSTALL_VARIABLE: " ".join(EXTRA_SYSTEM_PACKAGES),
    }


def is_stand_in_command(command: str | None) -> bool:
    """Whether a step's command was made for the emulator, where a CPU may stand in for a GPU."""
    return STAND_IN in shlex.split(command or "")


def arguments(request: JobRequest) -> list[str]:
    """Return the arguments of `bench` in a job, where the user's files lie beside the code."""
    if isinstance(request, CommandRequest):
        return ["command", *_command_arguments(request)]
    return ["run", *_run_arguments(request)]


def _command_arguments(request: CommandRequest) -> list[str]:
    words = ["--device", request.device, "--runs", str(request.runs)]
    if request.sizes:
        words += ["--sizes", ",".join(map(str, request.sizes))]
    if request.files:
        words += ["--folder", USER_FOLDER]
    words += [STAND_IN] if request.stand_in else []
    return [*words, "--", *request.words]


def _run_arguments(request: Request) -> list[str]:
    words = ["--device", request.device, "--seed", str(request.seed)]
    words += [word for name in request.only for word in ("--only", name)]
    if request.sizes:
        words += ["--sizes", ",".join(map(str, request.sizes))]
    words += [
        word for path in request.files for word in ("--workload", f"{USER_FOLDER}/{path.name}")
    ]
    if request.images is not None:
        words += ["--images", PICTURES]
    if request.memory_mib is not None:
        words += ["--memory", f"{request.memory_mib}MiB"]
    if request.threads is not None:
        words += ["--threads", str(request.threads)]
    flags = {
        "--quick": request.quick,
        "--all-candidates": request.all_candidates,
        "--plain-malloc": request.plain_malloc,
        STAND_IN: request.stand_in,
    }
    return words + [flag for flag, is_set in flags.items() if is_set]


def bootstrap_source() -> str:
    """Return the source of ``bootstrap`` without docstrings and comments.

    A job's command is limited to 8192 characters.
    """
    source = resources.files("batchyard.bench").joinpath("bootstrap.py").read_text("utf-8")
    return ast.unparse(_without_docstrings(ast.parse(source)))


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree
