"""What a child is told to do: the orders of its step, read and checked, and which child it is. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batchyard.s3_layout import MAX_COMMANDS
from batchyard.shard import commands_of
from batchyard.worker.faults import ORDERS, Fault, variable

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Place:
    """An object in S3, or where the key ends with a slash, everything below it."""

    bucket: str
    key: str

    def below(self, name: str) -> Place:
        return Place(self.bucket, self.key + name)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class Orders:
    run: str
    step: str
    #: the step's own array size
    size: int
    #: of a compact array: its children's numbers in the step, as ranges with both ends; None: they are the same
    indices: tuple[tuple[int, int], ...] | None
    #: the same in every child; None where the children share a list
    command: str | None
    command_count: int
    keep_going: bool
    #: AWS's attempts in all
    attempts: int
    #: how many ordinary failures are followed by another attempt
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
    #: commands that an earlier run has finished, as ranges with both ends
    skip: tuple[tuple[int, int], ...] = ()
    #: whether the file says `array:`, be it of one child, which is no array to AWS
    is_array: bool = False

    def number_of(self, position: int) -> int:
        """The number in the step of the child at this position of the job's array."""
        number: int | None = position
        if self.indices is not None:
            number = _nth(self.indices, position)
        if number is None or not 0 <= number < self.size:
            raise Fault(
                f"the orders of step {self.step} have no child {position}; AWS's array is larger",
                ORDERS,
            )
        return number

    def commands_of(self, number: int) -> range:
        if self.command is not None:
            return range(number, number + 1)
        return commands_of(self.command_count, number, self.size)

    def skipped(self, commands: range) -> set[int]:
        return {
            number
            for first, last in self.skip
            for number in range(max(first, commands.start), min(last + 1, commands.stop))
        }


@dataclass(frozen=True, slots=True)
class Child:
    """Which child of the job this is, as AWS Batch told it."""

    position: int
    attempt: int
    #: whether AWS Batch knows it as a member of an array
    in_array: bool
    job_id: str


def child_of(environ: Mapping[str, str]) -> Child:
    position = variable(environ, "AWS_BATCH_JOB_ARRAY_INDEX", 0) + variable(
        environ, "BATCHYARD_OFFSET", 0
    )
    return Child(
        position,
        max(1, variable(environ, "AWS_BATCH_JOB_ATTEMPT", 1)),
        bool(environ.get("AWS_BATCH_JOB_ARRAY_INDEX")),
        environ.get("AWS_BATCH_JOB_ID", ""),
    )


def address_of(environ: Mapping[str, str]) -> Place:
    address = environ.get("BATCHYARD_ORDERS", "")
    if not address:
        raise Fault(
            "BATCHYARD_ORDERS is not set: the worker is started by jobs that `batchyard run --engine aws` submits, "
            "with the s3:// address of their orders",
            ORDERS,
        )
    place = place_of(address)
    if place is None or not place.key:
        raise Fault(f"BATCHYARD_ORDERS is {address!r}, not the s3:// address of an object", ORDERS)
    return place


def place_of(address: str) -> Place | None:
    if not address.startswith("s3://"):
        return None
    bucket, _, key = address.removeprefix("s3://").partition("/")
    return Place(bucket, key) if bucket else None


def told_to_commands(
    environ: Mapping[str, str], orders: Orders, child: Child, number: int, folder: str
) -> dict[str, str]:
    """The environment of the child's commands: the worker's own, with the numbers of the step."""
    told = {
        name: value
        for name, value in environ.items()
        if name not in ("BATCHYARD_ORDERS", "BATCHYARD_OFFSET")
    }
    told.setdefault("BATCHYARD_RUN", orders.run)
    told.setdefault("BATCHYARD_STEP", orders.step)
    told |= {"ARRAY_SIZE": str(orders.size), "BATCHYARD_WORKSPACE": folder, "PWD": folder}
    # An array of one, or one child of a larger step that is tried again, is a plain job to AWS, and still that child to
    # its commands.
    if child.in_array or orders.is_array or orders.size > 1:
        told |= {
            "AWS_BATCH_JOB_ARRAY_INDEX": str(number),
            "AWS_BATCH_JOB_ARRAY_SIZE": str(orders.size),
        }
    return told


# -- reading ------------------------------------------------------------------------------------------------------


def read(data: bytes, address: Place) -> Orders:
    try:
        document = json.loads(data)
    except ValueError as exc:
        raise Fault(
            f"the orders at {address} are not JSON: {exc}; submit the run anew", ORDERS
        ) from exc
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise Fault(
            f"the orders at {address} have format {found!r}, and this worker reads {FORMAT}; "
            "install the same version of batchyard in the image as the one that submits",
            ORDERS,
        )
    fields = {name: _field(document, name, reading, address) for name, reading in _FIELDS.items()}
    orders = Orders(**fields)
    if orders.command is None and (orders.list is None or orders.list_index is None):
        raise Fault(
            f"the orders at {address} have neither a command nor a list with its index", ORDERS
        )
    return orders


def _field(
    document: Mapping[str, Any], name: str, reading: Callable[[Any], Any], address: Place
) -> Any:
    try:
        return reading(document.get(name))
    except (TypeError, ValueError, AttributeError):
        found = json.dumps(document.get(name))[:80]
        raise Fault(
            f"in the orders at {address} {name!r} is {found}; were they written by hand?", ORDERS
        ) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(least: int, most: int | None = None) -> Callable[[Any], int]:
    def read_whole(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise TypeError
        if most is not None and value > most:
            raise ValueError
        return value

    return read_whole


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(_text(item) for item in value)


def _place(value: Any) -> Place:
    place = place_of(_text(value))
    if place is None:
        raise ValueError
    return place


def _folder(value: Any) -> Place:
    place = _place(value)
    return place if place.key.endswith("/") or not place.key else place.below("/")


def _optional(reading: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else reading(value)


def _ranges(value: Any) -> tuple[tuple[int, int], ...]:
    whole = _whole(0)
    ranges = tuple((whole(first), whole(last)) for first, last in value)
    if any(first > last for first, last in ranges):
        raise ValueError
    return ranges


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
    "skip": lambda value: () if value is None else _ranges(value),
    "is_array": lambda value: False if value is None else _flag(value),
}
