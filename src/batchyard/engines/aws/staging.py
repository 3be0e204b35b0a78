"""Files that a run needs in S3 before its jobs start, and files that its steps have written there.

Before: lists of commands, orders for the worker, input files. After: output files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from batchyard import child_patterns, s3_layout
from batchyard.aws.s3 import S3, Place, S3Object
from batchyard.cost_cap import Cap
from batchyard.engines.aws import block_layout, definitions, inputs, submit_requests
from batchyard.engines.aws.input_files import InputFiles
from batchyard.engines.aws.target import Target
from batchyard.engines.base import RunRecord
from batchyard.errors import InputError
from batchyard.plan import Plan, PlannedJob, to_ranges
from batchyard.worker.globs import globs

#: A list of this size is also part of the orders, which saves each child two requests.
_SHORT_LIST_BYTES = 32 * 1024
#: Input files of a step that its orders have. More have a list, of which a child reads parts.
_MAX_INLINE_FILES = 1000
_BLOCK_FILES = 250
_LIST_TYPE = "text/plain; charset=utf-8"


def upload_cap(s3: S3, cap: Cap, plan: Plan, target: Target, now_s: float) -> None:
    """Write the cap of a run for the function that keeps it while nobody watches the run."""
    environment, run = target.environment, Place.of(target.address).key
    document = {
        "run": target.run_id,
        "cap": cap._asdict(),
        "created_s": now_s,
        "jobs": run + s3_layout.JOB_IDS,
        "held": run + s3_layout.HELD,
        "stopped": run + s3_layout.STOP_REQUEST,
        "scales": [s3_layout.scale_address(run, job.step) for job in plan.jobs if job.is_dynamic],
    }
    address = s3_layout.cap_address(environment.bucket, environment.prefix, target.run_id)
    s3.put(address, json.dumps(document).encode(), "application/json")


def upload_orders(
    s3: S3,
    plan: Plan,
    target: Target,
    commands_done: Mapping[str, Sequence[int]],
    input_files: InputFiles | None,
) -> None:
    """Upload the lists of commands and the orders of all steps that run with the worker.

    ``commands_done``: step -> commands that an earlier run has finished. ``input_files``: what the
    steps take from this machine; None where all files are in a workspace in S3. The orders of a
    step are uploaded last: where they exist, the step is complete and is not uploaded again.
    """
    uploaded = s3.list(s3_layout.all_orders_address(target.address))
    complete = {s3_layout.step_of_orders(orders.key) for orders in uploaded}
    for job in plan.jobs:
        if not definitions.needs_worker(job) or job.step in complete:
            continue
        done = frozenset(commands_done.get(job.step, ()))
        list_orders = {}
        if job.has_list:
            lengths = plan.lengths.get(job.step)
            list_orders = _upload_lists(s3, job, plan.lists[job.step], lengths, target, done)
        step_orders = submit_requests.make_orders(job, target)
        file_orders = _upload_file_orders(s3, job, plan.pipeline, target, input_files)
        orders = {
            **step_orders,
            **file_orders,
            **list_orders,
            "skip": to_ranges(sorted(done)),
            "format": max(step_orders["format"], file_orders.get("format", 1)),
        }
        s3.put(
            s3_layout.orders_address(target.address, job.step),
            json.dumps(orders).encode(),
            "application/json",
        )


def _upload_lists(
    s3: S3,
    job: PlannedJob,
    commands: Sequence[str],
    lengths: Sequence[float] | None,
    target: Target,
    done: frozenset[int],
) -> dict[str, Any]:
    """Upload the step's list, also in dispatch order; return orders with a short list itself."""
    address, step = target.address, job.step
    text, index = encode_list(commands)
    s3.put(s3_layout.list_address(address, step), text, _LIST_TYPE)
    s3.put(s3_layout.list_index_address(address, step), index)
    if not job.is_dynamic:
        return {"commands": list(commands)} if len(text) <= _SHORT_LIST_BYTES else {}
    layout = block_layout.cut(job, done, lengths)
    numbers = [layout.order.command_at(position) for position in range(len(layout.order))]
    commands = [commands[number] for number in numbers]
    text, index = encode_list(commands)
    s3.put(s3_layout.ordered_list_address(address, step), text, _LIST_TYPE)
    s3.put(s3_layout.ordered_list_index_address(address, step), index)
    is_short = len(text) <= _SHORT_LIST_BYTES
    orders: dict[str, Any] = {"commands": commands} if is_short else {}
    if job.has_lengths:
        orders["block_bounds"] = [0, *(block.stop for block in layout.blocks)]
        if is_short:
            orders["order"] = numbers
        else:
            orders["order_numbers"] = s3_layout.ordered_numbers_address(address, step)
            s3.put(orders["order_numbers"], block_layout.encode_numbers(numbers))
    return orders


