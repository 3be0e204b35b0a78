"""Log events made from the output of attempts, read from either end and only as far as needed.

The output of an attempt is a file of its own, a piece of short.log, or, if the engine died during
the attempt, first the one and then the other. An event is a line without its newline; a line that
is longer than awslogs sends at once becomes several events. A position is an offset in the output.
Output only grows, so the positions between events never change and can serve as tokens.
"""

from __future__ import annotations

import heapq
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from batchyard.emulator.log_times import WriteTimes
from batchyard.emulator.names import AttemptKey

#: Bytes that CloudWatch Logs counts for an event besides its message.
_EVENT_OVERHEAD_BYTES = 26
#: The longest message of an event that awslogs sends.
MAX_MESSAGE_BYTES = (1 << 18) - _EVENT_OVERHEAD_BYTES
#: A time after all others.
LATEST_MS = 1 << 62
_FIRST_READ_BYTES = 1 << 16
#: Backward reads start smaller: the whole step becomes events before the last one is known.
_FIRST_STEP_BACK_BYTES = 1 << 12
_MAX_READ_BYTES = 1 << 20
#: Read at once from one of several streams.
_BATCH_EVENTS = 256
_BATCH_BYTES = 1 << 15

#: (time, job number, child, attempt, position): the order of events over all streams.
Order = tuple[int, int, int, int, int]


class Event(NamedTuple):
    #: Position of the first byte, and the position after the newline.
    start: int
    end: int
    time_ms: int
    message: str


class AttemptOutput(NamedTuple):
    """Where the output of an attempt is."""

    #: The attempt's own file, which may not exist; None if it is known not to exist.
    path: Path | None
    started_ms: int
    #: Not before the start; None for a running attempt.
    ended_ms: int | None = None
    #: The piece of short.log.
    short_offset: int = 0
    short_length: int = 0
    #: Share of the lines that are lost (see ``_is_dropped``).
    drop_share: float = 0.0
    #: Later events have not appeared yet.
    newest_ms: int = LATEST_MS


class Stream(NamedTuple):
    """The log stream of an attempt."""

    key: AttemptKey
    name: str
    output: AttemptOutput


class TimeRange(NamedTuple):
    """The events to read from several streams. Both times are included."""

    low_ms: int
    high_ms: int
    is_oldest_first: bool
    #: The last event that was read; reading continues after it.
    last_order: Order | None = None


