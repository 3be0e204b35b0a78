"""Reads one run through its engine, once for all tabs, and publishes what is new."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

from batchyard import wait_reasons
from batchyard.batch.jobs import JobState
from batchyard.engines.base import Backoff, Overview, RunEngine, RunRecord
from batchyard.errors import BatchyardError
from batchyard.ui.bills import BillReader
from batchyard.ui.child_table import ChildTable
from batchyard.ui.run_model import RunModel, is_over
from batchyard.ui.streams import Broadcast, format_event

#: The topic of the run's numbers; that of a step's children is the name of the step after a colon.
RUN = "run"
#: An attempt is recorded so long after its end, at most; else it is found by its count.
_LATE_MS = 400
#: Least time between two questions for why children wait, and between two reads of all attempts.
_WAITS_S = 10.0
_WHOLE_READ_S = 5.0
#: If there are more attempts, the numbers of a run are sent before they are read the first time:
#: 100,000 take a second.
_MANY_ATTEMPTS = 2000

Changed = dict[str, set[int]]


def children_topic(step: str) -> str:
    return f":{step}"


class RunReader(Broadcast):
    """See Broadcast. The model is changed only by the thread that reads."""

    def __init__(self, record: RunRecord, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._record = record
        self._clock = clock
        self._model = RunModel(record)
        self._bills = BillReader(record)
        self._engine: RunEngine | None = None
        self._backoff: Backoff | None = None
        self._last: Overview | None = None
        self._document: dict[str, Any] | None = None
        self._waits: Sequence[str] = ()
        #: Steps with children that wait for a host.
        self._waiting_steps: Sequence[str] = ()
        self._waits_at_s = self._whole_read_at_s = float("-inf")

    def read_once(self) -> float | None:
        if self._engine is None:
            self._engine = self._record.open()
            self._backoff = Backoff(self._engine.status_polling)
        engine = self._engine
        overview = engine.overview()
        if self._last is None and sum(job.attempts for job in overview.jobs) > _MANY_ATTEMPTS:
            self._publish(self._make_first_document(engine, overview), {})
        # A tab that has only numbers gets the children of all steps, changed or not.
        has_numbers_only = self._last is None and self._document is not None
        changed: Changed = {}
        if self._last is None or overview.jobs != self._last.jobs or is_over(overview):
            changed = self._read_children(engine, overview)
        _merge(changed, self._read_running(engine, overview))
        _merge(changed, self._model.end_steps(overview))
        if has_numbers_only:
            changed = {step: set(range(table.size)) for step, table in self._model.tables.items()}
        self._last = overview
        self._publish(self._make_document(engine, overview), changed)
        if is_over(overview):
            return None
        assert self._backoff is not None
        return self._backoff.next_delay_s(overview.jobs)

    def _read_children(self, engine: RunEngine, overview: Overview) -> Changed:
        model = self._model
        job_ids = [job.id for job in overview.jobs]
        if self._last is None:
            return model.add_attempts(engine.attempts(job_ids))
        since_ms = model.newest_ms - _LATE_MS
        changed = model.add_attempts(engine.attempts(job_ids, since_ms=since_ms))
        is_due = time.monotonic() - self._whole_read_at_s > _WHOLE_READ_S
        if not model.is_complete(overview) and (is_due or is_over(overview)):
            self._whole_read_at_s = time.monotonic()
            _merge(changed, model.add_attempts(engine.attempts(job_ids)))
        return changed

    def _read_running(self, engine: RunEngine, overview: Overview) -> Changed:
        children = () if is_over(overview) else engine.running_children(overview.jobs)
        if children is None:
            return {}
        by_step: dict[str, list[int]] = {step: [] for step in self._model.tables}
        for step, index in children:
            by_step[step].append(index)
        changed = {}
        for step, indices in by_step.items():
            if positions := self._model.tables[step].set_running(indices):
                changed[step] = positions
        return changed

    def _make_first_document(self, engine: RunEngine, overview: Overview) -> dict[str, Any]:
        """Return the numbers of the run alone: nothing that takes long to find."""
        notes = [engine.answer_source] if engine.answer_source else []
        document = self._model.document(overview, int(self._clock() * 1000), notes, ())
        return {**document, "bill": None, "waiting_steps": [], "is_whole": False}

    def _make_document(self, engine: RunEngine, overview: Overview) -> dict[str, Any]:
        now_ms = int(self._clock() * 1000)
        if is_over(overview):
            self._waits = self._waiting_steps = ()
        elif time.monotonic() - self._waits_at_s > _WAITS_S:
            self._waits_at_s = time.monotonic()
            self._waits = self._describe_waits(engine, overview, now_ms)
        notes = [engine.answer_source] if engine.answer_source else []
        document = self._model.document(overview, now_ms, notes, self._waits)
        bill = self._bills.read(engine, is_over=is_over(overview))
        waiting = list(self._waiting_steps)
        return {**document, "bill": bill, "waiting_steps": waiting, "is_whole": True}

    def _describe_waits(self, engine: RunEngine, overview: Overview, now_ms: int) -> Sequence[str]:
        """Return what the run waits for, if nothing of it runs or children wait for a host."""
        waits = engine.waits(overview.jobs)
        self._waiting_steps = sorted({wait.step for wait in waits or ()})
        runs_something = any(job.count(JobState.RUNNING) for job in overview.jobs)
        if runs_something and not waits:
            return ()
        plan = self._record.plan
        return wait_reasons.describe_waits(plan, overview.jobs, waits, None, now_ms)

    def _publish(self, document: dict[str, Any], changed: Changed) -> None:
        events = {
            children_topic(step): _children_event(step, self._model.tables[step], positions)
            for step, positions in changed.items()
            if positions
        }
        if document != self._document:
            self._document = document
            events[RUN] = format_event("run", document)
        if events:
            self.publish(events)

    def describe_error(self, error: BatchyardError) -> None:
        hint = f"; {error.hint}" if error.hint else ""
        self.publish({RUN: format_event("trouble", f"{error.message}{hint}")})

    def snapshot(self, topics: Sequence[str]) -> list[bytes]:
        document = self._document
        if document is None:
            return []
        if self._last is None:  # the children are being read
            return [format_event("run", document)]
        events = [
            _children_event(step, table, None)
            for step, table in self._model.tables.items()
            if children_topic(step) in topics
        ]
        return [format_event("run", document), *events]

    def release(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _merge(changed: Changed, more: Changed) -> None:
    for step, positions in more.items():
        changed.setdefault(step, set()).update(positions)


def _children_event(step: str, table: ChildTable, positions: set[int] | None) -> bytes:
    """Return the event with these children, or with all if that is shorter."""
    document: dict[str, Any] = {"step": step}
    if positions is None or len(positions) * 4 > table.size * 3:
        document["records"] = b64encode(table.pack()).decode()
        if table.indices is not None:
            document["indices"] = _encode_numbers(table.indices)
    else:
        ordered = sorted(positions)
        document["positions"] = _encode_numbers(ordered)
        document["records"] = b64encode(table.pack(ordered)).decode()
    return format_event("children", document)


def _encode_numbers(numbers: Sequence[int]) -> str:
    return b64encode(pack(f"<{len(numbers)}I", *numbers)).decode()
