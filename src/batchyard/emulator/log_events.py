"""Output of attempts as log events, from either end, without reading more of it than is asked for. Reads files.

An attempt's output is what the engine kept: a file of its own, a piece of short.log, or, where the engine died during
the attempt, the one and then the other. An event is a line without its newline, and ends where that is; a line that is
longer than awslogs sends at once is several events. Positions are offsets in the output; those between two events
never change, as output is only added to, and serve as tokens.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from batchyard.emulator.log_times import Times
from batchyard.emulator.names import AttemptKey

#: what CloudWatch Logs counts for an event besides its message
_EVENT_BYTES = 26
#: the most that awslogs puts into one event
MOST_IN_EVENT = (1 << 18) - _EVENT_BYTES
#: later than anything
LATEST_MS = 1 << 62
_FIRST_READ = 1 << 16
#: less, as all of a step is made into events before the last one is known
_FIRST_STEP_BACK = 1 << 12
_MOST_READ = 1 << 20
#: what is read at once of one of several streams
_BATCH = 256
_BATCH_BYTES = 1 << 15

#: (time, job's number, child, attempt, position): the order of events over all streams
Order = tuple[int, int, int, int, int]


class Event(NamedTuple):
    #: positions of its first byte, and after its last one (its newline)
    start: int
    end: int
    time_ms: int
    message: str


class Kept(NamedTuple):
    """Where an attempt's output is, as its row says; an attempt that runs has no row yet, and no end."""

    #: a file that may not exist; None where it is known not to
    own: Path | None
    started_ms: int
    #: not before the start
    ended_ms: int | None = None
    short_offset: int = 0
    short_length: int = 0


class Stream(NamedTuple):
    """One attempt's log."""

    key: AttemptKey
    name: str
    kept: Kept


class Window(NamedTuple):
    """What is wanted of several streams; both times are in it."""

    low_ms: int
    high_ms: int
    #: from the oldest to the newest
    is_rising: bool
    #: the last one that was looked at: it goes on from there
    after: Order | None = None


