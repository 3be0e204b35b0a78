"""The state of a run in the form that the page draws: numbers of steps, and a table of children.

Pure: it gets what an engine has answered, and returns what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batchyard import progress, status
from batchyard.batch.jobs import JobState
from batchyard.engines.base import AttemptDetail, Overview, RunRecord, RunState
from batchyard.quick_dataclasses import dataclass
from batchyard.status import StepStatus
from batchyard.ui.child_table import ChildTable

#: Kinds of failures that the page lists.
MAX_FAILURE_GROUPS = 30


@dataclass(slots=True)
class FailureGroup:
    """Children of a step that failed for the same reason."""

    step: str
    reason: str
    exit_code: int | None
    children: int
    #: One of these children, whose output is shown.
    index: int
    attempt: int


class RunModel:
    """One run. ``update`` is called by one thread; ``document`` and the tables by the same."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self.tables = {job.step: ChildTable(job) for job in record.plan.jobs}
        self._groups: dict[tuple[str, str, int | None], FailureGroup] = {}
        #: Step -> CPU time of its ended attempts, and the memory of the largest one.
        self._cpu_s = dict.fromkeys(self.tables, 0.0)
        self._peak_kib = dict.fromkeys(self.tables, 0)
        #: Time of the newest end of an attempt.
        self.newest_ms = 0

    def add_attempts(self, attempts: Iterable[AttemptDetail]) -> dict[str, set[int]]:
        """Enter attempts that have ended; return step -> positions of children that changed."""
        changed: dict[str, set[int]] = {}
        for attempt in attempts:
            self.newest_ms = max(self.newest_ms, attempt.ended_ms)
            table = self.tables.get(attempt.step)
            position = None if table is None else table.record(attempt)
            if position is None:
                continue
            changed.setdefault(attempt.step, set()).add(position)
            self._measure(attempt)
            if attempt.state is JobState.FAILED:
                self._count_failure(attempt)
        return changed

    def _measure(self, attempt: AttemptDetail) -> None:
        peak_kib = max(self._peak_kib[attempt.step], attempt.peak_memory_kib)
        self._peak_kib[attempt.step] = peak_kib
        self._cpu_s[attempt.step] += attempt.cpu_s

    def _count_failure(self, attempt: AttemptDetail) -> None:
        reason = status.explain_failure(attempt)
        exit_code = attempt.exit_code if attempt.attempt else None
        key = (attempt.step, reason, exit_code)
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = FailureGroup(
                attempt.step, reason, exit_code, 1, attempt.index, attempt.attempt
            )
        else:
            group.children += 1

    def is_complete(self, overview: Overview) -> bool:
        """Return whether all ended attempts that the engine counts have been entered."""
        counts: dict[str, int] = {}
        for job in overview.jobs:
            counts[job.step] = counts.get(job.step, 0) + job.attempts
        return all(self.tables[step].attempts >= count for step, count in counts.items())

    def end_steps(self, overview: Overview) -> dict[str, set[int]]:
        """Mark the children that never start, of steps that are over."""
        changed = {}
        for step in status.step_statuses(overview.jobs):
            if step.state.is_terminal and (positions := self.tables[step.name].end_all()):
                changed[step.name] = positions
        return changed

    def document(
        self, overview: Overview, now_ms: int, notes: Sequence[str], waits: Sequence[str]
    ) -> dict[str, Any]:
        """Return the numbers of the run, without its children."""
        record = self._record
        steps = status.step_statuses(overview.jobs)
        counts = {step.name: [0] * len(JobState) for step in steps}
        for job in overview.jobs:
            for position, count in enumerate(job.counts):
                counts[job.step][position] += count
        groups = sorted(self._groups.values(), key=lambda group: -group.children)
        return {
            "run": record.run_id,
            "pipeline": record.plan.pipeline,
            "engine": record.engine.name,
            "state": overview.state.value,
            "started_ms": overview.started_ms or record.created_ms,
            "ended_ms": overview.ended_ms,
            "interruption": overview.interruption,
            "retry_of": record.retry_of,
            "file": record.file,
            "steps": [self._step(step, counts[step.name], now_ms) for step in steps],
            "failures": [_group_document(group) for group in groups[:MAX_FAILURE_GROUPS]],
            "more_failures": max(0, len(groups) - MAX_FAILURE_GROUPS),
            "waits": list(waits),
            "notes": [*notes, *map(status.explain_excess, overview.memory_excesses)],
        }

    def _step(self, step: StepStatus, counts: Sequence[int], now_ms: int) -> Mapping[str, Any]:
        planned = self._record.plan.job(step.name)
        work = progress.count_work(step)
        pace = progress.measure_pace(step, work, now_ms)
        return {
            "name": step.name,
            "state": step.state.value,
            "size": step.size,
            #: By state, in the order of AWS Batch.
            "counts": list(counts),
            "attempts": step.attempts,
            "reason": step.reason,
            "started_ms": step.started_ms,
            "ended_ms": step.ended_ms,
            "work": [work.done, work.total, work.failed],
            "in_commands": work.is_in_commands,
            "per_s": None if pace is None else pace.per_s,
            "left_s": None if pace is None else pace.left_s,
            "needs": [need.step for need in planned.needs],
            "is_array": planned.is_array or planned.size > 1,
            "cpu_s": self._cpu_s[step.name],
            "peak_kib": self._peak_kib[step.name],
            "requested": {
                "vcpus": planned.resources.vcpus,
                "memory_mib": planned.resources.memory_mib,
                "gpus": planned.resources.gpus,
            },
        }


def _group_document(group: FailureGroup) -> dict[str, Any]:
    return {
        "step": group.step,
        "reason": group.reason,
        "exit_code": group.exit_code,
        "children": group.children,
        "index": group.index,
        "attempt": group.attempt,
    }


def is_over(overview: Overview) -> bool:
    return overview.state is not RunState.RUNNING
