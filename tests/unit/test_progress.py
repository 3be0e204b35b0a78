"""The progress of a run: which lines it prints, from the values of an engine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import click
import pytest

from batchyard.batch.jobs import JobState
from batchyard.cli.progress import ProgressLines
from batchyard.cli.progress_table import Pace, progress_lines
from batchyard.engines.base import AttemptDetail, CommandCounts, JobDetail
from batchyard.status import StepStatus, step_statuses


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


def test_commands_are_counted_where_the_engine_knows_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now_s = 100.0
    progress = ProgressLines(clock=lambda: now_s)

    def tell(succeeded: int, failed: int, **states: int) -> None:
        counts = CommandCounts(total=40, succeeded=succeeded, failed=failed)
        progress.jobs_changed([replace(job(**states), commands=counts)])  # type: ignore[arg-type]

    tell(0, 0, RUNNING=4)
    assert printed_lines(capsys) == ["work: started, 40 commands"]
    now_s = 110.0
    tell(18, 2, RUNNING=4)
    assert printed_lines(capsys) == [
        "20 of 40 commands done, 2 failed, 0:10 left, 2.0/s, 4 running"
    ]
    tell(30, 2, ended_ms=2000, FAILED=2, SUCCEEDED=2)
    assert printed_lines(capsys) == ["work: FAILED 30/40 succeeded, 2 failed"]


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


def test_lines_are_in_the_order_of_the_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["first", "second", "third"]
    progress = ProgressLines(names)
    progress.jobs_changed([job(name, RUNNING=1) for name in ("third", "first", "second")])
    assert printed_lines(capsys) == [f"{name}: started, 1 child" for name in names]


def test_every_ten_seconds_a_line_has_the_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    names = [f"s{number}" for number in range(8)]
    progress = ProgressLines(names, clock=lambda: now_s)
    # Eight children were done when the display began: they say nothing about the rate.
    progress.jobs_changed([job(name, RUNNING=1, SUCCEEDED=1, RUNNABLE=3) for name in names])
    printed_lines(capsys)
    now_s = 110.0
    progress.jobs_changed([job(name, RUNNING=1, SUCCEEDED=2, RUNNABLE=2) for name in names[:5]])
    lines = printed_lines(capsys)
    assert lines[0] == "13 of 40 children done, 0:54 left, 30.0/min, 8 running"
    assert lines[1:6] == [f"{name}: 2/5 succeeded, 1 running" for name in names[:5]]
    assert lines[6:] == ["3 more steps running"]


def display(steps: list[StepStatus], width: int = 80, height: int = 24) -> list[str]:
    lines = progress_lines(steps, Pace(2, 4.0), now_ms=5000, width=width, height=height)
    return [click.unstyle(line) for line in lines]


def test_the_table_has_the_rate_and_the_remaining_time() -> None:
    steps = step_statuses(
        [job(RUNNING=1, RUNNABLE=7, SUCCEEDED=2), job("after", PENDING=1)],
    )
    lines = display(steps)
    # 2 children in 4 s
    assert lines[0] == "2 of 11 children done, 0:18 left, 30.0/min, 1 running"
    assert lines[1].split() == ["step", "done", "running", "rate", "left"]
    assert lines[2].split()[2:] == ["2/10", "1", "30.0/min", "0:16"]
    assert lines[3].split()[2:] == ["0/1"]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("count", [1, 3, 500])
def test_the_display_fits_the_terminal(width: int, count: int) -> None:
    name = "a-step-with-quite-a-long-name"
    jobs = [
        job(f"{name}-{number}", RUNNING=1, RUNNABLE=70_000, SUCCEEDED=20_000, FAILED=10_000)
        for number in range(count)
    ]
    lines = display(step_statuses(jobs), width, height=24)
    assert max(map(len, lines)) <= width
    assert len(lines) < 24
    assert " done" in lines[0]
    assert (" failed, " in lines[0] and " left" in lines[0]) or width == 40
    assert lines[-1] == "480 more steps: 480 running" or count < 500


def test_of_many_steps_the_running_and_failed_ones_are_shown_in_their_order() -> None:
    jobs = [job(f"s{number}", ended_ms=2000, SUCCEEDED=1) for number in range(500)]
    jobs[7] = job("s7", ended_ms=2000, FAILED=1)
    jobs[300] = job("s300", RUNNING=1)
    jobs[301:] = [
        replace(job(f"s{number}", PENDING=1), state=JobState.PENDING) for number in range(301, 500)
    ]
    lines = display(step_statuses(jobs), height=10)
    names = [line.split()[0] for line in lines[2:-1]]
    assert names == ["s7", "s300", "s301", "s302", "s303", "s304"]
    assert lines[-1] == "494 more steps: 195 waiting, 299 done"


def test_the_display_loads_no_engine_and_no_database() -> None:
    code = (
        "import sys, batchyard.cli.progress;"
        "print([name for name in sys.modules if name.startswith(('sqlite3', 'batchyard.embedded',"
        " 'batchyard.engines.local', 'rich'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
