"""What children use, on the page: in the charts of a run, and beside the log of a child."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from small_runs import begin_run, execute, small_steps
from ui_client import serve

from batchyard import report, status
from batchyard.embedded import running_use
from batchyard.embedded.lock import RunLock
from batchyard.embedded.store import AttemptRow, Store
from batchyard.embedded.use_table import WHOLE_ATTEMPT, UseRow
from batchyard.sampling.samples import AttemptUse, SampledUse, Series

#: More than this process has: a child that is recorded as soon as it starts has that, too.
MEMORY_KIB = 9000 * 1024
SERIES = Series((0.5, 1.5), (100, 9000), (40, None), (1000, 9000))
USE = SampledUse(2, 4.0, 1.0, 1.5, MEMORY_KIB, 40.0, 80.0, 9000, 16384, SERIES)


def test_the_page_draws_steps_and_children_as_the_report_does(tmp_path: Path) -> None:
    record = begin_run(tmp_path / ".batchyard", *small_steps())
    execute(record)
    with closing(Store.open(record.folder.database)) as store:
        store.commit(uses=[UseRow(1, 2, 1, WHOLE_ATTEMPT, USE)])
    with serve(record.home) as page:
        charts = page.get("/api/charts", run=record.run_id, state="FAILED").text
        sampled = page.get("/api/use", run=record.run_id, step="work", index=2).text
        other = page.get("/api/use", run=record.run_id, step="work", index=1).text
        child = page.get("/api/child", run=record.run_id, step="work", index=2).json()
    assert "<h2>Resources</h2>" in charts
    assert "work:2, attempt 1: 4.00 s" in charts
    assert "<h2>Attempt 1: 4.00 s</h2>" in sampled
    assert "at most 8.8 GiB of 16 GiB" in sampled
    assert sampled.count("<figure>") == charts.count("<figure>") == 4
    assert "<figure>" not in other
    assert child["attempts"][0]["memory_kib"] == MEMORY_KIB


def test_an_attempt_that_has_just_ended_counts_once(tmp_path: Path) -> None:
    """The file with what runs is replaced every few seconds, and the end is recorded before."""
    record = begin_run(tmp_path / ".batchyard", *small_steps())
    with closing(Store.open(record.folder.database)) as store:
        store.commit(
            attempts=[AttemptRow(1, 2, 1, "SUCCEEDED", 0, "", "", 0, 4000)],
            uses=[UseRow(1, 2, 1, WHOLE_ATTEMPT, USE)],
        )
    attempts = [AttemptUse("work", index, 1, USE) for index in (2, 3)]
    record.folder.running_use.write_text(running_use.to_text(attempts))
    lock = RunLock(record.folder.lock)
    try:
        (step,) = status.of_run(record).uses
        ended = report.uses_of_child(record, "work", 2)
        running = report.uses_of_child(record, "work", 3)
        record.folder.running_use.write_text('[{"version": 2}]')
        (later_step,) = status.of_run(record).uses
    finally:
        lock.release()
    assert (step.use.samples, later_step.use.samples) == (4, 2)
    assert ended.count("<h2>Attempt 1: ") == ended.count("<h2>Attempt 1") == 1
    assert "<h2>Attempt 1, so far: " in running
