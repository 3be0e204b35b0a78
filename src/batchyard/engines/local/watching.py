"""The loop's rows as an engine's values, for the watcher of a run."""

from __future__ import annotations

from batchyard.embedded.runner import Task
from batchyard.embedded.store import AttemptRow, JobRow
from batchyard.engines.base import RunWatcher
from batchyard.engines.local.reading import attempt_detail, job_detail
from batchyard.plan import Plan


class RowWatcher:
    """The loop's watcher: passes on each row as a JobDetail or AttemptDetail."""

    def __init__(self, watcher: RunWatcher, plan: Plan) -> None:
        self._watcher = watcher
        self._plan = plan

    def on_tick(self, changed: list[JobRow]) -> None:
        self._watcher.on_tick([job_detail(row) for row in changed])

    def on_failure(self, task: Task, row: AttemptRow) -> None:
        planned = self._plan.job(task.step)
        self._watcher.on_failure(attempt_detail(row, task.job_id, planned))
