"""Limits for the CPU time of a piece of code that hold on a slow or busy machine too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

#: CPU seconds of `_work` on the machine that the limits were written for, when it was idle
REFERENCE_S = 0.0063


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes more CPU time than this on the machine of REFERENCE_S.

    A core that is shared with a busy neighbour does less in a second of CPU time. How much less is
    measured before and after the block.
    """
    slowness = _slowness()
    began = time.process_time()
    yield
    taken_s = time.process_time() - began
    limit_s = seconds * max(1.0, slowness, _slowness())
    assert taken_s < limit_s, f"{taken_s:.2f} s of CPU time, and {limit_s:.2f} s are allowed here"


def _slowness() -> float:
    return _work() / REFERENCE_S


def _work() -> float:
    began = time.process_time()
    total = 0
    for number in range(100_000):
        total += number * number % 7
    return time.process_time() - began
