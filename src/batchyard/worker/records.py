"""What a child has done, as objects in S3: success records of its commands, and its failures."""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from batchyard import s3_layout
from batchyard.quick_dataclasses import dataclass
from batchyard.sampling import samples
from batchyard.worker.errors import EXIT_ORDERS, WorkerError
from batchyard.worker.host import Host
from batchyard.worker.orders import Child, Orders, Place
from batchyard.worker.processes import CommandResult
from batchyard.worker.s3 import Bucket

_NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Records:
    bucket: Bucket
    orders: Orders
    child: Child
    #: the child's index in the step
    number: int
    host: Host = field(default_factory=Host)

    def succeeded_commands(self, commands: range) -> set[int]:
        """Return which of these commands have succeeded. Lists only their part of the records."""
        succeeded = self.orders.skipped_commands(commands)
        if len(succeeded) == len(commands):
            return succeeded
        folder = self.orders.done
        start_after = ""
        if commands.start:
            start_after = folder.below(s3_layout.success_record(commands.start - 1)).key
        listed = self.bucket.list(
            folder, "list the success records in", start_after=start_after, at_most=len(commands)
        )
        for entry in listed:
            command = s3_layout.command_of_record(entry.key)
            if command is None or command >= commands.stop:
                break
            succeeded.add(command)
        return succeeded

    def record_success(self, command: int, result: CommandResult) -> None:
        record = {
            "child": self.number,
            "attempt": self.child.attempt,
            "job": self.child.job_id,
            **_measurements(result),
            "ended": int(time.time()),
        }
        host = self.host.facts()
        if host is not None:
            record["host"] = host
        self.bucket.write(
            self.orders.done.below(s3_layout.success_record(command)),
            _to_json(record),
            f"record the success of command {command} in",
        )

    def earlier_failures(self) -> list[dict[str, object]]:
        """Return the failures of this child in earlier attempts of this job, without reclaims."""
        if self.child.attempt == 1:
            return []
        listed = self.bucket.list(self._failures_place, "look for failures in", at_most=1)
        if next(listed, None) is None:
            return []
        failures = json.loads(self.bucket.read(self._failures_place, "read the failures in"))
        return [failure for failure in failures if failure["job"] == self.child.job_id]

    def record_failures(
        self, earlier: Sequence[dict[str, object]], failures: Mapping[int, CommandResult]
    ) -> None:
        """Record the commands that failed in this attempt: number -> its result."""
        entries = [
            {
                "attempt": self.child.attempt,
                "job": self.child.job_id,
                "command": command,
                **_measurements(result),
                "out_of_memory": result.was_out_of_memory,
                "ended": int(time.time()),
            }
            for command, result in failures.items()
        ]
        self.bucket.write(
            self._failures_place, _to_json([*earlier, *entries]), "record the failures in"
        )

    @property
    def _failures_place(self) -> Place:
        return self.orders.done.below(s3_layout.failures_record(self.number))


def command_reader(bucket: Bucket, orders: Orders, commands: range) -> Callable[[int], str]:
    """Return a function from the place of a command in the orders' list to its text.

    The place is the number of the command, or its position in the order of a dynamic step. Only the
    part of the list with these commands is downloaded, at the first call.
    """
    if orders.command is not None:
        command = orders.command
        return lambda number: command
    if orders.commands is not None:
        return orders.commands.__getitem__
    offsets: array[int] = array("Q")
    data = b""

    def read(number: int) -> str:
        nonlocal data
        if not offsets:
            offsets.extend(_read_offsets(bucket, orders, commands))
            assert orders.list is not None
            data = _read_slice(bucket, orders.list, offsets[0], offsets[-1])
        position = number - commands.start
        line = data[offsets[position] - offsets[0] : offsets[position + 1] - offsets[0]]
        return line.decode().removesuffix("\n")

    return read


def number_reader(bucket: Bucket, orders: Orders) -> Callable[[range], Callable[[int], int]]:
    """Return positions -> function from a position in the dispatch order to a command's number.

    Of an order that is not in the orders, only the part with the positions is downloaded.
    """
    place = orders.order_numbers
    if place is None:
        order = orders.dispatch_order()
        return lambda positions: order.command_at

    def read(positions: range) -> Callable[[int], int]:
        numbers = _read_numbers(bucket, place, positions.start, positions.stop)
        return lambda position: numbers[position - positions.start]

    return read


def _read_offsets(bucket: Bucket, orders: Orders, commands: range) -> array[int]:
    """Return where each of the commands begins in the list, and where the last one ends."""
    assert orders.list_index is not None
    offsets = _read_numbers(bucket, orders.list_index, commands.start, commands.stop + 1)
    if any(later < earlier for earlier, later in pairwise(offsets)):
        raise WorkerError(
            f"{orders.list_index} is not the index of a list: its numbers go down", EXIT_ORDERS
        )
    return offsets


def _read_numbers(bucket: Bucket, place: Place, start: int, stop: int) -> array[int]:
    data = _read_slice(bucket, place, start * _NUMBER_BYTES, stop * _NUMBER_BYTES)
    numbers: array[int] = array("Q", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _read_slice(bucket: Bucket, place: Place, first: int, stop: int) -> bytes:
    if first == stop:
        return b""
    data = bucket.read(place, "read the list of commands", first, stop)
    if len(data) != stop - first:
        raise WorkerError(
            f"{place} ends before byte {stop}, and the orders count more commands; "
            "submit the run again",
            EXIT_ORDERS,
        )
    return data


def _measurements(result: CommandResult) -> dict[str, object]:
    measurements: dict[str, object] = {
        "exit_code": result.exit_code,
        "started_ms": result.started_ms,
        "seconds": round(result.duration_s, 3),
        "user_s": round(result.user_s, 3),
        "system_s": round(result.system_s, 3),
        "max_rss_kib": result.max_rss_kib,
    }
    if result.use is not None:
        measurements["use"] = samples.to_json(result.use)
    return measurements


def _to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
