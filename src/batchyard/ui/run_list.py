"""Reads the list of runs, once for all tabs. A run that is over is read once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from batchyard import progress, runs, status
from batchyard.engines.base import Backoff, RunRecord, RunState
from batchyard.errors import BatchyardError
from batchyard.folder import RunFolder, runs_in
from batchyard.ui import bills
from batchyard.ui.streams import MIN_PAUSE_S, Broadcast, format_event

RUNS = "runs"
#: Runs that are read before the tabs get them: the first are shown at once, whatever their number.
_BATCH = 25
#: Seconds until a record that could not be read is read again, and until the runs that other
#: machines have begun are listed again.
_UNREADABLE_S = 10.0
_REMOTE_S = 60.0


class _OpenRun:
    """A run that is not over: when it is read next."""

    def __init__(self, record: RunRecord, clock: Callable[[], float]) -> None:
        self.record = record
        self._clock = clock
        engine = record.open()
        self._backoff = Backoff(engine.status_polling)
        engine.close()
        self.due_s = 0.0

    def plan_next(self, row: Any) -> None:
        self.due_s = self._clock() + self._backoff.next_delay_s(row)


class RunList(Broadcast):
    """See Broadcast."""

    def __init__(
        self,
        home: Path,
        list_remote: Callable[[], Sequence[str]] = lambda: (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``list_remote`` returns the ids of runs that another machine may have begun."""
        super().__init__()
        self._home = home
        self._list_remote = list_remote
        self._clock = clock
        self._remote: Sequence[str] = ()
        self._remote_due_s = float("-inf")
        self._order: list[str] = []
        self._rows: dict[str, dict[str, Any]] = {}
        self._open: dict[str, _OpenRun] = {}
        #: Run whose record could not be read -> when it is read again.
        self._unreadable: dict[str, float] = {}
        self._has_listed = False
        #: Why the runs of other machines could not be listed; empty if they were.
        self._trouble = ""
        #: Whether something must be published, though no row has changed.
        self._has_news = True

    def read_once(self) -> float | None:
        # First the runs of this machine: a service may take long to answer.
        if self._has_listed and self._clock() >= self._remote_due_s:
            self._remote_due_s = self._clock() + _REMOTE_S
            self._list_elsewhere()
        names = runs.names(self._home)
        elsewhere = _sort_newest_first(set(self._remote) - set(names))
        self._forget_all_but({*names, *elsewhere})
        changed = {name: _remote_row(name) for name in elsewhere if name not in self._rows}
        due = [name for name in names if self._is_due(name)]
        for name in due[:_BATCH]:
            row = self._read_row(name)
            if row != self._rows.get(name):
                changed[name] = row
        self._publish_changes(names + elsewhere, changed)
        return 0.0 if len(due) > _BATCH else MIN_PAUSE_S

    def _list_elsewhere(self) -> None:
        try:
            self._remote = self._list_remote()
            trouble = ""
        except BatchyardError as error:
            trouble = _explain(error)
        if trouble != self._trouble:
            self._trouble = trouble
            self._has_news = True

    def _forget_all_but(self, names: set[str]) -> None:
        for name in set(self._rows) - names:
            del self._rows[name]
            self._open.pop(name, None)
            self._unreadable.pop(name, None)

    def _publish_changes(self, order: list[str], changed: dict[str, dict[str, Any]]) -> None:
        if changed or order != self._order or self._has_news:
            self._has_listed, self._has_news = True, False
            self._rows |= changed
            self._order = order
            self.publish({RUNS: self._format(changed)})

    def _format(self, rows: dict[str, dict[str, Any]]) -> bytes:
        document = {"order": self._order, "rows": rows, "trouble": self._trouble}
        return format_event("runs", document)

    def _is_due(self, name: str) -> bool:
        if name in self._open:
            return self._clock() >= self._open[name].due_s
        if name in self._unreadable:
            return self._clock() >= self._unreadable[name]
        row = self._rows.get(name)
        return row is None or row["state"] == "ELSEWHERE"

    def _read_row(self, name: str) -> dict[str, Any]:
        try:
            if name not in self._open:
                record = runs.read(RunFolder(runs_in(self._home) / name))
                self._open[name] = _OpenRun(record, self._clock)
                self._unreadable.pop(name, None)
            entry = self._open[name]
            run_status = status.of_run(entry.record, max_failures=0)
        except BatchyardError as exc:
            # A run that cannot be read must not hide the others; it is read again later.
            if name in self._open:
                self._open[name].plan_next(exc.message)
                if name in self._rows:
                    return {**self._rows[name], "trouble": exc.message}
            else:
                self._unreadable[name] = self._clock() + _UNREADABLE_S
            return {"run": name, "state": "UNREADABLE", "trouble": exc.message}
        row = _to_row(entry.record, run_status)
        if run_status.state is RunState.RUNNING:
            entry.plan_next(row)
        else:
            del self._open[name]
        return row

    def describe_error(self, error: BatchyardError) -> None:
        self.publish({RUNS: format_event("trouble", _explain(error))})

    def snapshot(self, topics: Sequence[str]) -> list[bytes]:
        if not self._has_listed:
            return []
        return [self._format(dict(self._rows))]


def _explain(error: BatchyardError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _sort_newest_first(run_ids: set[str]) -> list[str]:
    """Return run ids by the day that they contain."""
    return sorted(run_ids, key=lambda run_id: run_id.rsplit("-", 2)[1:], reverse=True)


def _remote_row(name: str) -> dict[str, Any]:
    return {"run": name, "pipeline": runs.pipeline_of(name), "state": "ELSEWHERE"}


def _to_row(record: RunRecord, run_status: status.RunStatus) -> dict[str, Any]:
    work = progress.total_work(run_status.steps)
    return {
        "run": run_status.run,
        "pipeline": run_status.pipeline,
        "engine": run_status.engine,
        "state": "INTERRUPTED" if run_status.is_interrupted else run_status.state.value,
        "started_ms": run_status.started_ms,
        "ended_ms": run_status.ended_ms,
        "retry_of": run_status.retry_of,
        "steps": len(run_status.steps),
        "children": sum(step.size for step in run_status.steps),
        "failed": sum(step.failed for step in run_status.steps),
        "running": sum(step.running for step in run_status.steps),
        "work": [work.done, work.total, work.failed],
        "in_commands": work.is_in_commands,
        "paid_usd": bills.read_stored_usd(record),
    }
