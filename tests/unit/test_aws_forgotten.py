"""A run with jobs that AWS has forgotten: later jobs show whether the forgotten ones succeeded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from test_aws_given_up import PIPELINE, Account, begun

from batchyard.engines.aws.run import AwsRun
from batchyard.engines.base import RunRecord, RunState, Unfinished

DAY_S = 86_400


def opened(record: RunRecord, account: Account, days: float) -> AwsRun:
    """So many days later."""
    return AwsRun(
        record,
        account,  # type: ignore[arg-type]
        clock=lambda: time.time() + days * DAY_S,
    )


def submitted(folder: Path, pipeline: str = PIPELINE) -> tuple[Account, RunRecord]:
    """By default a, b, c: each plain, and each after the one before."""
    account, record = Account(), begun(folder, pipeline)
    opened(record, account, 0).submit(record.plan)
    return account, record


def states(engine: AwsRun) -> list[str]:
    return [job.state.value for job in engine.overview().jobs]


ENDED = {"status": "FAILED", "stoppedAt": 9}


@pytest.mark.parametrize(
    "b, c, expected",
    [
        (
            {"status": "RUNNING"},
            {"status": "PENDING", "startedAt": None},
            ["SUCCEEDED", "RUNNING", "PENDING"],
        ),
        (
            {"status": "RUNNABLE", "startedAt": None},
            {"status": "PENDING"},
            ["SUCCEEDED", "RUNNABLE", "PENDING"],
        ),
        (ENDED, {**ENDED, "startedAt": None}, ["SUCCEEDED", "FAILED", "FAILED"]),
        # It never began: why is not known any more.
        (
            {**ENDED, "startedAt": None},
            {**ENDED, "startedAt": None},
            ["FAILED", "FAILED", "FAILED"],
        ),
    ],
)
def test_what_is_forgotten_is_known_by_what_came_after(
    tmp_path: Path, b: dict[str, Any], c: dict[str, Any], expected: list[str]
) -> None:
    account, record = submitted(tmp_path)
    account.jobs["id-b"] |= b
    account.jobs["id-c"] |= c
    del account.jobs["id-a"]
    engine = opened(record, account, 8)
    assert states(engine) == expected
    assert engine.answer_source.startswith("AWS Batch has forgotten 1 of the run's 3 jobs: ")
    assert ("of a:" in engine.answer_source) == (expected[0] == "FAILED")
    # Nobody has seen all of it: it is not kept as the end.
    assert not (record.folder.path / "final.json").exists()


def test_what_is_not_known_in_its_first_week_is_not_forgotten(tmp_path: Path) -> None:
    account, record = submitted(tmp_path)
    account.jobs.clear()
    engine = opened(record, account, 6.9)
    assert (
        states(engine) == ["SUBMITTED"] * 3
        and engine.overview().state is RunState.RUNNING
        and not engine.answer_source
    )
    engine = opened(record, account, 7.1)
    assert states(engine) == ["FAILED"] * 3 and engine.overview().state is RunState.FAILED
    assert engine.unfinished() == Unfinished({"a": [0], "b": [0], "c": [0]}, {})


def test_a_child_that_had_nothing_to_run_is_no_sign_that_its_step_began(tmp_path: Path) -> None:
    """a failed, and b with more children than commands never began."""
    account, record = submitted(
        tmp_path,
        "name: p\nimage: x\nsteps:\n  - {name: a, command: 'false'}\n"
        "  - {name: b, needs: [a], commands: ['true', 'true'], array: 3}\n",
    )
    account.jobs.clear()
    engine = opened(record, account, 8)
    assert states(engine) == ["FAILED", "FAILED"]
    assert engine.unfinished() == Unfinished({"a": [0], "b": [1, 2]}, {"b": []})


def test_one_that_was_stopped_and_forgotten_was_stopped(tmp_path: Path) -> None:
    account, record = submitted(tmp_path)
    engine = opened(record, account, 0)
    engine.stop(engine.job_ids, "stopped by the user")
    account.jobs.clear()
    assert opened(record, account, 8).overview().state is RunState.STOPPED


def test_what_somebody_else_has_kept_comes_first(tmp_path: Path) -> None:
    account, record = submitted(tmp_path)
    for job in account.jobs.values():
        job |= {"status": "SUCCEEDED", "stoppedAt": 9}
    opened(record, account, 0).overview()
    (record.folder.path / "final.json").unlink()  # S3 has it
    del account.jobs["id-b"]
    engine = opened(record, account, 8)
    assert [job.ended_ms for job in engine.overview().jobs] == [9] * 3 and not engine.answer_source
    assert engine.unfinished().children == {"a": [], "b": [], "c": []}


def test_a_retry_asks_aws_of_nothing_that_was_kept(tmp_path: Path) -> None:
    account, record = submitted(tmp_path)
    account.jobs["id-a"] |= {"status": "SUCCEEDED", "stoppedAt": 9}
    account.jobs["id-b"] |= ENDED
    account.jobs["id-c"] |= ENDED
    opened(record, account, 0).overview()
    account.jobs.clear()
    assert opened(record, account, 8).unfinished().children == {"a": [], "b": [0], "c": [0]}
