"""The orders of a step, which tell the worker what to do, and which child it runs. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from batchyard.blocks import DispatchOrder, cut_blocks
from batchyard.child_patterns import fill, names_command
from batchyard.quick_dataclasses import dataclass
from batchyard.s3_layout import MAX_COMMANDS
from batchyard.shard import commands_of
from batchyard.worker.errors import EXIT_ORDERS, WorkerError, read_variable

#: The second has `files`, and placeholders in patterns, which older workers do not know. The third
#: is for dynamic steps.
FORMATS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Place:
    """The address of an object in S3, or of a folder if the key ends with a slash."""

    bucket: str
    key: str

    def below(self, name: str) -> Place:
        return Place(self.bucket, self.key + name)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that the run took along from the user's machine."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of a step (docs/worker.md)."""

    run: str
    step: str
    #: number of children of the step
    size: int
    #: indices in the step of a retried job's children, as inclusive ranges; None: all children
    indices: tuple[tuple[int, int], ...] | None
    #: the command of every child; None if the children share a list
    command: str | None
    command_count: int
    keep_going: bool
    #: attempts that AWS Batch makes in all
    attempts: int
    #: number of ordinary failures that are retried
    retries: int
    retry_on: tuple[str, ...]
    fail_on: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    checkpoint: tuple[str, ...]
    workspace: Place
    list: Place | None
    list_index: Place | None
    done: Place
    checkpoints: Place
    #: checkpoints of the runs that this one is a retry of, of the last run first
    earlier_checkpoints: tuple[Place, ...] = ()
    #: commands that an earlier run has finished, as inclusive ranges
    skip: tuple[tuple[int, int], ...] = ()
    #: whether the step has `array:`; an array of one child is not an array in AWS Batch
    is_array: bool = False
    #: the list itself, where it is short; None: read ``list``
    commands: tuple[str, ...] | None = None
    #: input files of the step, by their content; None: they have a list, or are in the workspace
    files: tuple[InputFile, ...] | None = None
    #: the list of many input files, and (first path, start, stop) of its blocks
    file_list: Place | None = None
    file_blocks: tuple[tuple[str, int, int], ...] = ()
    #: where the content of ``files`` is
    content: Place | None = None
    #: inputs that earlier steps may write into the workspace
    made_inputs: tuple[str, ...] = ()
    #: inputs that the step itself may write into the workspace
    own_inputs: tuple[str, ...] = ()
    #: where a dynamic step has its blocks; None for other steps. Its list, without the commands
    #: that are skipped, is in dispatch order.
    blocks: Place | None = None
    #: children of the job among which a dynamic step's commands are shared out
    children: int = 1
    #: numbers of the commands in dispatch order, and the bounds of the blocks; None: as computed
    order: tuple[int, ...] | None = None
    block_bounds: tuple[int, ...] | None = None
    #: the order of many commands, as 64-bit numbers
    order_numbers: Place | None = None
    #: time limit of each command of a dynamic step
    timeout_s: int | None = None
    #: whether samples are taken of what commands use
    is_sampled: bool = True

    @property
    def has_files(self) -> bool:
        """Whether the run took input files along, so that the workspace has only outputs."""
        return self.files is not None or self.file_list is not None

    def for_child(self, number: int, command: Callable[[int], str]) -> Orders:
        """Return the orders with the patterns of one child. ``command``: number -> its text."""
        commands = self.commands_of(number) if any(map(names_command, self.inputs)) else ()
        texts = list(map(command, commands))
        keys = ("inputs", "outputs", "checkpoint", "made_inputs", "own_inputs")
        try:
            patterns: dict[str, Any] = {
                key: fill(getattr(self, key), number, texts) for key in keys
            }
        except ValueError as exc:
            raise WorkerError(f"step {self.step}, child {number}: {exc}", EXIT_ORDERS) from exc
        return replace(self, **patterns)

    def number_of(self, position: int) -> int:
        """Return the index in the step of the child at this position of the job's array.

        Children that were added to a dynamic step follow all its own ones.
        """
        if self.blocks is not None and position >= self.children:
            return self.size + position - self.children
        number: int | None = position
        if self.indices is not None:
            number = _nth(self.indices, position)
        if number is None or not 0 <= number < self.size:
            raise WorkerError(
                f"the orders of step {self.step} have no child {position}; "
                "the array in AWS Batch is larger",
                EXIT_ORDERS,
            )
        return number

    def commands_of(self, number: int) -> range:
        if self.command is not None:
            return range(number, number + 1)
        return commands_of(self.command_count, number, self.size)

    @property
    def list_length(self) -> int:
        """The number of commands in the list of the orders."""
        return self.command_count if self.blocks is None else len(self.dispatch_order())

    def dispatch_order(self) -> DispatchOrder:
        """Return the order in which a dynamic step's commands are handed out."""
        return DispatchOrder(self.command_count, self.skip, self.order)

    def cut_blocks(self) -> Sequence[range]:
        """Return the blocks of a dynamic step, as positions in its dispatch order."""
        if self.block_bounds is None:
            return cut_blocks(self.list_length, self.children)
        return [range(start, stop) for start, stop in pairwise(self.block_bounds)]

    def skipped_commands(self, commands: range) -> set[int]:
        return {
            number
            for first, last in self.skip
            for number in range(max(first, commands.start), min(last + 1, commands.stop))
        }


