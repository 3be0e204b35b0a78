"""The states that a job has passed between two looks at it."""

from __future__ import annotations

import pytest

from batchyard.batch.jobs import JobState
from batchyard.emulator.job_events import list_passed_states


@pytest.mark.parametrize(
    ("last", "current", "has_run", "passed"),
    [
        ("SUBMITTED", "RUNNABLE", False, []),
        ("SUBMITTED", "PENDING", False, []),
        ("SUBMITTED", "RUNNING", True, ["RUNNABLE", "STARTING"]),
        ("PENDING", "STARTING", False, ["RUNNABLE"]),
        ("SUBMITTED", "SUCCEEDED", True, ["RUNNABLE", "STARTING", "RUNNING"]),
        ("STARTING", "FAILED", True, ["RUNNING"]),
        ("RUNNABLE", "FAILED", False, []),
        ("RUNNING", "RUNNABLE", False, []),
        (None, "RUNNING", True, []),
    ],
)
def test_a_job(last: str | None, current: str, has_run: bool, passed: list[str]) -> None:
    states = list_passed_states(last and JobState(last), JobState(current), has_run, False)
    assert [state.value for state in states] == passed


def test_the_parent_of_an_array() -> None:
    submitted, succeeded = JobState.SUBMITTED, JobState.SUCCEEDED
    assert list_passed_states(submitted, succeeded, False, True) == [JobState.PENDING]
    assert list_passed_states(JobState.PENDING, succeeded, False, True) == []
