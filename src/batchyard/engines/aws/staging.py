"""What a run needs in S3 before its jobs start: lists with their indices, the worker's orders, input files."""

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
from batchyard.aws.s3 import S3, Found
from batchyard.engines.aws import definitions, render
from batchyard.engines.aws.render import Target
from batchyard.errors import InputError
from batchyard.folder import HOME_NAME
from batchyard.plan import Plan, PlannedJob, to_ranges
from batchyard.worker.globs import globs


def stage(
    s3: S3,
    plan: Plan,
    target: Target,
    lists: Mapping[str, Sequence[str]],
    done: Mapping[str, Sequence[int]],
) -> None:
    """Lists and orders. ``done``: step -> commands that an earlier run has finished. A step's orders are written last:
    where they are, all is."""
    staged = s3.list(s3_layout.all_orders_address(target.address))
    there = {s3_layout.step_of_orders(orders.key) for orders in staged}
    for job in plan.jobs:
        if not definitions.needs_worker(job) or job.step in there:
            continue
        if job.has_list:
            text, index = encoded(lists[job.step])
            list_address = s3_layout.list_address(target.address, job.step)
            s3.put(list_address, text, "text/plain; charset=utf-8")
            s3.put(s3_layout.list_index_address(target.address, job.step), index)
        orders = {**render.orders(job, target), "skip": to_ranges(sorted(done.get(job.step, ())))}
        s3.put(
            s3_layout.orders_address(target.address, job.step),
            json.dumps(orders).encode(),
            "application/json",
        )


def encoded(commands: Sequence[str]) -> tuple[bytes, bytes]:
    """The list as text, and where in it each command begins: 64-bit numbers, one more than there are commands."""
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
    """Uploads what the steps' inputs match in the local workspace, unless the same is there. Returns how many files."""
    files = matching(workspace, (pattern for job in jobs for pattern in job.inputs)).files
    if not files:
        return 0
    prefix = address.removeprefix("s3://").partition("/")[2]
    there = {found.key.removeprefix(prefix): found for found in s3.list(address)}
    new = []
    for name, state in files.items():
        known = there.get(name)
        if known is None or known.size != state.st_size or _ns(known) < state.st_mtime_ns:
            new.append((workspace / name, address + name))
    return s3.upload(new)


def fetch_outputs(s3: S3, jobs: Iterable[PlannedJob], workspace: Path, address: str) -> int:
    """Downloads what the steps have given back into the local workspace. Returns how many files."""
    wanted_globs = globs(pattern for job in jobs for pattern in job.outputs)
    prefix = address.removeprefix("s3://").partition("/")[2]
    wanted: dict[Path, Found] = {}
    for found in s3.list(address):
        name = found.key.removeprefix(prefix)
        if not any(glob.matches(name) for glob in wanted_globs):
            continue
        path = workspace / name
        if not path.resolve().is_relative_to(workspace.resolve()):
            raise InputError(f"{address}{name} would leave the workspace {workspace}")
        if (
            not path.exists()
            or path.stat().st_size != found.size
            or path.stat().st_mtime_ns < _ns(found)
        ):
            wanted[path] = found
    count = s3.download(
        (f"{address}{found.key.removeprefix(prefix)}", path) for path, found in wanted.items()
    )
    for path, found in wanted.items():
        # As old as the object, so that a later run does not take it for a newer one and send it back.
        os.utime(path, ns=(_ns(found), _ns(found)))
    return count


def _ns(found: Found) -> int:
    return round(found.modified * 1e9)


@dataclass(frozen=True, slots=True)
class Matched:
    """What globs match in a folder."""

    #: path in the folder -> what the system says about the file
    files: dict[str, os.stat_result]
    #: FIFOs, sockets and devices, which are no files to the worker either
    passed_over: tuple[str, ...]


def matching(workspace: Path, patterns: Iterable[str]) -> Matched:
    """The files of a folder that the globs match. Raises InputError where one of them cannot go to S3."""
    wanted = globs(dict.fromkeys(patterns))
    files: dict[str, os.stat_result] = {}
    passed_over, problems = [], []
    for name in _names_of(workspace) if wanted else ():
        if not any(glob.matches(name) for glob in wanted):
            continue
        problem, state = _looked_at(workspace, name)
        if problem:
            problems.append(problem)
        elif state is not None and stat.S_ISREG(state.st_mode):
            files[name] = state
        elif state is not None:
            passed_over.append(shown(name))
    if problems:
        raise InputError(
            "\n  ".join(
                (
                    f"in the workspace {workspace} inputs match what cannot go to S3:",
                    *sorted(problems),
                )
            ),
            hint="mend or remove these, or let the patterns of `inputs` leave them out",
        )
    return Matched(files, tuple(passed_over))


def shown(name: str) -> str:
    """A file's name as text, also where it is none."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _looked_at(workspace: Path, name: str) -> tuple[str, os.stat_result | None]:
    """(what is wrong with it, what the system says about it); neither where it is gone by now."""
    path = workspace / name
    if shown(name) != name:
        return f"{shown(name)}: its name is not UTF-8, and S3 takes no other: rename it", None
    try:
        return "", path.stat()
    except OSError as exc:
        if path.is_symlink():
            return f"{name}: a link to {shown(os.readlink(path))}, and nothing is there", None
        return (
            ("", None) if isinstance(exc, FileNotFoundError) else (f"{name}: {exc.strerror}", None)
        )


def _names_of(workspace: Path) -> Iterator[str]:
    """The path in the workspace of everything that is no folder."""
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(name for name in folders if name != HOME_NAME)
        below = Path(folder).relative_to(workspace)
        yield from ((below / name).as_posix() for name in names)
