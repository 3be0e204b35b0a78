"""One HTML page about a run. This module asks the engine; all others here are functions of values.

- figures: ended attempts to a few numbers a step; lanes: who ran beside whom
- timeline, durations, tables, failures: figures to the parts of the page; page: the parts to the document
- markup: HTML and SVG that cannot forget to escape; amounts: numbers in words, round numbers for axes
"""

from __future__ import annotations

from collections.abc import Sequence

import batchyard
from batchyard import shard, status
from batchyard.engines.base import RunRecord
from batchyard.report.failures import MAX_SHOWN
from batchyard.report.page import About, page
from batchyard.status import RunStatus


def of_run(record: RunRecord, now_ms: int) -> str:
    """The page about the run as it is now; of one that is not over, what is there so far."""
    shown = status.of_run(record, max_failures=MAX_SHOWN)
    engine = record.open()
    setup = engine.setup()
    about = About(
        plan=record.plan,
        capacity=setup.capacity,
        runner=setup.runner,
        workspace=setup.workspace,
        now_ms=now_ms,
        version=batchyard.__version__,
        file=record.file,
        retry_of=record.retry_of,
        commands=_commands(record, shown),
    )
    try:
        return page(shown, engine.attempts(engine.job_ids), about)
    finally:
        engine.close()


def _commands(record: RunRecord, shown: RunStatus) -> dict[tuple[str, int], tuple[str, ...]]:
    """What the failed children were asked to run."""
    lists: dict[str, Sequence[str]] = {}
    found: dict[tuple[str, int], tuple[str, ...]] = {}
    for failure in shown.failures:
        step, index = failure.attempt.step, failure.attempt.index
        job = record.plan.job(step)
        if job.command is not None:
            found[step, index] = (job.command,)
        else:
            if step not in lists:
                lists[step] = _list_of(record, step)
            numbers = shard.commands_of(job.command_count, index, job.step_size)
            found[step, index] = tuple(lists[step][numbers.start : numbers.stop])
    return found


def _list_of(record: RunRecord, step: str) -> Sequence[str]:
    try:
        return record.folder.load_list(step)
    except (OSError, ValueError):
        # The page is about what happened; that a list was removed since is no reason to withhold it.
        return ()
