"""Compile a function with torch.compile, which needs a compiler."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from batchyard.bench.workload import GPU, Function


def compile_function(kit: Any, function: Function) -> Function:
    """Return the compiled function. Raises ImportError if the compiler is not installed."""
    require_compiler(kit.kind, os.environ)
    # Otherwise a pool of processes compiles, and is still there while others are measured.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # Code for another size is forgotten: only eight versions of a function are kept.
    kit.lib.compiler.reset()
    compiled: Function = kit.lib.compile(function, dynamic=False)
    return compiled


def require_compiler(
    kind: str,
    environ: Mapping[str, str],
    find: Callable[[str], str | None] = shutil.which,
    load: Callable[[str], Any] = importlib.import_module,
) -> None:
    """Raise ImportError, with the name of what is missing, if torch.compile cannot work."""
    variable, names = "CXX", ["g++", "clang++"]
    if kind == GPU:
        load("triton")
        variable, names = "CC", ["gcc", "cc", "clang"]
    candidates = [environ[variable]] if environ.get(variable) else names
    if not any(map(find, candidates)):
        missing = f"a compiler ({' or '.join(candidates)})"
        raise ImportError(f"torch.compile needs {missing}", name=missing)
