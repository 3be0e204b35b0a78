"""Turn SIGINT and SIGTERM into a request to stop that cannot be lost."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

#: seconds after the first signal in which further ones raise nothing: `docker stop` or a terminal
#: may send two at once, and the second must not disturb the clean-up that the first one started
_REPEAT_S = 1.0


class StopSignals:
    """Handler of SIGINT and SIGTERM: raises KeyboardInterrupt, and remembers the request to stop.

    An exception raised by a signal handler is lost where C code drops it: in ``__del__``, in a
    ctypes callback, while a Cython module is imported. So the handler stays active, and the
    measuring code calls ``raise_if_requested`` between two calls of what it measures.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_at_s: float | None = None
        self._is_over = False

    def install(self) -> None:
        """Handle SIGINT and SIGTERM of this process; only the main thread may call this."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.handle)

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, unless the program stops already."""
        if self._is_over:
            return
        now_s = self._clock()
        if self._first_at_s is None:
            self._first_at_s = now_s
        elif now_s - self._first_at_s < _REPEAT_S:
            return
        raise KeyboardInterrupt

    def raise_if_requested(self) -> None:
        """Raise KeyboardInterrupt if a signal has come, even if its exception was lost."""
        if self._first_at_s is not None and not self._is_over:
            raise KeyboardInterrupt

    def finish(self) -> None:
        """Ignore all further signals: the program has reacted and is about to end.

        The handler stays installed. Setting SIG_IGN instead would let Python report a signal that
        has come and is not handled yet.
        """
        self._is_over = True


class DelayedSignals:
    """Holds SIGINT and SIGTERM back while a process is started.

    An exception of a handler would otherwise leave ``Popen`` after the process was made and before
    its caller has its pid, and nobody could end it.
    """

    def __init__(self) -> None:
        self._arrived: list[int] = []
        self._handlers: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return  # Handlers run in the main thread.
        for signum in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(signum)
            # A process inherits that a signal is ignored, so this must not change.
            if callable(handler):
                self._handlers[signum] = handler
                signal.signal(signum, lambda number, frame: self._arrived.append(number))

    def deliver(self) -> None:
        """Restore the handlers, and call them for the signals that have arrived."""
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        for signum in self._arrived:
            signal.raise_signal(signum)
