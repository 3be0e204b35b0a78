"""The benchmark as a pipeline of two steps, and the code that goes with it. Pure, but for packing files.

No package of ours need be in the image: the jobs unpack what was sent with them (``bootstrap``), and run the very
`batchyard bench run` that is documented.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path, PurePosixPath

from batchyard.batch.hosts import registered_mib
from batchyard.bench.request import Request
from batchyard.bench.results import Results
from batchyard.bench.workload import CPU, GPU
from batchyard.errors import InputError, from_os_error
from batchyard.pipeline import Pipeline, Step

PIPELINE = "benchmark"
STEPS = (CPU, GPU)
STAND_IN = "--stand-in"
CODE = "code.zip"
RESULTS = "results/"
#: what a step's environment says about the type that was asked for
TYPE_VARIABLE = "BENCHMARK_TYPE"
ANY_TYPE = "any"
#: Python 3.11, NumPy and PyTorch with CUDA; the same on both, so that the software is the same
IMAGE = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
#: and what it lacks, so that the GPU is compared with the best that a CPU can do
IMAGE_LACKS = ("scipy", "opencv-python-headless", "numba", "pillow")
#: what the jobs install before they measure
INSTALL_VARIABLE = "BENCHMARK_INSTALL"

_TIMEOUT_S = 7200
#: of what a host is thought to offer: a job that asks for more than it does offer never starts
_MEMORY_PART = 0.97
#: sent with the benchmark, since the command line needs it
_LIBRARIES = ("click",)
#: what the benchmark does not need of our own
_LEFT_OUT = ("emulator", "infra", "doctor", "engines", "worker", "aws")
_OWN = "own"
_PICTURES = "pictures"
#: words for several families, none of which has a GPU
_MAGIC = ("optimal", "default_x86_64", "default_arm64")
_GPU_FAMILY = re.compile(r"(g|gr|p)\d")
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job asks for."""

    cpus: int
    memory_mib: int


#: where the type is not known: what the smallest usual ones have
SMALL = {CPU: Shape(4, 7168), GPU: Shape(4, 14336)}
#: at an endpoint on this machine, which has no types and may be small: with --quick, and without
TINY, MODEST = Shape(1, 1024), Shape(1, 3072)


# -- types ------------------------------------------------------------------------------------------------------


def shape_of(instance_type: str) -> Shape | None:
    """All of a machine less what the system needs, so that nothing else disturbs it. None: it is not in the list."""
    text = resources.files("batchyard.bench").joinpath("prices.json").read_text(encoding="utf-8")
    known = json.loads(text)["types"].get(instance_type)
    if known is None:
        return None
    offered_mib = registered_mib(int(known["memory_gib"] * 1024), instance_type)
    return Shape(known["vcpus"], int(offered_mib * _MEMORY_PART))


def asked(kind: str, instance_type: str, request: Request, *, is_here: bool) -> Shape:
    """Of a job on this type, which need not be known. ``is_here``: at an endpoint on this machine.

    The request's memory is what is used at most: it makes a job smaller, never larger. Of a machine that is not known
    nothing is taken off: the job is told, and asks for what it would ask for anyway.
    """
    if is_here:
        shape = TINY if request.quick else MODEST
    else:
        known = shape_of(instance_type)
        if known is None:
            return SMALL[kind]
        shape = known
    return replace(shape, memory_mib=min(request.memory_mib or shape.memory_mib, shape.memory_mib))


def only_type(instance_types: Iterable[str]) -> str | None:
    """Of a queue whose machines are all of one type."""
    found = set(instance_types)
    return found.pop() if len(found) == 1 and _TYPE.fullmatch(next(iter(found))) else None


def type_problem(kind: str, wanted: str, instance_types: Iterable[str], queue: str) -> str:
    """Why a queue with these types cannot serve; empty where it can. A type is a choice of the queue's compute
    environments: no job can ask for one."""
    listed = sorted(set(instance_types)) or ["default_x86_64"]
    said = f"queue {queue} has {', '.join(listed)}"
    if wanted:
        if not _TYPE.fullmatch(wanted):
            return f"{wanted!r} is no instance type"
        family = wanted.partition(".")[0]
        by_magic = any(one in _MAGIC for one in listed) and not _GPU_FAMILY.match(family)
        if not ({wanted, family} & set(listed) or by_magic):
            return f"{said}, and no {wanted}"
        if kind == GPU and not _GPU_FAMILY.match(family):
            return f"{wanted} has no GPU"
    elif kind == GPU and not any(_GPU_FAMILY.match(one) for one in listed):
        return f"{said}: none with a GPU, so the job would wait for ever"
    return ""


