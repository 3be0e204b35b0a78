"""The children of one step as arrays: what the grid of the page draws. Pure.

A child is 12 bytes, in memory and on the way to the browser: state (1), attempts (1), exit code
(2), seconds (4), memory in KiB (4), all little-endian. page/children.js reads the same form.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from enum import IntEnum

from batchyard.batch.jobs import JobState
from batchyard.engines.base import AttemptDetail
from batchyard.plan import PlannedJob

_RECORD = struct.Struct("<BBhfI")
RECORD_BYTES = _RECORD.size
#: The exit code of a child that has none.
NO_EXIT_CODE = -1
_MAX_ATTEMPTS = 255
_EXIT_CODES = range(-32768, 32768)
_MAX_KIB = 2**32 - 1


class ChildState(IntEnum):
    """What the page shows of a child. The numbers are those of page/children.js."""

    WAITING = 0
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    #: An attempt has failed, and another one follows.
    RETRYING = 4
    #: The child failed without an attempt.
    NEVER_STARTED = 5


_ENDED = {JobState.SUCCEEDED: ChildState.SUCCEEDED, JobState.FAILED: ChildState.FAILED}
#: States of children that may start, or start again.
_OPEN = frozenset({ChildState.WAITING, ChildState.RUNNING, ChildState.RETRYING})


class ChildTable:
    """The children of a step, by their position in the job: a retry may leave children out."""

    def __init__(self, job: PlannedJob) -> None:
        self.size = job.size
        #: Index in the step of each child; None if it is the position.
        self.indices = job.indices
        self._positions = (
            None
            if job.indices is None
            else {index: position for position, index in enumerate(job.indices)}
        )
        self._records = bytearray(_RECORD.pack(0, 0, NO_EXIT_CODE, 0.0, 0) * job.size)
        self._running: set[int] = set()
        #: Number of attempts that have ended, of all children.
        self.attempts = 0

    def position_of(self, index: int) -> int | None:
        """Return the position of a child; None if the step has no such child."""
        if self._positions is not None:
            return self._positions.get(index)
        return index if 0 <= index < self.size else None

    def state_of(self, position: int) -> ChildState:
        return ChildState(self._records[position * RECORD_BYTES])

    def attempts_of(self, position: int) -> int:
        return self._records[position * RECORD_BYTES + 1]

    def record(self, attempt: AttemptDetail) -> int | None:
        """Enter an attempt that has ended; return the position of its child if that is news."""
        position = self.position_of(attempt.index)
        if position is None or self._is_known(position, attempt):
            return None
        state = ChildState.RETRYING if attempt.state is None else _ENDED[attempt.state]
        if not attempt.attempt:
            state = ChildState.NEVER_STARTED
        else:
            self.attempts += 1
        exit_code = attempt.exit_code
        if exit_code is None or exit_code not in _EXIT_CODES:
            exit_code = NO_EXIT_CODE
        _RECORD.pack_into(
            self._records,
            position * RECORD_BYTES,
            state,
            min(_MAX_ATTEMPTS, attempt.attempt),
            exit_code,
            attempt.duration_s,
            min(_MAX_KIB, max(0, attempt.peak_memory_kib)),
        )
        return position

    def _is_known(self, position: int, attempt: AttemptDetail) -> bool:
        if not attempt.attempt:
            return self.state_of(position) is ChildState.NEVER_STARTED
        return attempt.attempt <= self.attempts_of(position)

    def set_running(self, indices: Iterable[int]) -> set[int]:
        """Enter which children run now; return the positions of those that changed."""
        positions = {self.position_of(index) for index in indices}
        running = {p for p in positions if p is not None and self.state_of(p) in _OPEN}
        changed = running ^ self._running
        for position in changed:
            if position in running:
                self._set_state(position, ChildState.RUNNING)
            elif self.state_of(position) is ChildState.RUNNING:
                has_tried = self.attempts_of(position) > 0
                self._set_state(position, ChildState.RETRYING if has_tried else ChildState.WAITING)
        self._running = running
        return changed

    def end_all(self) -> set[int]:
        """Mark children as never started that have no attempt although the step is over."""
        states = self._records[::RECORD_BYTES]
        if not any(state in states for state in _OPEN):
            return set()
        changed = {position for position, state in enumerate(states) if state in _OPEN}
        for position in changed:
            has_tried = self.attempts_of(position) > 0
            self._set_state(position, ChildState.FAILED if has_tried else ChildState.NEVER_STARTED)
        self._running = set()
        return changed

    def _set_state(self, position: int, state: ChildState) -> None:
        self._records[position * RECORD_BYTES] = state

    def pack(self, positions: Collection[int] | None = None) -> bytes:
        """Return the records of these children, or of all."""
        if positions is None:
            return bytes(self._records)
        view = memoryview(self._records)
        return b"".join(view[p * RECORD_BYTES : (p + 1) * RECORD_BYTES] for p in positions)