def _upload_file_orders(
    s3: S3, job: PlannedJob, pipeline: str, target: Target, input_files: InputFiles | None
) -> dict[str, Any]:
    """Return the orders about the files that the run took along; many files get a list in S3."""
    patterns = (*job.inputs, *job.outputs, *job.checkpoint)
    if input_files is None or not job.inputs:
        has_placeholders = any(map(child_patterns.placeholders, patterns))
        return {"format": 2} if has_placeholders else {}
    environment = target.environment
    content = s3_layout.content_address(environment.bucket, environment.prefix, pipeline)
    files = input_files.of_step(job.step)
    file_orders: dict[str, Any] = {"files": files}
    if len(files) > _MAX_INLINE_FILES:
        data, blocks = encode_files(files)
        address = s3_layout.input_list_address(target.address, job.step)
        s3.put(address, data, "application/jsonl")
        file_orders = {"file_list": address, "file_blocks": blocks}
    return {
        "format": 2,
        **file_orders,
        "content": content,
        "made_inputs": inputs.find_made_inputs(job),
        "own_inputs": inputs.find_own_inputs(job),
    }


def encode_files(files: Sequence[Sequence[object]]) -> tuple[bytes, list[list[object]]]:
    """Return the files as lines of JSON, and [first path, start, stop] of blocks of lines.

    ``files``: [path, SHA-256, size], sorted by path. A child reads only the blocks in which its
    files can be.
    """
    data = bytearray()
    blocks: list[list[object]] = []
    for first in range(0, len(files), _BLOCK_FILES):
        block = files[first : first + _BLOCK_FILES]
        start = len(data)
        data += "".join(f"{json.dumps(file)}\n" for file in block).encode()
        blocks.append([block[0][0], start, len(data)])
    return bytes(data), blocks


def encode_list(commands: Sequence[str]) -> tuple[bytes, bytes]:
    """Return the list as text, and its index.

    The index has the offset in the text of each command, and the length of the text, as 64-bit
    numbers with the lowest byte first.
    """
    lines = [f"{command}\n".encode() for command in commands]
    return b"".join(lines), block_layout.encode_numbers(accumulate(map(len, lines), initial=0))


def load_lists(s3: S3, record: RunRecord) -> Plan:
    """Return a run's plan with its lists, from its folder, or from S3 on another machine."""
    plan = record.plan
    lists, lengths = dict(plan.lists), dict(plan.lengths)
    for job in plan.jobs:
        if job.has_list and job.step not in lists:
            lists[job.step] = _load_list(s3, record, job.step)
        if job.has_lengths and job.step not in lengths:
            stored = record.folder.load_lengths(job.step)
            lengths |= {} if stored is None else {job.step: stored}
    return replace(plan, lists=lists, lengths=lengths)


def _load_list(s3: S3, record: RunRecord, step: str) -> Sequence[str]:
    if record.folder.list_of(step).exists():
        return record.folder.load_list(step)
    target: Target = record.settings
    address = s3_layout.list_address(target.address, step)
    text = s3.get(address)
    if text is None:
        raise InputError(
            f"the list of {step} is not at {address}",
            hint="start the run anew from its file",
        )
    return text.decode().removesuffix("\n").split("\n")


def fetch_outputs(s3: S3, jobs: Iterable[PlannedJob], workspace: Path, address: str) -> int:
    """Download the files that the steps have written into the local workspace.

    Returns the number of downloaded files. Raises InputError for a name that leaves the workspace.
    """
    patterns = (pattern for job in jobs for pattern in job.outputs)
    output_globs = globs(map(child_patterns.widen, patterns))
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
    bucket = Place.of(address).bucket
    count = s3.download((bucket, entry, path) for path, entry in changed.items())
    for path, entry in changed.items():
        # As old as the object, so that a later run does not take it for newer and send it back.
        os.utime(path, ns=(_modified_ns(entry), _modified_ns(entry)))
    return count


def _is_current(path: Path, entry: S3Object) -> bool:
    """Return whether the file has the size and the time of the object.

    A file of another run may be newer and have the same size.
    """
    if not path.exists():
        return False
    state = path.stat()
    return state.st_size == entry.size_bytes and state.st_mtime_ns == _modified_ns(entry)


def _key_prefix(address: str) -> str:
    return address.removeprefix("s3://").partition("/")[2]


def _modified_ns(entry: S3Object) -> int:
    return round(entry.modified_s * 1e9)
