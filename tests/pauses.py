"""Waiting for a condition without using up the machine."""

from __future__ import annotations

import time


def pause(since: float) -> None:
    """Sleep before the next look at what began at `since`, by time.monotonic().

    The first looks follow one another at once; later ones come when the wait has become a tenth
    longer. A look may cost a request or a whole command, and other tests need the processor.
    """
    time.sleep(min(max(0.01, (time.monotonic() - since) / 10), 0.5))