@dataclass(frozen=True, slots=True)
class Child:
    """The child that this container runs, from AWS Batch's variables."""

    position: int
    attempt: int
    #: whether the child belongs to an array job in AWS Batch
    in_array: bool
    job_id: str


def child_of(environ: Mapping[str, str]) -> Child:
    index = read_variable(environ, "AWS_BATCH_JOB_ARRAY_INDEX", 0)
    return Child(
        index + read_variable(environ, "BATCHYARD_OFFSET", 0),
        max(1, read_variable(environ, "AWS_BATCH_JOB_ATTEMPT", 1)),
        bool(environ.get("AWS_BATCH_JOB_ARRAY_INDEX")),
        environ.get("AWS_BATCH_JOB_ID", ""),
    )


def orders_place(environ: Mapping[str, str]) -> Place:
    """Return the place of the orders from BATCHYARD_ORDERS. Raises WorkerError."""
    address = environ.get("BATCHYARD_ORDERS", "")
    if not address:
        raise WorkerError(
            "BATCHYARD_ORDERS is not set: jobs that `batchyard run --engine aws` submits "
            "start the worker with the s3:// address of their orders",
            EXIT_ORDERS,
        )
    place = parse_place(address)
    if place is None or not place.key:
        raise WorkerError(
            f"BATCHYARD_ORDERS is {address!r}, not the s3:// address of an object", EXIT_ORDERS
        )
    return place


def parse_place(address: str) -> Place | None:
    """Return the place of an s3:// address; None if it is none."""
    if not address.startswith("s3://"):
        return None
    bucket, _, key = address.removeprefix("s3://").partition("/")
    return Place(bucket, key) if bucket else None


def command_environment(
    environ: Mapping[str, str], orders: Orders, child: Child, number: int, folder: str
) -> dict[str, str]:
    """Return the environment of the child's commands: the worker's, with indices of the step."""
    variables = {
        name: value
        for name, value in environ.items()
        if name not in ("BATCHYARD_ORDERS", "BATCHYARD_OFFSET")
    }
    variables.setdefault("BATCHYARD_RUN", orders.run)
    variables.setdefault("BATCHYARD_STEP", orders.step)
    variables |= {"ARRAY_SIZE": str(orders.size), "BATCHYARD_WORKSPACE": folder, "PWD": folder}
    # In AWS Batch an array of one child, and the only retried child of a step, is not an array job.
    # Its commands still get the index of the child.
    if child.in_array or orders.is_array or orders.size > 1:
        variables |= {
            "AWS_BATCH_JOB_ARRAY_INDEX": str(number),
            "AWS_BATCH_JOB_ARRAY_SIZE": str(orders.size),
        }
    return variables


# -- reading ---------------------------------------------------------------------------------------


