"""Limits for the CPU time of code that must not explode: 20 times what it takes on an idle machine.

They find time that grows with the square of the input, or worse, on a slow or busy machine too.
How fast the code is, `make bench` measures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes more CPU time."""
    began = time.process_time()
    yield
    taken_s = time.process_time() - began
    assert taken_s < seconds, f"{taken_s:.2f} s of CPU time, and {seconds:.2f} s are allowed"
