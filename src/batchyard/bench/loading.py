"""Find workloads: the built-in ones, and those in a user's file, which is executed."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

from batchyard.bench import workload_values
from batchyard.bench.discovery import LIBRARIES
from batchyard.bench.workload import KINDS, MAX_SIZE, Candidate, Workload
from batchyard.errors import InputError

#: modules in workloads/, in the order of the tables
_BUILTIN = ("matmul", "convolution", "blur", "images", "fft", "triad", "copies", "backprojection")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def load_builtin(images: Path | None = None) -> list[Workload]:
    """Return the built-in workloads. ``images``: a folder of pictures for `images`."""
    workloads: list[Workload] = []
    for name in _BUILTIN:
        module = importlib.import_module(f"batchyard.bench.workloads.{name}")
        workloads += [module.workload(images)] if name == "images" else _workloads_in(module)
    return workloads


def load_file(path: Path) -> list[Workload]:
    """Execute a user's file and return its WORKLOAD or WORKLOADS. Raises InputError."""
    module = _execute(path)
    try:
        workloads = [_checked_workload(workload) for workload in _workloads_in(module)]
    except InputError as exc:
        raise InputError(f"{path}: {exc.message}", hint=exc.hint) from None
    if not workloads:
        raise InputError(
            f"{path}: it defines no workload",
            hint="end it with `WORKLOAD = Workload(...)`; see docs/benchmark.md",
        )
    return workloads


def _execute(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"batchyard_workload_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file", hint="its name ends in .py")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file", hint="give the file of a workload")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as exc:
        # The error of a file that is not text has no line number.
        place = path if exc.lineno is None else f"{exc.filename}:{exc.lineno}"
        raise InputError(f"{place}: {exc.msg}", hint="the file must be Python") from None
    except workload_values.WORKLOAD_ERRORS as exc:
        problem = workload_values.describe_error(exc)
        raise InputError(f"{path}: it fails when it is imported: {problem}") from exc
    return module


def _workloads_in(module: ModuleType) -> list[Workload]:
    single = getattr(module, "WORKLOAD", None)
    several = _members("WORKLOADS", getattr(module, "WORKLOADS", ()), Workload)
    return [*several, *_members("WORKLOAD", () if single is None else (single,), Workload)]


def _members(name: str, values: Any, kind: type[Any]) -> tuple[Any, ...]:
    """Return a list, a NumPy array or a tuple as a tuple of ``kind``. Raises InputError."""
    try:
        members = None if isinstance(values, str) else tuple(values)
    except TypeError:
        members = None
    if members is None:
        values_text = workload_values.safe_line(repr(values), 40)
        raise InputError(f"{name} is {values_text}, and must be a tuple")
    for member in members:
        if not isinstance(member, kind):
            member_text = workload_values.safe_line(repr(member), 40)
            raise InputError(f"{name}: {member_text} is no {kind.__name__}")
    return members


def _checked_workload(workload: Workload) -> Workload:
    """Return the workload with plain Python numbers and tuples. Raises InputError.

    Values that its functions return are checked in ``workload_values``, when they are called.
    """
    name = workload.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name", hint="use a-z, 0-9 and hyphens, at most 40")
    candidates = _members(f"{name}: candidates", workload.candidates, Candidate)
    sizes = _checked_sizes(name, "sizes", workload.sizes)
    quick_sizes = _checked_sizes(name, "quick_sizes", workload.quick_sizes)
    if not sizes or not candidates:
        raise InputError(
            f"{name} has no sizes, or no candidates", hint="it needs at least one of each"
        )
    for candidate in candidates:
        if candidate.kit not in LIBRARIES:
            raise InputError(
                f"{name}: no such library {candidate.kit!r}",
                hint=f"use one of {', '.join(LIBRARIES)}",
            )
    kinds = _members(f"{name}: kinds", workload.kinds, str)
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(
                f"{name}: no such kind of device {kind!r}", hint=f"use {' or '.join(KINDS)}"
            )
    return replace(
        workload,
        title=workload_values.safe_line(workload.title),
        sizes=sizes,
        quick_sizes=quick_sizes,
        candidates=candidates,
        kinds=kinds,
        tolerance=_checked_tolerance(workload),
    )


def _checked_sizes(name: str, field: str, values: Any) -> tuple[int, ...]:
    sizes = []
    for value in _members(f"{name}: {field}", values, object):
        try:
            size = operator.index(value)
        except TypeError:
            size = 0
        if not 0 < size <= MAX_SIZE:
            value_text = workload_values.safe_line(repr(value), 40)
            raise InputError(
                f"{name}: {field}: {value_text} is no size",
                hint=f"write whole numbers from 1 to {MAX_SIZE}",
            )
        sizes.append(size)
    return tuple(sizes)


def _checked_tolerance(workload: Workload) -> float:
    try:
        return workload_values.checked_number(f"{workload.name}: tolerance", workload.tolerance)
    except (TypeError, ValueError, OverflowError) as exc:
        problem = workload_values.describe_error(exc)
        raise InputError(f"{workload.name}: tolerance: {problem}") from None


def select(workloads: Sequence[Workload], only: Iterable[str]) -> list[Workload]:
    """Return the workloads that match a name or pattern like `convolution*`; all if none is given.

    Raises InputError if a pattern matches nothing, or if two workloads have the same name.
    """
    patterns = list(only)
    names = [workload.name for workload in workloads]
    repeated = sorted(name for name in names if names.count(name) > 1)
    if repeated:
        raise InputError(f"two workloads are called {repeated[0]}", hint="give yours another name")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise InputError(f"--only {pattern}: no such workload", hint=hint)
    if not patterns:
        return list(workloads)
    return [workload for workload in workloads if _matches(workload.name, patterns)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
