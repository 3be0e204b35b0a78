"""Compiles short_runs.c when batchyard is built or installed, if there is a C compiler.

Without one, or with BATCHYARD_PURE set, the package has no compiled code and batchyard does the
same in Python, a little slower: src/batchyard/embedded/short_runs.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import packaging.tags
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE = Path("src/batchyard/embedded/short_runs.c")
_NAME_IN_WHEEL = "batchyard/embedded/libshort_runs.so"


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / _SOURCE
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name) / "libshort_runs.so"
        is_compiled = _compile(source, library)
        if version == "editable":
            _replace(source.with_name(library.name), library if is_compiled else None)
        elif is_compiled:
            build_data["force_include"][str(library)] = _NAME_IN_WHEEL
            build_data["pure_python"] = False
            # No part of Python is in it, so that it works with every version.
            platforms = (tag.platform for tag in packaging.tags.sys_tags())
            platform = next(name for name in platforms if name.startswith("linux_"))
            build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()


def _compile(source: Path, library: Path) -> bool:
    """Return whether the library was made."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if os.environ.get("BATCHYARD_PURE"):
        return False
    command = [*compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source)]
    try:
        return subprocess.run(command).returncode == 0
    except OSError:  # there is no such program
        return False


def _replace(old: Path, new: Path | None) -> None:
    """Put a new library, or none, in the place of one that may be in use."""
    try:
        if new is None:
            old.unlink(missing_ok=True)
        else:
            part = old.with_suffix(f".{os.getpid()}.part")
            shutil.copy(new, part)
            part.replace(old)
    except OSError as exc:
        print(f"without compiled code: {exc}", file=sys.stderr)