def read(data: bytes, place: Place) -> Orders:
    """Return the orders that a JSON document has. Raises WorkerError if they are invalid."""
    try:
        document = json.loads(data)
    except ValueError as exc:
        raise WorkerError(
            f"the orders at {place} are not JSON: {exc}; submit the run again", EXIT_ORDERS
        ) from exc
    if not isinstance(document, dict) or document.get("format") not in FORMATS:
        document_format = document.get("format") if isinstance(document, dict) else None
        raise WorkerError(
            f"the orders at {place} have format {document_format!r}, and this worker reads "
            f"{FORMATS[0]} to {FORMATS[-1]}; install the same version of batchyard in the image as "
            "the one that submits",
            EXIT_ORDERS,
        )
    fields = {name: _read_field(document, name, parse, place) for name, parse in _FIELDS.items()}
    orders = Orders(**fields)
    if orders.commands is not None and len(orders.commands) != orders.list_length:
        raise WorkerError(
            f"the orders at {place} have {len(orders.commands)} commands, and count "
            f"{orders.list_length}",
            EXIT_ORDERS,
        )
    if orders.command is None and (orders.list is None or orders.list_index is None):
        raise WorkerError(
            f"the orders at {place} have neither a command nor a list with its index", EXIT_ORDERS
        )
    return orders


def _read_field(
    document: Mapping[str, Any], name: str, parse: Callable[[Any], Any], place: Place
) -> Any:
    try:
        return parse(document.get(name))
    except (TypeError, ValueError, AttributeError):
        text = json.dumps(document.get(name))[:80]
        raise WorkerError(
            f"in the orders at {place} {name!r} is {text}; were they written by hand?", EXIT_ORDERS
        ) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(minimum: int, maximum: int | None = None) -> Callable[[Any], int]:
    def parse_whole(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise TypeError
        if maximum is not None and value > maximum:
            raise ValueError
        return value

    return parse_whole


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(_text(item) for item in value)


def _place(value: Any) -> Place:
    place = parse_place(_text(value))
    if place is None:
        raise ValueError
    return place


def _folder(value: Any) -> Place:
    place = _place(value)
    return place if place.key.endswith("/") or not place.key else place.below("/")


def _folders(value: Any) -> tuple[Place, ...]:
    return tuple(_folder(address) for address in _texts(value))


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else parse(value)


def _ranges(value: Any) -> tuple[tuple[int, int], ...]:
    whole = _whole(0)
    ranges = tuple((whole(first), whole(last)) for first, last in value)
    if any(first > last for first, last in ranges):
        raise ValueError
    return ranges


def _numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_whole(0), value))


def parse_files(value: Any) -> tuple[InputFile, ...]:
    size = _whole(0)
    return tuple(
        InputFile(_text(path), _text(sha256), size(size_bytes))
        for path, sha256, size_bytes in value
    )


def _blocks(value: Any) -> tuple[tuple[str, int, int], ...]:
    offset = _whole(0)
    return tuple((_text(path), offset(start), offset(stop)) for path, start, stop in value)


def _nth(ranges: tuple[tuple[int, int], ...], position: int) -> int | None:
    for first, last in ranges:
        length = last - first + 1
        if position < length:
            return first + position
        position -= length
    return None


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "run": _text,
    "step": _text,
    "size": _whole(1),
    "indices": _optional(_ranges),
    "command": _optional(_text),
    "command_count": _whole(0, MAX_COMMANDS),
    "keep_going": _flag,
    "attempts": _whole(1),
    "retries": _whole(0),
    "retry_on": _texts,
    "fail_on": _texts,
    "inputs": _texts,
    "outputs": _texts,
    "checkpoint": _texts,
    "workspace": _folder,
    "list": _optional(_place),
    "list_index": _optional(_place),
    "done": _folder,
    "checkpoints": _folder,
    "earlier_checkpoints": lambda value: () if value is None else _folders(value),
    "skip": lambda value: () if value is None else _ranges(value),
    "is_array": lambda value: False if value is None else _flag(value),
    "commands": _optional(_texts),
    "files": _optional(parse_files),
    "file_list": _optional(_place),
    "file_blocks": lambda value: () if value is None else _blocks(value),
    "content": _optional(_folder),
    "made_inputs": lambda value: () if value is None else _texts(value),
    "own_inputs": lambda value: () if value is None else _texts(value),
    "blocks": _optional(_folder),
    "children": lambda value: 1 if value is None else _whole(1)(value),
    "order": _optional(_numbers),
    "block_bounds": _optional(_numbers),
    "order_numbers": _optional(_place),
    "timeout_s": _optional(_whole(1)),
    "is_sampled": lambda value: True if value is None else _flag(value),
}
