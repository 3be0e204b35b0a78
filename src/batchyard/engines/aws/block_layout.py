"""The blocks of a dynamic step and the commands in them, as the engine and the workers know them.

Without lengths, everyone computes them from the plan. With lengths, the orders of the step have
them, since the lengths are only on the machine that began the run.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from batchyard import s3_layout
from batchyard.aws.s3 import S3
from batchyard.blocks import DispatchOrder, cut_blocks
from batchyard.command_lengths import sort_longest_first
from batchyard.plan import PlannedJob, to_ranges


class BlockLayout(NamedTuple):
    order: DispatchOrder
    #: number of a block -> its positions in the order
    blocks: Sequence[range]


def cut(
    job: PlannedJob, skipped: Collection[int], lengths: Sequence[float] | None = None
) -> BlockLayout:
    """Return the layout. ``skipped``: commands that an earlier run has finished."""
    skip = to_ranges(sorted(skipped))
    order = DispatchOrder(job.command_count, skip)
    if lengths is None or not job.has_lengths:
        return BlockLayout(order, cut_blocks(len(order), job.size))
    # Commands of equal length keep the order that spreads them over the list.
    numbers = sort_longest_first(map(order.command_at, range(len(order))), lengths)
    # The start of a command takes time, too, so that no command weighs nothing.
    least = sum(lengths) / len(lengths) / 100 or 1.0
    weights = [max(least, lengths[number]) for number in numbers]
    blocks = cut_blocks(len(order), job.size, weights)
    return BlockLayout(DispatchOrder(job.command_count, skip, numbers), blocks)


def read(s3: S3, address: str, job: PlannedJob, skipped: Collection[int]) -> BlockLayout:
    """Return the layout of a step with lengths. ``address``: the run's prefix in S3."""
    orders = json.loads(s3.get(s3_layout.orders_address(address, job.step)) or b"{}")
    if "block_bounds" not in orders:
        return cut(job, skipped)  # nothing has been uploaded yet
    numbers = orders.get("order")
    if numbers is None:
        numbers = decode_numbers(s3.get(orders["order_numbers"]) or b"")
    order = DispatchOrder(job.command_count, to_ranges(sorted(skipped)), numbers)
    return BlockLayout(order, [range(*bounds) for bounds in pairwise(orders["block_bounds"])])


def encode_numbers(numbers: Iterable[int]) -> bytes:
    """Return the numbers with 64 bits each, the lowest byte first."""
    return _in_order_of_bytes(array("Q", numbers)).tobytes()


def decode_numbers(data: bytes) -> Sequence[int]:
    return _in_order_of_bytes(array("Q", data))


def _in_order_of_bytes(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
