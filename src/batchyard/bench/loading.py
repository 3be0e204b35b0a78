"""Which workloads there are: ours, and a user's own from a file. Executes the file that it is given."""

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

from batchyard.bench import asking
from batchyard.bench.workload import KINDS, MAX_SIZE, Candidate, Workload
from batchyard.errors import InputError

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
        raise InputError(f"{path}: not a Python file", hint="its name ends in .py")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file", hint="give the file of a workload")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as exc:
        # What is not even text has no line.
        where = path if exc.lineno is None else f"{exc.filename}:{exc.lineno}"
        raise InputError(f"{where}: {exc.msg}", hint="the file must be Python") from None
    except asking.TROUBLE as exc:
        raise InputError(f"{path}: it fails when it is imported: {asking.described(exc)}") from exc
    try:
        found = [_without_mistakes(one) for one in _in_module(module)]
    except InputError as exc:
        raise InputError(f"{path}: {exc.message}", hint=exc.hint) from None
    if not found:
        raise InputError(
            f"{path}: it defines no workload",
            hint="end it with `WORKLOAD = Workload(...)`; see docs/benchmark.md",
        )
    return found


def _in_module(module: ModuleType) -> list[Workload]:
    one = getattr(module, "WORKLOAD", None)
    several = _members("WORKLOADS", getattr(module, "WORKLOADS", ()), Workload)
    return [*several, *_members("WORKLOAD", () if one is None else (one,), Workload)]


def _members(name: str, values: Any, kind: type[Any]) -> tuple[Any, ...]:
    """As a tuple, whatever it was: a list or an array of NumPy's does as well."""
    try:
        members = None if isinstance(values, str) else tuple(values)
    except TypeError:
        members = None
    if members is None:
        raise InputError(f"{name} is {asking.words(repr(values), 40)}, and must be a tuple")
    for one in members:
        if not isinstance(one, kind):
            raise InputError(f"{name}: {asking.words(repr(one), 40)} is no {kind.__name__}")
    return members


def _without_mistakes(workload: Workload) -> Workload:
    """The same with numbers of Python's own. What it computes when it is asked is looked at when it is asked."""
    from batchyard.bench.discovery import LIBRARIES

    name = workload.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name", hint="use a-z, 0-9 and hyphens, at most 40")
    candidates = _members(f"{name}: candidates", workload.candidates, Candidate)
    sizes, quick_sizes = (
        _sizes(name, "sizes", workload.sizes),
        _sizes(name, "quick_sizes", workload.quick_sizes),
    )
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
        title=asking.words(workload.title),
        sizes=sizes,
        quick_sizes=quick_sizes,
        candidates=candidates,
        kinds=kinds,
        tolerance=_tolerance(workload),
    )


def _sizes(name: str, field: str, values: Any) -> tuple[int, ...]:
    sizes = []
    for value in _members(f"{name}: {field}", values, object):
        try:
            sizes.append(operator.index(value))
        except TypeError:
            sizes.append(0)
        if not 0 < sizes[-1] <= MAX_SIZE:
            hint = f"write whole numbers from 1 to {MAX_SIZE}"
            raise InputError(
                f"{name}: {field}: {asking.words(repr(value), 40)} is no size", hint=hint
            )
    return tuple(sizes)


def _tolerance(workload: Workload) -> float:
    try:
        return asking.number(f"{workload.name}: tolerance", workload.tolerance)
    except (TypeError, ValueError, OverflowError) as exc:
        raise InputError(f"{workload.name}: tolerance: {asking.described(exc)}") from None


def select(workloads: Sequence[Workload], only: Iterable[str]) -> list[Workload]:
    """Those whose names are given, or match a pattern like `convolution*`; all of them where none is."""
    wanted = list(only)
    names = [one.name for one in workloads]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(
            f"two workloads are called {sorted(twice)[0]}", hint="give yours another name"
        )
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise InputError(f"--only {pattern}: no such workload", hint=hint)
    return [
        one
        for one in workloads
        if not wanted or any(fnmatchcase(one.name, pattern) for pattern in wanted)
    ]
