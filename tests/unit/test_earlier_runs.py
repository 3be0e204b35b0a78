"""Lengths of commands that earlier runs tell, and the order that follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard import earlier_runs, engines, operations, runs
from batchyard import plan as planning
from batchyard.batch.jobs import JobState
from batchyard.embedded.store import AttemptRow, CommandRow, Store
from batchyard.engines.aws.target import Target
from batchyard.engines.base import Offer, PreparedRun, RunRecord, RunRequest, new_run_id
from batchyard.environments import Environment
from batchyard.errors import UnreachableServiceError
from batchyard.pipeline import Pipeline, Step
from batchyard.shard import DYNAMIC

LOCAL = engines.load("local")


def request(home: Path, commands: tuple[str, ...], **changes: object) -> RunRequest:
    fields = {"share_out": DYNAMIC, **changes}
    step = Step("a", commands=commands, **fields)  # type: ignore[arg-type]
    pipeline = Pipeline("rows", (step,), path=home / "rows.yaml")
    offer = Offer(cpus=2, memory_mib=4096)
    return RunRequest(planning.make(pipeline), pipeline, home / ".batchyard", offer)


def begin(home: Path, commands: tuple[str, ...], **changes: object) -> RunRecord:
    return operations.begin(LOCAL, request(home, commands, **changes))[0]


def end_children(record: RunRecord, seconds: dict[int, float]) -> None:
    """Record children that have succeeded, as an execution does."""
    store = Store.open(record.folder.database)
    store.commit(
        attempts=[
            AttemptRow(0, child, 1, JobState.SUCCEEDED, 0, "", "", 1000, 1000 + round(s * 1000))
            for child, s in seconds.items()
        ]
    )
    store.close()


def test_a_first_run_knows_nothing(tmp_path: Path) -> None:
    record = begin(tmp_path, ("a", "b"))
    assert (record.plan.lengths, record.plan.job("a").has_lengths) == ({}, False)
    assert record.folder.load_lengths("a") is None


def test_the_next_run_knows_what_each_command_took(tmp_path: Path) -> None:
    end_children(begin(tmp_path, ("a", "b", "c")), {0: 1.0, 1: 3.0, 2: 2.0})
    record = begin(tmp_path, ("a", "b", "c"))
    assert record.plan.job("a").has_lengths
    assert list(record.folder.load_lengths("a") or ()) == [1.0, 3.0, 2.0]


def test_commands_are_recognised_by_their_texts_in_several_runs(tmp_path: Path) -> None:
    end_children(begin(tmp_path, ("a", "b", "old")), {0: 1.0, 1: 3.0, 2: 2.0})
    end_children(begin(tmp_path, ("c", "b")), {0: 9.0, 1: 5.0})
    record = begin(tmp_path, ("b", "a", "new", "c"))
    # The newest run goes first, and its mean is expected of what is new.
    assert list(record.folder.load_lengths("a") or ()) == [5.0, 1.0, 7.0, 9.0]


def test_commands_of_children_with_several_tell_their_own_seconds(tmp_path: Path) -> None:
    earlier = begin(tmp_path, ("a", "b", "c"), share_out="static", array=2)
    store = Store.open(earlier.folder.database)
    rows = [CommandRow(0, n, 0, 1, code, 0, ms) for n, code, ms in [(0, 0, 500), (2, 1, 900)]]
    store.commit(commands=rows)
    store.close()
    assert list(begin(tmp_path, ("a", "z")).folder.load_lengths("a") or ()) == [0.5, 0.5]


def test_another_pipeline_or_a_broken_run_tells_nothing(tmp_path: Path) -> None:
    record = begin(tmp_path, ("a", "b"))
    end_children(record, {0: 1.0, 1: 2.0})
    record.folder.database.write_bytes(b"nonsense")
    assert not begin(tmp_path, ("a", "b")).plan.lengths


def test_weights_of_the_file_win(tmp_path: Path) -> None:
    end_children(begin(tmp_path, ("a", "b")), {0: 1.0, 1: 3.0})
    record = begin(tmp_path, ("a", "b"), weight=(7.0, 5.0))
    assert list(record.folder.load_lengths("a") or ()) == [7.0, 5.0]


def test_weights_of_a_static_step_are_ignored(tmp_path: Path) -> None:
    assert not begin(tmp_path, ("a", "b"), weight=(7.0, 5.0), share_out="static").plan.lengths


def test_a_retry_keeps_the_lengths(tmp_path: Path) -> None:
    record = begin(tmp_path, ("a", "b", "c"), weight=(1.0, 5.0, 7.0))
    end_children(record, {1: 1.0})
    store = Store.open(record.folder.database)
    store.commit(values=[("state", "FAILED")])
    store.close()
    retried = operations.begin_retry(record)
    assert retried.plan.job("a").indices == (0, 2)
    assert list(retried.folder.load_lengths("a") or ()) == [1.0, 5.0, 7.0]


def test_a_preview_says_when_the_step_would_end(tmp_path: Path) -> None:
    assert not operations.preview(LOCAL, request(tmp_path, ("a", "b"))).expectations
    end_children(begin(tmp_path, ("a", "b", "c")), {0: 1.0, 1: 3.0, 2: 2.0})
    preview = operations.preview(LOCAL, request(tmp_path, ("a", "b", "c", "d")))
    expectation = preview.expectations["a"]
    # d is expected to take 2 s.
    assert (expectation.slots, expectation.known, expectation.commands) == (2, 3, 4)
    assert (expectation.expected_s, expectation.lower_bound_s) == (4.0, 4.0)
    (job,) = preview.to_json("local")["jobs"]
    assert (job["expected_s"], job["lower_bound_s"]) == (4.0, 4.0)


def test_a_list_of_many_commands_must_not_have_changed(tmp_path: Path) -> None:
    end_children(begin(tmp_path, ("a", "b", "c")), {0: 1.0, 1: 3.0})
    plan = request(tmp_path, ("a", "b", "x")).plan
    records = earlier_runs.newest_records(plan, tmp_path / ".batchyard")
    assert earlier_runs.find_seconds(plan, records, ["a"], max_lookups=2) == {}
    plan = request(tmp_path, ("a", "b", "c")).plan
    found = earlier_runs.find_seconds(plan, records, ["a"], max_lookups=2)["a"]
    assert (list(found.values), found.known) == ([1.0, 3.0, 2.0], 2)


def begin_on_aws(home: Path, commands: tuple[str, ...]) -> RunRecord:
    plan = request(home, commands).plan
    where = Environment("lab", "us-east-1", "bucket", {"cpu": "q"})
    target = Target(where, new_run_id(plan), {"a": "x"}, "s3://bucket/w/", "me")
    prepared = PreparedRun(plan, target, target.run_id)
    return runs.begin(home / ".batchyard", engines.load("aws"), prepared, file=None)


def test_runs_of_other_engines_are_not_asked(tmp_path: Path) -> None:
    here = begin(tmp_path, ("a", "b"))
    end_children(here, {0: 1.0, 1: 3.0})
    on_aws = {begin_on_aws(tmp_path, ("a", "b")).run_id for _ in range(6)}
    plan, home = request(tmp_path, ("a", "b")).plan, tmp_path / ".batchyard"
    (found,) = earlier_runs.newest_records(plan, home, "local")
    assert found.run_id == here.run_id
    assert {record.run_id for record in earlier_runs.newest_records(plan, home, "aws")} < on_aws
    assert list(begin(tmp_path, ("a", "b")).folder.load_lengths("a") or ()) == [1.0, 3.0]


class Unreachable:
    """An engine whose service does not answer."""

    def __init__(self) -> None:
        self.calls = 0

    def open(self, record: RunRecord) -> Unreachable:
        return self

    def durations(self, step: str) -> Iterator[tuple[int, float]]:
        self.calls += 1
        raise UnreachableServiceError("no answer")

    def close(self) -> None:
        pass


def test_a_service_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    engine: Any = Unreachable()
    record = replace(begin(tmp_path, ("a", "b")), engine=engine)
    assert earlier_runs.find_seconds(record.plan, [record] * 5, ["a", "a"]) == {}
    assert engine.calls == 1