class Output:
    """Holds files open: to be closed."""

    def __init__(self, kept: Kept, short_log: int) -> None:
        """``short_log``: a descriptor of short.log, which stays the caller's."""
        self._kept = kept
        self._short_log = short_log
        self._own: int | None = None
        self._own_size = 0
        self._times: Times | None = None
        if kept.own is not None:
            with suppress(FileNotFoundError):
                self._own = os.open(kept.own, os.O_RDONLY | os.O_CLOEXEC)
                self._own_size = os.fstat(self._own).st_size
                self._times = Times(kept.own)
        self._size = self._own_size + kept.short_length
        #: where the last event ends: what follows may still become longer
        self.end = self._size if kept.ended_ms is not None else self._event_start(self._size)

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)
            self._own = None
        if self._times is not None:
            self._times.close()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- events -----------------------------------------------------------------------------------------------

    def forward(self, start: int, end: int) -> Iterator[Event]:
        """The events between two positions, first to last. Empty ones are left out, as CloudWatch Logs refuses them."""
        at, line = start, self._line_start(start)
        data, base, size = b"", start, _FIRST_READ
        time_ms, time_ends = 0, -1
        while at < end:
            cut = line + ((at - line) // MOST_IN_EVENT + 1) * MOST_IN_EVENT
            newline = data.find(b"\n", at - base, cut - base)
            stop = base + newline + 1 if newline >= 0 else min(cut, end)
            if newline < 0 and base + len(data) < stop:
                data, base = data[at - base :], at
                data += self._read(base + len(data), min(base + len(data) + size, end))
                size = min(2 * size, _MOST_READ)
                continue
            # Without a newline it is over when the attempt is, which is when it could be seen first.
            last = stop - 1 if newline >= 0 or stop == cut else stop
            if last >= time_ends:
                time_ms, time_ends = self._time_at(last)
            text = data[at - base : (newline if newline >= 0 else stop - base)]
            if text:
                yield Event(at, stop, time_ms, text.decode(errors="replace"))
            at = stop
            if newline >= 0:
                line = stop

    def backward(self, start: int, end: int) -> Iterator[Event]:
        """The same, last to first."""
        size = _FIRST_STEP_BACK
        while end > start:
            since = max(start, self._event_start(max(start, end - size)))
            yield from reversed(list(self.forward(since, end)))
            end, size = since, min(2 * size, _MOST_READ)

    def since(self, time_ms: int) -> int:
        """The position of the first event of that time or later."""
        kept, times = self._kept, self._times
        if time_ms <= kept.started_ms:
            return 0
        if kept.ended_ms is not None and time_ms > kept.ended_ms:
            return self.end
        entry = times.first_since(time_ms) if times is not None else 0
        if times is not None and entry < times.count:
            return min(self._event_start(times.offset(entry) if entry else 0), self.end)
        return self.end if kept.ended_ms is None else self._event_start(self._own_size)

    # -- bytes ------------------------------------------------------------------------------------------------

    def _read(self, start: int, end: int) -> bytes:
        data = b""
        if start < self._own_size:
            assert self._own is not None
            data = _read_exactly(self._own, start, min(end, self._own_size))
        if end > self._own_size:
            shift = self._kept.short_offset - self._own_size
            data += _read_exactly(self._short_log, max(start, self._own_size) + shift, end + shift)
        return data

    def _line_start(self, position: int) -> int:
        """Where the line begins that the position is in."""
        size = 256  # most lines are short
        while position > 0:
            since = max(0, position - size)
            found = self._read(since, position).rfind(b"\n")
            if found >= 0:
                return since + found + 1
            position, size = since, min(4 * size, _MOST_READ)
        return 0

    def _event_start(self, position: int) -> int:
        line = self._line_start(position)
        return position - (position - line) % MOST_IN_EVENT

    # -- times ------------------------------------------------------------------------------------------------

    def _time_at(self, position: int) -> tuple[int, int]:
        """When that byte was written, and from where on another time holds. Never before the attempt or after it."""
        kept, times = self._kept, self._times
        if position >= self._own_size and kept.ended_ms is not None:
            return kept.ended_ms, self._size + 1
        if times is None or not times.count:
            return kept.started_ms, self._own_size
        # The first entry also speaks for what was written before there were any.
        entry = max(0, times.entry_of(position))
        ends = times.offset(entry + 1) if entry + 1 < times.count else self._own_size
        time_ms = times.time_ms(entry)
        if kept.ended_ms is not None:
            time_ms = min(time_ms, kept.ended_ms)
        return max(time_ms, kept.started_ms), ends


def _read_exactly(fd: int, start: int, end: int) -> bytes:
    data = os.pread(fd, end - start, start)
    while len(data) < end - start:
        more = os.pread(fd, end - start - len(data), start + len(data))
        if not more:
            # Lost in a power cut. Positions stay what they were, and empty lines are no events.
            return data + b"\n" * (end - start - len(data))
        data += more
    return data


# -- several ----------------------------------------------------------------------------------------------------


def size_of(event: Event) -> int:
    return event.end - event.start + _EVENT_BYTES


def page_of(events: Iterator[Event], most: int, most_bytes: int) -> list[Event]:
    """As many as fit, and one in any case."""
    page: list[Event] = []
    total = 0
    for event in islice(events, most):
        total += size_of(event)
        if page and total > most_bytes:
            break
        page.append(event)
    return page


def merged(
    streams: Iterable[Stream], window: Window, short_log: int
) -> Iterator[tuple[Order, Stream, Event]]:
    """The events of all streams in order of time. A stream is looked into when its time has come."""
    sign = 1 if window.is_rising else -1
    after = None if window.after is None else _signed(window.after, sign)
    # Each stream is in the heap once, with its next event, or with a time before which it has none.
    heap: list[tuple[Order, Stream, Event | None, Iterator[Event]]] = [
        (_first_order(stream, window, sign), stream, None, _events(stream, window, short_log))
        for stream in streams
    ]
    heapq.heapify(heap)
    while heap:
        order, stream, event, rest = heap[0]
        if event is not None and (after is None or order > after):
            yield _signed(order, sign), stream, event
        event = next(rest, None)
        if event is None:
            heapq.heappop(heap)
        else:
            next_order = _signed((event.time_ms, *stream.key, event.start), sign)
            heapq.heapreplace(heap, (next_order, stream, event, rest))


def _first_order(stream: Stream, window: Window, sign: int) -> Order:
    """Not after its first event."""
    kept = stream.kept
    if window.is_rising:
        # What is only in short.log all has the time of the end.
        first_ms = (
            kept.started_ms if kept.own is not None or kept.ended_ms is None else kept.ended_ms
        )
        return _signed((max(first_ms, window.low_ms), *stream.key, -1), sign)
    last_ms = LATEST_MS if kept.ended_ms is None else kept.ended_ms
    return _signed((min(last_ms, window.high_ms), *stream.key, LATEST_MS), sign)


def _events(stream: Stream, window: Window, short_log: int) -> Iterator[Event]:
    """One stream's, in batches, between which its files are closed: there may be more streams than files."""
    low: int | None = None
    high = 0
    while True:
        with Output(stream.kept, short_log) as output:
            if low is None:
                low, high = output.since(window.low_ms), output.since(window.high_ms + 1)
                if window.after is not None and window.after[1:4] == stream.key:
                    # On the way up that event is found again, and passed over for its order.
                    position = window.after[4]
                    low, high = (
                        (max(low, position), high)
                        if window.is_rising
                        else (low, min(high, position))
                    )
            events = output.forward(low, high) if window.is_rising else output.backward(low, high)
            batch = page_of(events, _BATCH, _BATCH_BYTES)
        if not batch:
            return
        yield from batch
        low, high = (batch[-1].end, high) if window.is_rising else (low, batch[-1].start)
        if low >= high:
            return


def _signed(order: Order, sign: int) -> Order:
    return order if sign == 1 else (-order[0], -order[1], -order[2], -order[3], -order[4])
