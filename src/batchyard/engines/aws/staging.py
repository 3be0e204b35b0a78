"""Files that a run needs in S3 before its jobs start, and files that its steps have written there.

Before: lists of commands, orders for the worker, input files. After: output files.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchyard import s3_layout
from batchyard.aws.s3 import S3, S3Object
from batchyard.engines.aws import definitions, submit_requests
from batchyard.engines.aws.target import Target
from batchyard.errors import InputError
from batchyard.folder import HOME_NAME
from batchyard.plan import Plan, PlannedJob, to_ranges
from batchyard.worker.globs import globs


def upload_orders(
    s3: S3, plan: Plan, target: Target, commands_done: Mapping[str, Sequence[int]]
) -> None:
    """Upload the lists of commands and the orders of all steps that run with the worker.

    ``commands_done``: step -> commands that an earlier run has finished. The orders of a step are
    uploaded last: where they exist, the step is complete and is not uploaded again.
    """
    uploaded = s3.list(s3_layout.all_orders_address(target.address))
    complete = {s3_layout.step_of_orders(orders.key) for orders in uploaded}
    for job in plan.jobs:
        if not definitions.needs_worker(job) or job.step in complete:
            continue
        if job.has_list:
            text, index = encode_list(plan.lists[job.step])
            list_address = s3_layout.list_address(target.address, job.step)
            s3.put(list_address, text, "text/plain; charset=utf-8")
            s3.put(s3_layout.list_index_address(target.address, job.step), index)
        skipped = to_ranges(sorted(commands_done.get(job.step, ())))
        orders = {**submit_requests.make_orders(job, target), "skip": skipped}
        s3.put(
            s3_layout.orders_address(target.address, job.step),
            json.dumps(orders).encode(),
            "application/json",
        )


def encode_list(commands: Sequence[str]) -> tuple[bytes, bytes]:
    """Return the list as text, and its index.

    The index has the offset in the text of each command, and the length of the text, as 64-bit
    numbers with the lowest byte first.
    """
    lines = [f"{command}\n".encode() for command in commands]
    offsets = array("Q", [0])
    position = 0
    for line in lines:
        position += len(line)
        offsets.append(position)
    if sys.byteorder == "big":
        offsets.byteswap()
    return b"".join(lines), offsets.tobytes()


def send_inputs(s3: S3, jobs: Iterable[PlannedJob], workspace: Path, address: str) -> int:
    """Upload the files of the local workspace that the steps' inputs match.

    A file that is in S3 with the same size and is not older there is not sent. Returns the number
    of uploaded files.
    """
    files = match_files(workspace, (pattern for job in jobs for pattern in job.inputs)).files
    if not files:
        return 0
    prefix = _key_prefix(address)
    stored = {entry.key.removeprefix(prefix): entry for entry in s3.list(address)}
    changed = []
    for name, state in files.items():
        entry = stored.get(name)
        is_same = entry is not None and entry.size_bytes == state.st_size
        if entry is None or not is_same or _modified_ns(entry) < state.st_mtime_ns:
            changed.append((workspace / name, address + name))
    return s3.upload(changed)


def fetch_outputs(s3: S3, jobs: Iterable[PlannedJob], workspace: Path, address: str) -> int:
    """Download the files that the steps have written into the local workspace.

    Returns the number of downloaded files. Raises InputError for a name that leaves the workspace.
    """
    output_globs = globs(pattern for job in jobs for pattern in job.outputs)
    prefix = _key_prefix(address)
    changed: dict[Path, S3Object] = {}
    for entry in s3.list(address):
        name = entry.key.removeprefix(prefix)
        if not any(glob.matches(name) for glob in output_globs):
            continue
        path = workspace / name
        if not path.resolve().is_relative_to(workspace.resolve()):
            raise InputError(f"{address}{name} would leave the workspace {workspace}")
        if not _is_current(path, entry):
            changed[path] = entry
    count = s3.download(
        (f"{address}{entry.key.removeprefix(prefix)}", path) for path, entry in changed.items()
    )
    for path, entry in changed.items():
        # As old as the object, so that a later run does not take it for newer and send it back.
        os.utime(path, ns=(_modified_ns(entry), _modified_ns(entry)))
    return count


def _is_current(path: Path, entry: S3Object) -> bool:
    """Return whether the file has the size of the object, and is not older."""
    if not path.exists():
        return False
    state = path.stat()
    return state.st_size == entry.size_bytes and state.st_mtime_ns >= _modified_ns(entry)


def _key_prefix(address: str) -> str:
    return address.removeprefix("s3://").partition("/")[2]


def _modified_ns(entry: S3Object) -> int:
    return round(entry.modified_s * 1e9)


@dataclass(frozen=True, slots=True)
class MatchedFiles:
    """The files of a folder that globs match."""

    #: Path in the folder -> what the system says about the file.
    files: dict[str, os.stat_result]
    #: FIFOs, sockets and devices, which the worker does not send either.
    special_files: tuple[str, ...]


def match_files(workspace: Path, patterns: Iterable[str]) -> MatchedFiles:
    """Return the files that the globs match. Raises InputError for files that cannot go to S3."""
    workspace_globs = globs(dict.fromkeys(patterns))
    files: dict[str, os.stat_result] = {}
    special_files, problems = [], []
    for name in _list_names(workspace) if workspace_globs else ():
        if not any(glob.matches(name) for glob in workspace_globs):
            continue
        problem, state = _check_file(workspace, name)
        if problem:
            problems.append(problem)
        elif state is not None and stat.S_ISREG(state.st_mode):
            files[name] = state
        elif state is not None:
            special_files.append(printable_name(name))
    if problems:
        title = f"in the workspace {workspace}, inputs match files that cannot go to S3:"
        raise InputError(
            "\n  ".join((title, *sorted(problems))),
            hint="repair or remove these files, or change the patterns of `inputs`",
        )
    return MatchedFiles(files, tuple(special_files))


def printable_name(name: str) -> str:
    """Return a file's name as text, with bytes that are not UTF-8 escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _check_file(workspace: Path, name: str) -> tuple[str, os.stat_result | None]:
    """Return (problem with the file, its state); neither where the file is gone by now."""
    path = workspace / name
    if printable_name(name) != name:
        problem = "its name is not UTF-8, and S3 accepts no other: rename it"
        return f"{printable_name(name)}: {problem}", None
    try:
        return "", path.stat()
    except OSError as exc:
        if path.is_symlink():
            target = printable_name(os.readlink(path))
            return f"{name}: a link to {target}, which does not exist", None
        is_gone = isinstance(exc, FileNotFoundError)
        return "" if is_gone else f"{name}: {exc.strerror}", None


def _list_names(workspace: Path) -> Iterator[str]:
    """Return the paths in the workspace of all entries that are not folders."""
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(name for name in folders if name != HOME_NAME)
        below = Path(folder).relative_to(workspace)
        yield from ((below / name).as_posix() for name in names)
