"""The progress of a run: which lines it prints, from the values of an engine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from batchyard.batch.jobs import JobState
from batchyard.cli.progress import ProgressLines, live_table
from batchyard.engines.base import AttemptDetail, JobDetail
from batchyard.status import step_statuses


def job(step: str = "work", ended_ms: int | None = None, **counts: int) -> JobDetail:
    """A job whose children are in these states, for example ``RUNNING=2``."""
    size = sum(counts.values())
    is_over = ended_ms is not None
    state = JobState.RUNNING
    if is_over:
        state = JobState.FAILED if counts.get("FAILED") else JobState.SUCCEEDED
    by_state = tuple(counts.get(state.value, 0) for state in JobState)
    return JobDetail("id", step, state, "", size, by_state, 0, 0, 1000, ended_ms)


def failed_attempt(index: int, state: JobState | None = JobState.FAILED) -> AttemptDetail:
    exited = "Essential container in task exited"
    return AttemptDetail("id", "work", index, 1, state, 3, "", exited, 0, 1000, 0.0, 0.0, 0)


def printed_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_a_step_has_a_line_when_it_starts_and_when_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = ProgressLines()
    progress.jobs_changed([job(RUNNING=1, RUNNABLE=2)])
    progress.jobs_changed([job(RUNNING=1, RUNNABLE=1, SUCCEEDED=1)])
    assert printed_lines(capsys) == ["work: started, 3 children"]
    progress.jobs_changed([job(ended_ms=2000, SUCCEEDED=3)])
    assert printed_lines(capsys) == ["work: SUCCEEDED 3/3 succeeded"]


def test_failures_are_explained_and_after_five_of_a_step_only_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = ProgressLines()
    progress.attempt_failed(failed_attempt(0, state=None))
    assert printed_lines(capsys) == ["work:0 attempt 1 failed: exit code 3; retrying"]
    for index in range(1, 9):
        progress.attempt_failed(failed_attempt(index))
    lines = printed_lines(capsys)
    assert lines[:-1] == [f"work:{index} attempt 1 failed: exit code 3" for index in range(1, 5)]
    assert lines[-1] == "work: further failures are not printed; see `batchyard status`"


def test_the_table_has_the_rate_and_the_remaining_time() -> None:
    steps = step_statuses([job(RUNNING=1, RUNNABLE=7, SUCCEEDED=2)])
    table = live_table(list(steps), now_ms=5000)
    cells = [next(iter(column.cells)) for column in table.columns]
    # 2 children in 4 s
    assert cells[2:] == ["2/10", "", "1", "30.0/min", "0:16"]


def test_the_display_loads_no_engine_and_no_database() -> None:
    code = (
        "import sys, batchyard.cli.progress;"
        "print([name for name in sys.modules if name.startswith(('sqlite3', 'batchyard.embedded',"
        " 'batchyard.engines.local', 'rich'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
