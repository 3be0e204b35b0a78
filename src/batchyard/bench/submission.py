"""Turn a benchmark request into a pipeline of two steps, and pack the code that its jobs run.

The image needs no batchyard: a job unpacks the code that is sent with it (``bootstrap``), and runs
`batchyard bench run`.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path, PurePosixPath

from batchyard.batch.hosts import registered_mib
from batchyard.bench.request import Request
from batchyard.bench.results import Results
from batchyard.bench.workload import CPU, GPU
from batchyard.ec2_types import TYPES, WORDS
from batchyard.errors import InputError, from_os_error
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
#: CPU libraries that the image lacks, so that the CPU is measured with its fastest code
EXTRA_PACKAGES = ("scipy", "opencv-python-headless", "numba", "pillow")
#: environment variable of a step: packages that a job installs before it measures
INSTALL_VARIABLE = "BENCHMARK_INSTALL"

_TIMEOUT_S = 7200
#: fraction of the expected memory of a host that a job requests; with more it might never start
_MEMORY_FRACTION = 0.97
#: packages that are sent with the benchmark, since its command line needs them
_LIBRARIES = ("click",)
#: rooms of batchyard that the benchmark does not need
_NOT_PACKED = ("emulator", "infra", "doctor", "engines", "worker", "aws")
_USER_FOLDER = "own"
_PICTURES = "pictures"
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


def requested_shape(kind: str, instance_type: str, request: Request, *, is_emulated: bool) -> Shape:
    """Return the shape of the job of this kind. ``instance_type`` may be empty.

    The request's memory makes a job smaller, never larger. A job on an unlisted type always
    requests the same shape; `--memory` then limits only what the benchmark uses.
    """
    if is_emulated:
        shape: Shape | None = TINY if request.quick else MODEST
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
    request: Request,
    image: str,
    shapes: Mapping[str, Shape],
    types: Mapping[str, str],
    *,
    gpu_queue: str | None = None,
    install: Iterable[str] = (),
) -> Pipeline:
    """Return the pipeline with one step per kind of device.

    ``gpu_queue``: the queue of a stand-in, which runs there without requesting a GPU.
    """
    steps = []
    install_env = {INSTALL_VARIABLE: " ".join(install)} if install else {}
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
                env={TYPE_VARIABLE: types.get(kind) or ANY_TYPE, **install_env},
            )
        )
    return Pipeline(PIPELINE, tuple(steps))


def is_stand_in_command(command: str | None) -> bool:
    """Whether a step's command was made for the emulator, where a CPU may stand in for a GPU."""
    return STAND_IN in shlex.split(command or "")


def arguments(request: Request) -> list[str]:
    """Return the arguments of `bench run` in a job, where the user's files lie beside the code."""
    words = ["--device", request.device, "--seed", str(request.seed)]
    words += [word for name in request.only for word in ("--only", name)]
    if request.sizes:
        words += ["--sizes", ",".join(map(str, request.sizes))]
    words += [
        word for path in request.files for word in ("--workload", f"{_USER_FOLDER}/{path.name}")
    ]
    if request.images is not None:
        words += ["--images", _PICTURES]
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


# -- code --


def require_files(request: Request) -> None:
    """Raise InputError if a file to send is missing, or if a workload is not Python.

    Files are parsed, but not executed.
    """
    names = [path.name for path in request.files]
    for path in request.files:
        if names.count(path.name) > 1:
            raise InputError(
                f"two workloads are in files called {path.name}",
                hint="give one of them another name",
            )
        _require_python(path)
    if request.images is not None and not request.images.is_dir():
        raise InputError(
            f"--images {request.images}: there is no such folder", hint="give a folder of pictures"
        )


def require_workloads(request: Request) -> None:
    """Raise InputError if no workload matches, or none of them runs on one of the two devices.

    Does nothing without NumPy, or with files of the user, which are not executed here.
    """
    if request.files or not request.only:
        return
    try:
        from batchyard.bench import loading

        builtin = loading.load_builtin()
    except ImportError:
        return
    selected = loading.select(builtin, request.only)
    unused_kinds = [
        kind.upper() for kind in STEPS if not any(kind in workload.kinds for workload in selected)
    ]
    if unused_kinds:
        raise InputError(
            f"none of the selected workloads runs on a {' or '.join(unused_kinds)},"
            " so there is nothing to compare",
            hint="choose others with --only",
        )


def _require_python(path: Path) -> None:
    if path.suffix != ".py" or not path.is_file():
        raise InputError(
            f"{path}: there is no such Python file", hint="give the file of a workload"
        )
    try:
        ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as exc:
        line = f":{exc.lineno}" if isinstance(exc, SyntaxError) else ""
        raise InputError(f"{path}{line}: {exc}", hint="the file must be Python") from None
    except OSError as exc:
        raise from_os_error(exc, "read", path) from exc


def pack(path: Path, request: Request) -> None:
    """Write batchyard's code, the packages it needs, and the user's files to one zip archive."""
    entries = {
        name: file for package in ("batchyard", *_LIBRARIES) for name, file in _package(package)
    }
    entries |= {f"{_USER_FOLDER}/{file.name}": file for file in request.files}
    try:
        if request.images is not None:
            pictures = sorted(file for file in request.images.iterdir() if file.is_file())
            entries |= {f"{_PICTURES}/{file.name}": file for file in pictures}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in entries.items():
                # Not archive.write(): a zip cannot store the date of a file from before 1980.
                archive.writestr(name, _read(file))
    except OSError as exc:
        raise from_os_error(exc, "pack the benchmark into", path) from exc


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as exc:
        raise from_os_error(exc, "read", file) from exc


def _package(name: str) -> Iterable[tuple[str, Path]]:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    for file in sorted(root.rglob("*")):
        relative = PurePosixPath(*file.relative_to(root).parts)
        is_packed = name != "batchyard" or relative.parts[0] not in _NOT_PACKED
        if file.is_file() and "__pycache__" not in relative.parts and is_packed:
            yield f"{name}/{relative}", file
