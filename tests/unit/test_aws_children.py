"""Which children are asked about: those that may have changed, as few at a time as there are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from batchyard.batch.jobs import JobState, StatusReason
from batchyard.engines.aws.changed_children import ChangedChildren
from batchyard.engines.aws.render import Part
from batchyard.engines.base import JobDetail

S, R, B, W = JobState.SUCCEEDED, JobState.RUNNING, JobState.RUNNABLE, JobState.PENDING


class Array:
    """One array job of AWS's, which counts who is asked about."""

    def __init__(self, states: Sequence[JobState]) -> None:
        self.states = list(states)
        #: children with an attempt behind them
        self.retried: set[int] = set()
        #: the numbers of each DescribeJobs
        self.asked: list[list[int]] = []
        self.listed = 0
        #: ids of children that never started
        self.idle: set[str] = set()
        self.part = Part("run-a", "a", len(self.states), 0, "d", {})

    def describe(self, job_ids: Sequence[str]) -> dict[str, Any]:
        numbers = [int(job_id.partition(":")[2]) for job_id in job_ids]
        self.asked += [numbers[first : first + 100] for first in range(0, len(numbers), 100)]
        return {
            f"id:{n}": {
                "jobId": f"id:{n}",
                "status": self.states[n],
                "attempts": [{}] if n in self.retried or self.states[n].is_terminal else [],
            }
            for n in numbers
        }

    def children(self, array_id: str, state: str) -> Iterator[str]:
        self.listed += 1
        return (f"id:{n}" for n, found in enumerate(self.states) if found == state)

    def started_children(self, array_id: str, state: str) -> Iterator[str]:
        return (
            child_id for child_id in self.children(array_id, state) if child_id not in self.idle
        )

    def detail(self, reason: str = "") -> JobDetail:
        is_over = all(state.is_terminal for state in self.states)
        state = (
            JobState.PENDING
            if not is_over
            else JobState.FAILED
            if JobState.FAILED in self.states
            else S
        )
        counts = tuple(self.states.count(one) for one in JobState)
        return JobDetail("id", "a", state, reason, len(self.states), counts, 0, 1, None, None)


def numbers(found: Iterator[tuple[Part, Any]]) -> list[int]:
    return sorted(int(job["jobId"].partition(":")[2]) for _, job in found)


def look(children: ChangedChildren, array: Array, *, is_thorough: bool = False) -> list[int]:
    array.asked.clear()
    return numbers(children.look([(array.part, array.detail())], is_thorough=is_thorough))


def test_who_has_not_begun_is_not_asked_about() -> None:
    array = Array([W] * 10_000)
    assert look(ChangedChildren(array), array) == []  # type: ignore[arg-type]
    assert array.asked == []


def test_who_has_ended_is_asked_about_once() -> None:
    array = Array([S] * 50 + [R] * 50 + [B] * 900)
    children = ChangedChildren(array)  # type: ignore[arg-type]
    assert look(children, array) == list(range(100))
    # nothing has changed: those that run, in one call
    assert look(children, array) == list(range(50, 100)) and len(array.asked) == 1
    array.states[:150] = [S] * 100 + [R] * 50
    found = look(children, array)
    assert set(range(50, 150)) <= set(found) and not set(range(50)) & set(found)
    assert len(array.asked) == 2
    array.states = [S] * 1_000
    assert look(children, array) == list(range(100, 1_000))
    assert look(children, array) == [] and array.asked == []


def test_a_look_at_a_large_array_is_limited_and_all_is_found_in_the_end() -> None:
    """Children in any order, each of them too quick to be seen running."""
    array = Array([W] * 10_000)
    children = ChangedChildren(array)  # type: ignore[arg-type]
    order = random.Random(4).sample(range(10_000), 10_000)
    found: set[int] = set()
    for first in range(0, 10_000, 500):
        for number in order[first : first + 500]:
            array.states[number] = S
        seen = look(children, array)
        assert not found & {n for n in seen if array.states[n] is S}
        found |= {n for n in seen if array.states[n] is S}
        # While it goes on: the first hundred and four more. Once it is over: all that is left.
        assert len(array.asked) <= 5 or array.states.count(S) == 10_000
    assert len(found) == 10_000


def test_who_runs_out_of_order_is_found_at_once() -> None:
    array = Array([W] * 10_000)
    array.states[9_000] = array.states[9_500] = R
    children = ChangedChildren(array)  # type: ignore[arg-type]
    assert {9_000, 9_500} <= set(look(children, array))
    assert array.listed == 1 and len(array.asked) == 2
    assert look(children, array) == [9_000, 9_500]
    assert array.listed == 1


def test_a_thorough_look_finds_all_that_have_begun_and_no_more_than_it_must() -> None:
    array = Array([S, W] * 300 + [W] * 9_400)
    assert {
        n for n in look(ChangedChildren(array), array, is_thorough=True) if array.states[n] is S
    } == set(range(0, 600, 2))  # type: ignore[arg-type]
    assert len(array.asked) == 6


def test_who_is_between_two_attempts_is_still_asked_about() -> None:
    array = Array([R, W, W])
    children = ChangedChildren(array)  # type: ignore[arg-type]
    assert 0 in look(children, array)
    array.states[0], array.retried = B, {0}
    assert look(children, array) == [0]
    array.states[0:2] = [R, R]
    assert {0, 1} <= set(look(children, array))


def test_failed_ones_are_listed_only_where_there_are_more() -> None:
    array = Array([S, JobState.FAILED, R, R])
    children = ChangedChildren(array)  # type: ignore[arg-type]

    def failed() -> list[int]:
        return numbers(children.look_at_failed([(array.part, array.detail())]))

    assert failed() == [1] and array.listed == 1
    assert failed() == [] and array.listed == 1
    array.states[3] = JobState.FAILED
    assert failed() == [3] and array.listed == 2


def test_failed_ones_that_never_started_are_not_described() -> None:
    array = Array([JobState.FAILED] * 5_000)
    array.idle = {f"id:{number}" for number in range(2, 5_000)}
    children = ChangedChildren(array)  # type: ignore[arg-type]
    job = (array.part, array.detail())
    assert numbers(children.look_at_failed([job])) == [0, 1]
    assert array.asked == [[0, 1]]
    assert numbers(children.look_at_failed([job])) == [] and array.listed == 1


def test_a_job_whose_dependency_failed_has_nothing_to_say() -> None:
    array = Array([JobState.FAILED] * 5_000)
    detail = array.detail(StatusReason.DEPENDENCY_FAILED)
    assert numbers(ChangedChildren(array).look([(array.part, detail)], is_thorough=True)) == []  # type: ignore[arg-type]
    assert array.asked == []
