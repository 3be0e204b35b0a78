"""Which workloads there are: ours, and a user's own from a file. Executes the file that it is given."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

from batchyard.bench.workload import Workload
from batchyard.errors import BadInput

#: modules in workloads/, in the order of the tables
_OURS = ("matmul", "convolution", "blur", "images", "fft", "triad", "copies", "backprojection")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def ours(images: Path | None = None) -> list[Workload]:
    found: list[Workload] = []
    for name in _OURS:
        module = importlib.import_module(f"batchyard.bench.workloads.{name}")
        found += [module.workload(images)] if name == "images" else _in_module(module)
    return found


def from_file(path: Path) -> list[Workload]:
    """A file of a user's own, with one WORKLOAD or several WORKLOADS."""
    spec = importlib.util.spec_from_file_location(f"batchyard_workload_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path}: not a Python file", hint="its name ends in .py")
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file", hint="give the file of a workload")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as exc:
        raise BadInput(f"{exc.filename}:{exc.lineno}: {exc.msg}", hint="the file must be Python") from None
    except Exception as exc:
        raise BadInput(f"{path}: it fails when it is imported: {type(exc).__name__}: {exc}") from exc
    found = _in_module(module)
    if not found:
        raise BadInput(
            f"{path}: it defines no workload", hint="end it with `WORKLOAD = Workload(...)`; see docs/benchmark.md"
        )
    for one in found:
        _refuse_mistakes(one, path)
    return found


def _in_module(module: ModuleType) -> list[Workload]:
    several = getattr(module, "WORKLOADS", ())
    one = getattr(module, "WORKLOAD", None)
    return [w for w in (*several, one) if isinstance(w, Workload)]


def _refuse_mistakes(workload: Workload, path: Path) -> None:
    from batchyard.bench.discovery import LIBRARIES

    if not _NAME.fullmatch(workload.name):
        raise BadInput(f"{path}: {workload.name!r} is no name", hint="use a-z, 0-9 and hyphens, at most 40")
    if not workload.sizes or not workload.candidates:
        raise BadInput(f"{path}: {workload.name} has no sizes, or no candidates", hint="it needs at least one of each")
    for candidate in workload.candidates:
        if candidate.kit not in LIBRARIES:
            raise BadInput(
                f"{path}: {workload.name}: no such library {candidate.kit!r}", hint=f"use one of {', '.join(LIBRARIES)}"
            )


def select(workloads: Sequence[Workload], only: Iterable[str]) -> list[Workload]:
    """Those whose names are given, or match a pattern like `convolution*`; all of them where none is."""
    wanted = list(only)
    names = [one.name for one in workloads]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BadInput(f"two workloads are called {sorted(twice)[0]}", hint="give yours another name")
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise BadInput(f"--only {pattern}: no such workload", hint=hint)
    return [one for one in workloads if not wanted or any(fnmatchcase(one.name, pattern) for pattern in wanted)]
