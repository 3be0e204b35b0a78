"""When children leave spot instances, and which of them go on, on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from batchyard import Pipeline as PythonPipeline
from batchyard import Step as PythonStep
from batchyard import plan as planning
from batchyard.batch.jobs import JobState
from batchyard.engines.aws.retry_rules import count_attempts
from batchyard.engines.aws.spot_fallback import can_move, find_fallback, make_notes
from batchyard.engines.aws.target import Target, from_json, to_json
from batchyard.engines.base import AttemptDetail, Fallback, JobDetail, Unfinished
from batchyard.environments import Environment
from batchyard.errors import PipelineFileError
from batchyard.pipeline import Need, Pipeline, SpotRule, Step
from batchyard.plan import Plan
from batchyard.supervision import SpotPatience

QUEUES = {"cpu": "spot", "cpu_on_demand": "steady"}
TARGET = Target(Environment("lab", "us-east-1", "b", QUEUES), "p-1", {}, "s3://b/w/", "me")
RECLAIMED = "Host EC2 (instance i-0123) terminated."


def make_plan(*steps: Step) -> Plan:
    return planning.make(Pipeline("p", steps, spot=SpotRule(reclaims=2)))


def failure(step: str, index: int, reason: str = RECLAIMED) -> AttemptDetail:
    return AttemptDetail(
        *("job", step, index, 2, JobState.FAILED, None, "", reason, 0, 1000, 0.0, 0.0, 0)
    )


def find(
    plan: Plan,
    failed: Sequence[AttemptDetail],
    unfinished: Mapping[str, Sequence[int]],
    waited: Sequence[str] = (),
    target: Target = TARGET,
) -> Fallback | None:
    return find_fallback(plan, target, failed, waited, Unfinished(unfinished, {}))


ONE = make_plan(
    Step("a", "true", array=4), Step("b", "true", needs=(Need("a"),)), Step("c", "true", array=2)
)


def test_reclaimed_children_go_on_and_the_steps_after_them_stay_on_spot() -> None:
    moved = find(ONE, [failure("a", 1), failure("a", 3)], {"a": [1, 3], "b": [0], "c": []})
    assert moved == Fallback({"a": [1, 3], "b": [0], "c": []}, ("a",), reclaimed=2)


def test_children_that_failed_otherwise_do_not_go_on() -> None:
    failed = [failure("a", 1), failure("a", 2, "Essential container in task exited")]
    moved = find(ONE, failed, {"a": [1, 2], "b": [0], "c": []})
    # Step b needs all children of a, so it cannot run either.
    assert moved == Fallback({"a": [1]}, ("a",), reclaimed=1)


def test_a_step_that_waited_goes_on_whole() -> None:
    assert find(ONE, [], {"a": [0, 1, 2, 3], "b": [0], "c": []}, ["a"]) == Fallback(
        {"a": [0, 1, 2, 3], "b": [0], "c": []}, ("a",), waited=4
    )


def test_a_step_that_was_reclaimed_before_it_waited_goes_on_whole() -> None:
    failed = [failure("a", 1), failure("a", 2, "Essential container in task exited")]
    moved = find(ONE, failed, {"a": [0, 1, 2], "b": [0], "c": []}, ["a"])
    assert moved == Fallback({"a": [0, 1]}, ("a",), reclaimed=2)


PAIRS = make_plan(
    Step("a", "true", array=4), Step("b", "true", array=4, needs=(Need("a", each=True),))
)


def test_a_child_goes_on_behind_the_one_that_it_waits_for() -> None:
    """Child 1 of b did not begin, since child 1 of a was reclaimed."""
    moved = find(PAIRS, [failure("a", 1), failure("b", 2)], {"a": [1], "b": [1, 2]})
    assert moved == Fallback({"a": [1], "b": [1, 2]}, ("a", "b"), reclaimed=2)


def test_a_child_does_not_go_on_if_the_one_that_it_waits_for_does_not() -> None:
    failed = [failure("a", 0, "Essential container in task exited"), failure("a", 1)]
    moved = find(PAIRS, failed, {"a": [0, 1], "b": [0, 1, 2]}, ["b"])
    assert moved == Fallback({"a": [1], "b": [1, 2]}, ("a", "b"), reclaimed=1, waited=2)


def test_nothing_goes_on_twice_or_from_a_queue_of_its_own() -> None:
    assert find(ONE, [failure("a", 1, "exit")], {"a": [1]}) is None
    moved_before = replace(TARGET, on_demand_steps=frozenset({"a"}))
    assert find(ONE, [failure("a", 1)], {"a": [1]}, target=moved_before) is None
    own_queue = make_plan(Step("a", "true", queue="mine"))
    assert find(own_queue, [failure("a", 0)], {"a": [0]}) is None
    # Nor are such steps ended because they wait.
    assert can_move(ONE, TARGET, "a")
    assert not can_move(ONE, moved_before, "a") and not can_move(own_queue, TARGET, "a")


@pytest.mark.parametrize(
    ("max_reclaims", "retries", "has_worker", "attempts"),
    [
        (None, 0, False, 3),
        (None, 0, True, 3),
        # the last reclaim is not followed by another attempt on spot
        (2, 0, False, 2),
        (1, 0, False, 1),
        (1, 0, True, 1),
        (2, 1, True, 3),
        (9, 9, True, 10),
    ],
)
def test_a_child_is_tried_on_spot_as_often_as_it_may_be_reclaimed(
    max_reclaims: int | None, retries: int, has_worker: bool, attempts: int
) -> None:
    job = make_plan(Step("a", "true", retries=retries)).job("a")
    target = replace(TARGET, max_reclaims=max_reclaims)
    assert count_attempts(job, target, has_worker=has_worker) == attempts
    moved = replace(target, on_demand_steps=frozenset({"a"}))
    assert count_attempts(job, moved, has_worker=has_worker) == retries + 1
    assert (target.queue_of(job), moved.queue_of(job)) == ("spot", "steady")
    assert from_json(to_json(moved)) == moved


def test_the_plan_names_steps_that_are_reclaimed_more_often_than_the_rule_says() -> None:
    plan = make_plan(
        Step("exact", "true", array=2),
        Step("plain", "true", retries=3),
        Step("worker", "true", retries=1, outputs=("x",)),
        Step("kept", "true", retries=3, queue="own"),
    )
    target = replace(TARGET, max_reclaims=2)
    notes = [note for note in make_notes(plan, target) if "together" in note]
    assert [(note.split(":")[1].strip(), note[note.index("after") :]) for note in notes] == [
        ("plain", "after 4 reclaims, not 2. It is exact with `retries: 0`"),
        ("worker", "after 3 reclaims, not 2. It is exact with `retries: 0`"),
    ]


def test_patience_begins_again_when_a_child_starts_or_ends() -> None:
    patience = SpotPatience(10)

    def look(now_s: float, *states: JobState) -> list[str]:
        counts = tuple(states.count(state) for state in JobState)
        job = JobDetail("j", "a", JobState.PENDING, "", len(states), counts, 0, 0, None, None)
        return list(patience.find_stuck_steps([job], now_s))

    waits, runs, done = JobState.RUNNABLE, JobState.RUNNING, JobState.SUCCEEDED
    assert look(0, waits, waits) == [] and look(9, waits, waits) == []
    assert look(9.5, waits, runs) == []
    assert look(20, waits, done) == [] and look(29, waits, done) == []
    assert look(30, waits, done) == ["a"]
    # Once: its jobs are ended by now.
    assert look(99, waits, done) == []
    assert look(100, done, done) == []


def test_the_keys_of_the_file_are_in_the_plan() -> None:
    def read(**keys: object) -> Pipeline:
        return PythonPipeline("p", [PythonStep("a", command="true")], **keys).model

    pipeline = read(spot={"fallback_after": 2})
    assert pipeline.spot == SpotRule(reclaims=2)
    plan = planning.make(pipeline)
    assert planning.from_json(planning.to_json(plan)) == plan
    waiting = PythonPipeline("p", [PythonStep("a", command="true")], spot={"fallback_after": "15m"})
    assert waiting.model.spot == SpotRule(wait_s=900)
    assert "spot:\n  fallback_after: 900s\n" in str(waiting)
    with pytest.raises(PipelineFileError) as caught:
        read(spot={"fallback_after": 0})
    assert 'fallback_after is "0"; write a number of reclaims from 1 to 10' in str(caught.value)
    with pytest.raises(PipelineFileError, match="spot has no fallback_after"):
        read(spot={})
    with pytest.raises(PipelineFileError, match="soon"):
        read(spot={"fallback_after": "soon"})


def test_a_file_with_a_misspelt_key_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="fallback_after"):
        PythonPipeline("p", [PythonStep("a", command="true")], spot={"fallback": 2})