class OutputReader:
    """Reads the events of an attempt. Holds files open until ``close``."""

    def __init__(self, output: AttemptOutput, short_log_fd: int) -> None:
        """``short_log_fd``: a descriptor of short.log, which stays open."""
        self._output = output
        self._short_log_fd = short_log_fd
        self._file_fd: int | None = None
        self._file_size = 0
        self._times: WriteTimes | None = None
        if output.path is not None:
            with suppress(FileNotFoundError):
                self._file_fd = os.open(output.path, os.O_RDONLY | os.O_CLOEXEC)
                self._file_size = os.fstat(self._file_fd).st_size
                self._times = WriteTimes(output.path)
        self._size = self._file_size + output.short_length
        #: The position after the last complete event. The line after it may still grow.
        self.end = self._size if output.ended_ms is not None else self._event_start(self._size)
        if output.newest_ms < LATEST_MS:
            self.end = self.position_since(output.newest_ms + 1)

    def close(self) -> None:
        if self._file_fd is not None:
            os.close(self._file_fd)
            self._file_fd = None
        if self._times is not None:
            self._times.close()

    def __enter__(self) -> OutputReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- events -----------------------------------------------------------------------------------

    def forward(self, start: int, end: int) -> Iterator[Event]:
        """Yield the events between two positions, oldest first.

        Empty lines are left out, because CloudWatch Logs refuses empty events.
        """
        position, line_start = start, self._line_start(start)
        buffer, buffer_start, read_bytes = b"", start, _FIRST_READ_BYTES
        time_ms, time_end = 0, -1
        while position < end:
            pieces = (position - line_start) // MAX_MESSAGE_BYTES + 1
            cut = line_start + pieces * MAX_MESSAGE_BYTES
            newline = buffer.find(b"\n", position - buffer_start, cut - buffer_start)
            has_newline = newline >= 0
            stop = buffer_start + newline + 1 if has_newline else min(cut, end)
            if not has_newline and buffer_start + len(buffer) < stop:
                buffer, buffer_start = buffer[position - buffer_start :], position
                read_start = buffer_start + len(buffer)
                buffer += self._read(read_start, min(read_start + read_bytes, end))
                read_bytes = min(2 * read_bytes, _MAX_READ_BYTES)
                continue
            # A last line without a newline is complete when the attempt ends, which is its time.
            last_byte = stop - 1 if has_newline or stop == cut else stop
            if last_byte >= time_end:
                time_ms, time_end = self._time_at(last_byte)
            text = buffer[position - buffer_start : stop - buffer_start - has_newline]
            if text and not self._is_dropped(line_start):
                yield Event(position, stop, time_ms, text.decode(errors="replace"))
            position = stop
            if has_newline:
                line_start = stop

    def _is_dropped(self, line_start: int) -> bool:
        """Return whether a line is lost; the answer for a line is always the same."""
        output = self._output
        if not output.drop_share:
            return False
        digest = zlib.crc32(f"{output.started_ms} {line_start}".encode())
        return digest < output.drop_share * (1 << 32)

    def backward(self, start: int, end: int) -> Iterator[Event]:
        """Yield the events between two positions, newest first."""
        step_bytes = _FIRST_STEP_BACK_BYTES
        while end > start:
            step_start = max(start, self._event_start(max(start, end - step_bytes)))
            yield from reversed(list(self.forward(step_start, end)))
            end, step_bytes = step_start, min(2 * step_bytes, _MAX_READ_BYTES)

    def position_since(self, time_ms: int) -> int:
        """Return the position of the first event that is not older than a time."""
        output, times = self._output, self._times
        if time_ms <= output.started_ms:
            return 0
        if output.ended_ms is not None and time_ms > output.ended_ms:
            return self.end
        entry = times.first_since(time_ms) if times is not None else 0
        if times is not None and entry < times.count:
            return min(self._event_start(times.offset(entry) if entry else 0), self.end)
        if output.ended_ms is None:
            return self.end
        return min(self._event_start(self._file_size), self.end)

    # -- bytes ------------------------------------------------------------------------------------

    def _read(self, start: int, end: int) -> bytes:
        data = b""
        if start < self._file_size:
            assert self._file_fd is not None
            data = _read_exactly(self._file_fd, start, min(end, self._file_size))
        if end > self._file_size:
            shift = self._output.short_offset - self._file_size
            short_start = max(start, self._file_size) + shift
            data += _read_exactly(self._short_log_fd, short_start, end + shift)
        return data

    def _line_start(self, position: int) -> int:
        """Return the start of the line that contains a position."""
        step_bytes = 256  # Most lines are short.
        while position > 0:
            step_start = max(0, position - step_bytes)
            newline = self._read(step_start, position).rfind(b"\n")
            if newline >= 0:
                return step_start + newline + 1
            position, step_bytes = step_start, min(4 * step_bytes, _MAX_READ_BYTES)
        return 0

    def _event_start(self, position: int) -> int:
        line_start = self._line_start(position)
        return position - (position - line_start) % MAX_MESSAGE_BYTES

    # -- times ------------------------------------------------------------------------------------

    def _time_at(self, position: int) -> tuple[int, int]:
        """Return when a byte was written, and the position from which another time holds.

        The time is between the start and the end of the attempt.
        """
        output, times = self._output, self._times
        if position >= self._file_size and output.ended_ms is not None:
            return output.ended_ms, self._size + 1
        if times is None or not times.count:
            return output.started_ms, self._file_size
        # Bytes before the first entry have its time.
        entry = max(0, times.entry_at(position))
        end = times.offset(entry + 1) if entry + 1 < times.count else self._file_size
        time_ms = times.time_ms(entry)
        if output.ended_ms is not None:
            time_ms = min(time_ms, output.ended_ms)
        return max(time_ms, output.started_ms), end


