"""What claims of blocks cost on S3: writes and waiting times, counted in a simulated clock.

Workers claim blocks as batchyard's do: ahead where commands are short, with a renewal every 20 s,
and a write at the end of each block. A request to S3 takes 0.15 s.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.blocks import DispatchOrder, cut_blocks
from batchyard.worker import dynamic_attempt, leases

_REQUEST_S = 0.15
#: a claim lists the blocks, and writes one
_CLAIM_S = 2 * _REQUEST_S
_MIN_S_PER_WRITE = 10.0
_MAX_WAIT = 0.02


@dataclass(frozen=True, slots=True)
class Costs:
    commands: int
    children: int
    mean_s: float
    #: seconds of work of a child for each of its writes
    s_per_write: float
    #: part of the time of all commands that children waited for claims
    wait: float
    blocks: int

    @property
    def is_good(self) -> bool:
        return self.s_per_write >= _MIN_S_PER_WRITE and self.wait <= _MAX_WAIT


def simulate(lengths_s: Sequence[float], children: int) -> Costs:
    order = DispatchOrder(len(lengths_s))
    blocks = cut_blocks(len(lengths_s), children)
    free_at = [(0.0, child) for child in range(children)]
    writes, wait_s, busy_s = 0, 0.0, 0.0
    #: children whose last block was large, of short commands: the next one is claimed already
    has_claimed: set[int] = set()
    for block in blocks:
        now_s, child = heapq.heappop(free_at)
        if child not in has_claimed:
            wait_s += _CLAIM_S
            now_s += _CLAIM_S
        work_s = sum(lengths_s[order.command_at(position)] for position in block)
        busy_s += work_s
        writes += 2 + int(work_s / leases.RENEW_S)
        is_short = work_s / len(block) < dynamic_attempt.SHORT_COMMAND_S
        if is_short and len(block) >= dynamic_attempt.MIN_BLOCK_AHEAD:
            has_claimed.add(child)
        else:
            has_claimed.discard(child)
        heapq.heappush(free_at, (now_s + work_s, child))
    mean_s = busy_s / len(lengths_s)
    return Costs(len(lengths_s), children, mean_s, busy_s / writes, wait_s / busy_s, len(blocks))


def print_table() -> bool:
    """Print the costs as Markdown; return whether all are within their bars."""
    generator = random.Random(1)
    cases = [(10_000, 64, 60.0), (100_000, 64, 1.0), (10_000, 16, 1.0), (1_000_000, 256, 1.0)]
    print("\n| commands | children | mean length | blocks | s of work per write | waiting |  |")
    print("|-:|-:|-:|-:|-:|-:|-|")
    is_good = True
    for count, children, mean_s in cases:
        # exp(mu + 1/2) is the mean of a lognormal distribution with sigma 1.
        drawn = [generator.lognormvariate(-0.5, 1) * mean_s for _ in range(count)]
        costs = simulate(drawn, children)
        is_good = is_good and costs.is_good
        print(
            f"| {count:,} | {children} | {mean_s:.0f} s | {costs.blocks:,} "
            f"| {costs.s_per_write:.1f} | {costs.wait:.2%} "
            f"| {'PASS' if costs.is_good else 'MISSED'} |"
        )
    return is_good
