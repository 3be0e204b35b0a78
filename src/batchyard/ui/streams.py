"""Changes of a state as server-sent events. One thread reads; each tab waits for what is new.

The thread runs only while somebody looks, and takes at most a fortieth of a core: after a slow
read it rests longer. Only the first read, of all that there is, is followed by the next one soon.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from batchyard.errors import BatchyardError, from_os_error
from batchyard.quick_dataclasses import dataclass

#: Shortest time between two events: at most two a second.
MIN_PAUSE_S = 0.5
#: A read that took a second of CPU time is followed by a rest of so many seconds, and one that
#: waited for a service.
_REST_FACTOR = 39.0
_REST_AFTER_WAIT = 3.0
#: A tab that has gone is noticed when something is sent to it.
HEARTBEAT_S = 5.0
_HEARTBEAT = b": still here\n\n"
#: Changes that are kept for tabs which have not taken them yet.
_MAX_CHANGES = 16


def format_event(name: str, value: Any) -> bytes:
    """Return one server-sent event. JSON has no line ends, so that the value is one line."""
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Change:
    """Events that came with one read."""

    version: int
    #: Topic -> the event. A tab gets the events of its topics.
    events: dict[str, bytes]


class Broadcast:
    """One reader for all tabs. Subclasses read and publish."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._version = 0
        self._changes: deque[Change] = deque(maxlen=_MAX_CHANGES)
        self._tabs = 0
        self._thread: threading.Thread | None = None

    # -- what subclasses do ----------------------------------------------------------------------

    def read_once(self) -> float | None:
        """Read the state and publish what is new; return the seconds until the next read.

        None: nothing changes any more.
        """
        raise NotImplementedError

    def describe_error(self, error: BatchyardError) -> None:
        """Publish that the state could not be read."""
        raise NotImplementedError

    def snapshot(self, topics: Sequence[str]) -> list[bytes]:
        """Return events with the whole state, for a tab that has just come."""
        raise NotImplementedError

    def release(self) -> None:
        """Give back what reading needs. Called by the thread that reads."""

    def publish(self, events: dict[str, bytes]) -> None:
        with self._condition:
            self._version += 1
            self._changes.append(Change(self._version, events))
            self._condition.notify_all()

    # -- tabs ------------------------------------------------------------------------------------

    @property
    def tabs(self) -> int:
        return self._tabs

    def follow(self, topics: Sequence[str], heartbeat_s: float = HEARTBEAT_S) -> Iterator[bytes]:
        """Return the events for one tab, until the caller closes the iterator."""
        with self._joined():
            sent: int | None = None
            while True:
                with self._condition:
                    if self._version == sent:
                        self._condition.wait(heartbeat_s)
                    changes = [c for c in self._changes if sent is not None and c.version > sent]
                    version, is_new = self._version, self._version != sent
                # Before the first read there was nothing to send.
                has_gap = not sent or len(changes) < version - sent
                sent = version
                if not is_new:
                    yield _HEARTBEAT
                elif has_gap:
                    yield b"".join(self.snapshot(topics))
                else:
                    events = [c.events[t] for c in changes for t in topics if t in c.events]
                    yield b"".join(events) or _HEARTBEAT

    @contextmanager
    def _joined(self) -> Iterator[None]:
        with self._condition:
            self._tabs += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._condition:
                self._tabs -= 1

    def _read(self) -> None:
        """Read until nobody looks, or nothing changes any more."""
        rest_factor = 0.0
        try:
            while True:
                delay_s = self._read_and_time(rest_factor)
                rest_factor = _REST_FACTOR
                if delay_s is None:
                    return
                end_s = time.monotonic() + delay_s
                while (left_s := end_s - time.monotonic()) > 0 and self._tabs:
                    time.sleep(min(left_s, MIN_PAUSE_S))
                with self._condition:
                    if not self._tabs:
                        self._thread = None
                        return
        finally:
            self.release()
            with self._condition:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _read_and_time(self, rest_factor: float) -> float | None:
        """Read, and return the seconds to rest; None if nothing changes any more."""
        began_s, began_cpu_s = time.monotonic(), time.thread_time()
        try:
            delay_s = self.read_once()
        except BatchyardError as error:
            self.describe_error(error)
            delay_s = HEARTBEAT_S
        except OSError as error:  # for example too many open files
            self.describe_error(from_os_error(error, "read the state"))
            delay_s = HEARTBEAT_S
        if delay_s is None:
            return None
        cpu_s, waited_s = time.thread_time() - began_cpu_s, time.monotonic() - began_s
        return max(MIN_PAUSE_S, delay_s, cpu_s * rest_factor, waited_s * _REST_AFTER_WAIT)


class Registry:
    """The broadcasts by name. Those that nobody follows are dropped when there are many."""

    _MAX_IDLE = 4

    def __init__(self, make: Callable[[str], Broadcast]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._broadcasts: dict[str, Broadcast] = {}

    def find(self, name: str) -> Broadcast:
        with self._lock:
            broadcast = self._broadcasts.pop(name, None) or self._make(name)
            idle = [key for key, value in self._broadcasts.items() if not value.tabs]
            for key in idle[: -self._MAX_IDLE]:
                del self._broadcasts[key]
            self._broadcasts[name] = broadcast
            return broadcast