def _read_exactly(fd: int, start: int, end: int) -> bytes:
    data = os.pread(fd, end - start, start)
    while len(data) < end - start:
        chunk = os.pread(fd, end - start - len(data), start + len(data))
        if not chunk:
            # The bytes were lost in a power cut. Newlines keep all positions as they were, and
            # empty lines are not events.
            return data + b"\n" * (end - start - len(data))
        data += chunk
    return data


# -- several streams ------------------------------------------------------------------------------


def event_bytes(event: Event) -> int:
    return event.end - event.start + _EVENT_OVERHEAD_BYTES


def take_page(events: Iterator[Event], max_events: int, max_bytes: int) -> list[Event]:
    """Return as many events as fit both limits, and at least one."""
    page: list[Event] = []
    page_bytes = 0
    for event in islice(events, max_events):
        page_bytes += event_bytes(event)
        if page and page_bytes > max_bytes:
            break
        page.append(event)
    return page


def merge_streams(
    streams: Iterable[Stream], time_range: TimeRange, short_log_fd: int
) -> Iterator[tuple[Order, Stream, Event]]:
    """Yield the events of all streams in order of time. A stream is opened when its turn comes."""
    sign = 1 if time_range.is_oldest_first else -1
    last_order = None if time_range.last_order is None else _with_sign(time_range.last_order, sign)
    # Each stream is in the heap once: with its next event, or with a time before its first event.
    heap: list[tuple[Order, Stream, Event | None, Iterator[Event]]] = [
        (
            _lower_bound(stream, time_range, sign),
            stream,
            None,
            _stream_events(stream, time_range, short_log_fd),
        )
        for stream in streams
    ]
    heapq.heapify(heap)
    while heap:
        order, stream, event, events = heap[0]
        if event is not None and (last_order is None or order > last_order):
            yield _with_sign(order, sign), stream, event
        event = next(events, None)
        if event is None:
            heapq.heappop(heap)
        else:
            next_order = _with_sign((event.time_ms, *stream.key, event.start), sign)
            heapq.heapreplace(heap, (next_order, stream, event, events))


def _lower_bound(stream: Stream, time_range: TimeRange, sign: int) -> Order:
    """Return an order that is not after the first event of the stream."""
    output = stream.output
    if time_range.is_oldest_first:
        # All output in short.log has the time of the attempt's end.
        is_short = output.path is None and output.ended_ms is not None
        first_ms = output.ended_ms if is_short else output.started_ms
        assert first_ms is not None
        return _with_sign((max(first_ms, time_range.low_ms), *stream.key, -1), sign)
    last_ms = LATEST_MS if output.ended_ms is None else output.ended_ms
    return _with_sign((min(last_ms, time_range.high_ms), *stream.key, LATEST_MS), sign)


def _stream_events(stream: Stream, time_range: TimeRange, short_log_fd: int) -> Iterator[Event]:
    """Yield the events of one stream.

    They are read in batches, and the files are closed between batches, because there may be more
    streams than files that a process can open.
    """
    low: int | None = None
    high = 0
    while True:
        with OutputReader(stream.output, short_log_fd) as reader:
            if low is None:
                low, high = _position_range(reader, stream, time_range)
            is_oldest_first = time_range.is_oldest_first
            events = reader.forward(low, high) if is_oldest_first else reader.backward(low, high)
            batch = take_page(events, _BATCH_EVENTS, _BATCH_BYTES)
        if not batch:
            return
        yield from batch
        low, high = (batch[-1].end, high) if is_oldest_first else (low, batch[-1].start)
        if low >= high:
            return


def _position_range(reader: OutputReader, stream: Stream, time_range: TimeRange) -> tuple[int, int]:
    low = reader.position_since(time_range.low_ms)
    high = reader.position_since(time_range.high_ms + 1)
    last_order = time_range.last_order
    if last_order is None or last_order[1:4] != stream.key:
        return low, high
    position = last_order[4]
    if time_range.is_oldest_first:
        # The range contains the last event that was read. merge_streams drops it by its order.
        return max(low, position), high
    return low, min(high, position)


def _with_sign(order: Order, sign: int) -> Order:
    """Return the order, or with sign -1 an order that sorts the other way round."""
    return order if sign == 1 else (-order[0], -order[1], -order[2], -order[3], -order[4])
