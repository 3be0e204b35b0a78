"""Check and pack what the jobs of a benchmark need: batchyard's code and the user's files."""

from __future__ import annotations

import ast
import importlib.util
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from batchyard.bench.command_request import CommandRequest, require_command
from batchyard.bench.request import Request
from batchyard.bench.workload import KINDS
from batchyard.errors import InputError, from_os_error

#: what the jobs measure: workloads, or a command of the user
JobRequest: TypeAlias = Request | CommandRequest

#: packages that are sent with the benchmark, since its command line needs them
_LIBRARIES = ("click",)
#: rooms of batchyard that the benchmark does not need
_NOT_PACKED = ("emulator", "infra", "doctor", "engines", "worker", "aws")
#: folders of the user's files in the archive
USER_FOLDER = "own"
PICTURES = "pictures"


def require_request(request: JobRequest) -> None:
    """Raise InputError if a file to send is missing, or if there is nothing that jobs can measure.

    Workloads of the user are parsed, but not executed.
    """
    if isinstance(request, CommandRequest):
        require_command(request)
        _require_names(request.files)
        for path in request.files:
            if not path.exists():
                raise InputError(
                    f"--file {path}: there is no such file or folder",
                    hint="name what the command needs in its folder",
                )
        return
    require_files(request)
    require_workloads(request)


def _require_names(paths: Sequence[Path]) -> None:
    names = [path.name for path in paths]
    for path in paths:
        if names.count(path.name) > 1:
            raise InputError(
                f"two files are called {path.name}", hint="give one of them another name"
            )


def require_files(request: Request) -> None:
    """Raise InputError if a file to send is missing, or if a workload is not Python.

    Files are parsed, but not executed.
    """
    _require_names(request.files)
    for path in request.files:
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
        kind.upper() for kind in KINDS if not any(kind in workload.kinds for workload in selected)
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


def pack(path: Path, request: JobRequest) -> None:
    """Write batchyard's code, the packages it needs, and the user's files to one zip archive."""
    entries = {
        name: file for package in ("batchyard", *_LIBRARIES) for name, file in _package(package)
    }
    try:
        for user_path in request.files:
            entries |= {f"{USER_FOLDER}/{name}": file for name, file in _user_files(user_path)}
        if isinstance(request, Request) and request.images is not None:
            pictures = sorted(file for file in request.images.iterdir() if file.is_file())
            entries |= {f"{PICTURES}/{file.name}": file for file in pictures}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in entries.items():
                # Not archive.write(): a zip cannot store the date of a file from before 1980.
                archive.writestr(name, _read(file))
    except OSError as exc:
        raise from_os_error(exc, "pack the benchmark into", path) from exc


def _user_files(path: Path) -> Iterable[tuple[str, Path]]:
    """Yield a file of the user, or all files of a folder, with their names in the job."""
    if not path.is_dir():
        yield path.name, path
        return
    root = path.resolve()
    for file in sorted(root.rglob("*")):
        if file.is_file():
            yield str(PurePosixPath(root.name, *file.relative_to(root).parts)), file


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
