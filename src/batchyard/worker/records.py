"""What a child has done, as objects in S3: a success record per command, and what went wrong in its attempts."""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from batchyard import s3_layout
from batchyard.worker.faults import ORDERS, Fault
from batchyard.worker.orders import Child, Orders, Place
from batchyard.worker.rules import Failure
from batchyard.worker.s3 import Bucket

_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True)
class Records:
    bucket: Bucket
    orders: Orders
    child: Child
    #: the child's number in the step
    number: int

    def done(self, commands: range) -> set[int]:
        """Which of these commands have succeeded. Lists their part of the records, not the step's."""
        found = self.orders.skipped(commands)
        if len(found) == len(commands):
            return found
        root = self.orders.done
        after = (
            root.below(s3_layout.success_record(commands.start - 1)).key if commands.start else ""
        )
        doing = "list the success records in"
        for one in self.bucket.list(root, doing, start_after=after, most=len(commands)):
            command = s3_layout.command_of_record(one.key)
            if command is None or command >= commands.stop:
                break
            found.add(command)
        return found

    def succeeded(self, command: int, seconds: float) -> None:
        record = {
            "child": self.number,
            "attempt": self.child.attempt,
            "job": self.child.job_id,
            "seconds": round(seconds, 3),
            "ended": int(time.time()),
        }
        self.bucket.write(
            self.orders.done.below(s3_layout.success_record(command)),
            _json(record),
            f"record the success of command {command} in",
        )

    def failures(self) -> list[dict[str, object]]:
        """Ordinary failures of this child in earlier attempts of this job; a reclaim is none."""
        if self.child.attempt == 1:
            return []
        if next(self.bucket.list(self._failures, "look for failures in", most=1), None) is None:
            return []
        found = json.loads(self.bucket.read(self._failures, "read the failures in"))
        return [one for one in found if one["job"] == self.child.job_id]

    def failed(self, before: Sequence[dict[str, object]], failure: Failure) -> None:
        entry = {
            "attempt": self.child.attempt,
            "job": self.child.job_id,
            "command": failure.command,
            "exit_code": failure.exit_code,
            "out_of_memory": failure.was_out_of_memory,
            "ended": int(time.time()),
        }
        self.bucket.write(self._failures, _json([*before, entry]), "record the failure in")

    @property
    def _failures(self) -> Place:
        return self.orders.done.below(s3_layout.failures_record(self.number))


def command_reader(bucket: Bucket, orders: Orders, commands: range) -> Callable[[int], str]:
    """Number -> command. Of the list only the part with these commands is fetched, and not before it is needed."""
    if orders.command is not None:
        command = orders.command
        return lambda number: command
    offsets: array[int] = array("Q")
    data = b""

    def read(number: int) -> str:
        nonlocal data
        if not offsets:
            offsets.extend(_offsets(bucket, orders, commands))
            assert orders.list is not None
            data = _slice(bucket, orders.list, offsets[0], offsets[-1])
        at = number - commands.start
        line = data[offsets[at] - offsets[0] : offsets[at + 1] - offsets[0]]
        return line.decode().removesuffix("\n")

    return read


def _offsets(bucket: Bucket, orders: Orders, commands: range) -> array[int]:
    """Where each of the commands begins in the list, and where the last one ends."""
    assert orders.list_index is not None
    first, stop = commands.start * _OFFSET_BYTES, (commands.stop + 1) * _OFFSET_BYTES
    data = _slice(bucket, orders.list_index, first, stop)
    offsets: array[int] = array("Q", data)
    if sys.byteorder == "big":
        offsets.byteswap()
    if any(later < before for before, later in pairwise(offsets)):
        raise Fault(f"the index {orders.list_index} is none of a list: its numbers go down", ORDERS)
    return offsets


def _slice(bucket: Bucket, place: Place, first: int, stop: int) -> bytes:
    if first == stop:
        return b""
    data = bucket.read(place, "read the list of commands", first, stop)
    if len(data) != stop - first:
        raise Fault(
            f"{place} ends before byte {stop}, and the orders count more commands; submit the run anew",
            ORDERS,
        )
    return data


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