def with_type(results: Results, wanted: str, *, is_here: bool) -> tuple[Results, str]:
    """With the type that counts, what it ran on, else what was asked for; and what there is to say about it.

    ``is_here``: at an endpoint on this machine, whose types are made up.
    """
    if wanted in ("", ANY_TYPE, results.instance_type):
        return results, ""
    if is_here or results.stands_for:
        return (
            results,
            f"{results.kind}: {wanted} was asked for, and is not what was measured: it has no price here",
        )
    if results.instance_type is None:
        return replace(
            results, instance_type=wanted
        ), f"{results.kind}: {wanted} as asked for: the job could not tell"
    return (
        results,
        f"{results.kind}: {wanted} was asked for, and it ran on {results.instance_type}, which counts",
    )


# -- pipeline ---------------------------------------------------------------------------------------------------


def pipeline(
    request: Request,
    image: str,
    shapes: Mapping[str, Shape],
    types: Mapping[str, str],
    *,
    gpu_queue: str | None = None,
    install: Iterable[str] = (),
) -> Pipeline:
    """``gpu_queue``: with a stand-in, which asks for no GPU, but goes to that queue all the same."""
    steps = []
    installed = {INSTALL_VARIABLE: " ".join(install)} if install else {}
    for kind in STEPS:
        # A shell that is a container's first process would not pass SIGTERM on.
        command = [
            "exec",
            "python3",
            "-c",
            source(),
            kind,
            *arguments(replace(request, device=kind)),
        ]
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
                env={TYPE_VARIABLE: types.get(kind) or ANY_TYPE, **installed},
            )
        )
    return Pipeline(PIPELINE, tuple(steps))


def is_pretended(command: str | None) -> bool:
    """Of a step's command: whether it ran at an endpoint on this machine."""
    return STAND_IN in shlex.split(command or "")


def arguments(request: Request) -> list[str]:
    """Of `bench run` in the job, where a user's own files lie beside the code."""
    words = ["--device", request.device, "--seed", str(request.seed)]
    words += [word for name in request.only for word in ("--only", name)]
    if request.sizes:
        words += ["--sizes", ",".join(map(str, request.sizes))]
    words += [word for path in request.files for word in ("--workload", f"{_OWN}/{path.name}")]
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


def source() -> str:
    """The text of ``bootstrap``, without what only readers need: a job's command may have 8192 characters."""
    return ast.unparse(
        _bare(
            ast.parse(
                resources.files("batchyard.bench").joinpath("bootstrap.py").read_text("utf-8")
            )
        )
    )


def _bare(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree


# -- code -------------------------------------------------------------------------------------------------------


def refuse_missing(request: Request) -> None:
    """What is to be sent must be there, and a workload must be Python; it is not executed here."""
    names = [path.name for path in request.files]
    for path in request.files:
        if path.suffix != ".py" or not path.is_file():
            raise InputError(
                f"{path}: there is no such Python file", hint="give the file of a workload"
            )
        if names.count(path.name) > 1:
            raise InputError(
                f"two workloads are in files called {path.name}",
                hint="give one of them another name",
            )
        try:
            ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError) as exc:
            where = f":{exc.lineno}" if isinstance(exc, SyntaxError) else ""
            raise InputError(f"{path}{where}: {exc}", hint="the file must be Python") from None
        except OSError as exc:
            raise from_os_error(exc, "read", path) from exc
    if request.images is not None and not request.images.is_dir():
        raise InputError(
            f"--images {request.images}: there is no such folder", hint="give a folder of pictures"
        )


def pack(path: Path, request: Request) -> None:
    """Our code, what it needs, and the user's own files, in one archive."""
    entries = {
        name: file for package in ("batchyard", *_LIBRARIES) for name, file in _package(package)
    }
    entries |= {f"{_OWN}/{file.name}": file for file in request.files}
    try:
        if request.images is not None:
            pictures = sorted(one for one in request.images.iterdir() if one.is_file())
            entries |= {f"{_PICTURES}/{one.name}": one for one in pictures}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in entries.items():
                # Dates before 1980 are none for a zip.
                archive.writestr(name, _content(file))
    except OSError as exc:
        raise from_os_error(exc, "pack the benchmark into", path) from exc


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as exc:
        raise from_os_error(exc, "read", file) from exc


def _package(name: str) -> Iterable[tuple[str, Path]]:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    for file in sorted(root.rglob("*")):
        inside = PurePosixPath(*file.relative_to(root).parts)
        is_left_out = name == "batchyard" and inside.parts[0] in _LEFT_OUT
        if file.is_file() and "__pycache__" not in inside.parts and not is_left_out:
            yield f"{name}/{inside}", file
