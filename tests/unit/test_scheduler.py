"""The life of a job by AWS Batch's rules: events in, changes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from batchyard.batch.changes import Change, JobSettled, Requeued, RestFailed, Settled, Start, Stop
from batchyard.batch.jobs import (
    NOBODY,
    Action,
    Dependency,
    DependencyType,
    EvaluateOnExit,
    Job,
    JobState,
    Outcome,
    Resources,
    RetryStrategy,
    StatusReason,
)
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import InvalidJobError, Scheduler

SUBMITTED, PENDING, RUNNABLE, STARTING, RUNNING, SUCCEEDED, FAILED = JobState
OK = Outcome(0)
BAD = Outcome(1)
SEQUENTIAL = Dependency(type=DependencyType.SEQUENTIAL)
DEPENDENT = StatusReason.DEPENDENCY_FAILED


def of(vcpus: int = 8, memory_mib: int = 8_000, gpus: int = 0, **options: Any) -> Scheduler:
    """Return a scheduler with one queue and one environment of that size."""
    environment = ComputeEnvironment("ce", Resources(vcpus, memory_mib, gpus))
    return Scheduler([Queue("q", ("ce",))], [environment], **options)


def job(
    id: str,
    array: int | None = None,
    *depends_on: Dependency,
    asks: Resources | None = None,
    attempts: int = 1,
    **fields: Any,
) -> Job:
    return Job(
        **{
            "id": id,
            "name": f"step-{id}",
            "queue": "q",
            "resources": asks or Resources(1, 100),
            "array_size": array,
            "depends_on": depends_on,
            "retry": RetryStrategy(attempts),
        }
        | fields
    )


def whole(id: str) -> Dependency:
    return Dependency(id)


def each(id: str) -> Dependency:
    return Dependency(id, DependencyType.N_TO_N)


def submit_all(scheduler: Scheduler, *jobs: Job) -> Scheduler:
    for new_job in jobs:
        scheduler.submit(new_job)
    return scheduler


def begin(scheduler: Scheduler, now_ms: int = 0) -> list[tuple[str, int]]:
    """Start what can start now, and return these children."""
    starts = scheduler.place()
    for start in starts:
        scheduler.attempt_started(start.job_id, start.child, now_ms)
    return [(start.job_id, start.child) for start in starts]


def finish(
    scheduler: Scheduler,
    outcome_of: Callable[[Start], Outcome] = lambda start: OK,
    steps: int = 100_000,
) -> list[Change]:
    """Run everything to its end, one child at a time, or the given number of steps."""
    changes: list[Change] = []
    under_way = {
        (job_id, index): Start(job_id, index, 1, (), "")
        for job_id, index in scheduler.placed_children()
    }
    while not scheduler.is_over and steps:
        for start in scheduler.place():
            scheduler.attempt_started(start.job_id, start.child, 0)
            under_way[start.job_id, start.child] = start
        assert under_way, "nothing runs, nothing can start, and it is not over"
        start = under_way.pop(next(iter(under_way)))
        changes += scheduler.attempt_ended(start.job_id, start.child, outcome_of(start))
        steps -= 1
    return changes


def states(scheduler: Scheduler, array: Job) -> list[JobState]:
    return [scheduler.child_state(array.id, index) for index in range(array.size)]


def state(scheduler: Scheduler, id: str) -> JobState:
    return scheduler.summary(id).state


def settled_jobs(changes: Iterable[Change]) -> dict[str, tuple[JobState, str]]:
    return {
        change.job_id: (change.state, change.status_reason)
        for change in changes
        if isinstance(change, JobSettled)
    }


# -- the states of one job -------------------------------------------------------------------------


def test_a_job_without_dependencies_is_runnable_starting_running_succeeded() -> None:
    scheduler = of()
    assert scheduler.submit(job("a")) == []
    assert state(scheduler, "a") is RUNNABLE
    assert scheduler.place() == [Start("a", 0, 1, (), "ce")]
    assert state(scheduler, "a") is STARTING
    scheduler.attempt_started("a", 0, 0)
    assert state(scheduler, "a") is RUNNING
    assert scheduler.attempt_ended("a", 0, OK) == [
        Settled("a", 0, 1, SUCCEEDED, StatusReason.EXITED),
        JobSettled("a", SUCCEEDED, StatusReason.EXITED),
    ]
    assert state(scheduler, "a") is SUCCEEDED
    assert scheduler.is_over


def test_a_job_that_exits_with_another_code_has_failed() -> None:
    scheduler = submit_all(of(), job("a"))
    begin(scheduler)
    assert scheduler.attempt_ended("a", 0, BAD) == [
        Settled("a", 0, 1, FAILED, StatusReason.EXITED),
        JobSettled("a", FAILED, StatusReason.EXITED),
    ]


def test_a_job_that_never_came_to_run_has_failed_with_its_reason() -> None:
    scheduler = submit_all(of(), job("a"))
    scheduler.place()
    changes = scheduler.attempt_ended(
        "a", 0, Outcome(None, StatusReason.NOT_STARTED, "CannotPullContainerError: x")
    )
    assert changes[-1] == JobSettled("a", FAILED, StatusReason.NOT_STARTED)


def test_a_job_with_an_unmet_dependency_is_pending() -> None:
    scheduler = submit_all(of(), job("a"), job("b", None, whole("a")))
    assert state(scheduler, "b") is PENDING
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, OK)
    assert state(scheduler, "b") is RUNNABLE


def test_a_scheduler_without_jobs_is_over() -> None:
    assert of().is_over
    assert of().place() == []


# -- arrays ----------------------------------------------------------------------------------------


def test_an_array_s_parent_is_pending_until_all_children_have_ended() -> None:
    scheduler = submit_all(of(), job("a", 3))
    assert state(scheduler, "a") is PENDING
    begin(scheduler)
    assert state(scheduler, "a") is PENDING
    for index in range(2):
        assert len(scheduler.attempt_ended("a", index, OK)) == 1
        assert state(scheduler, "a") is PENDING
    assert scheduler.attempt_ended("a", 2, OK)[-1] == JobSettled("a", SUCCEEDED, "")
    assert state(scheduler, "a") is SUCCEEDED


def test_a_parent_fails_only_once_all_its_children_are_over() -> None:
    scheduler = submit_all(of(), job("a", 3))
    begin(scheduler)
    assert scheduler.attempt_ended("a", 0, BAD) == [Settled("a", 0, 1, FAILED, StatusReason.EXITED)]
    assert state(scheduler, "a") is PENDING
    scheduler.attempt_ended("a", 1, OK)
    assert scheduler.attempt_ended("a", 2, OK)[-1] == JobSettled(
        "a", FAILED, StatusReason.CHILD_FAILED
    )


def test_a_failed_child_leaves_its_siblings_alone() -> None:
    one = job("a", 5)
    scheduler = submit_all(of(vcpus=1), one)
    finish(scheduler, lambda start: BAD if start.child == 1 else OK)
    assert states(scheduler, one) == [SUCCEEDED, FAILED, SUCCEEDED, SUCCEEDED, SUCCEEDED]


def test_children_start_in_their_order_also_after_a_restart() -> None:
    array = job("a", 4, start_order=[2, 0, 3, 1])
    scheduler = submit_all(of(vcpus=2), array)
    assert begin(scheduler) == [("a", 2), ("a", 0)]
    scheduler.attempt_ended("a", 2, OK)
    assert begin(scheduler) == [("a", 3)]
    restored = submit_all(of(vcpus=1), array)
    restored.restore("a", 2, 1, JobState.SUCCEEDED, "")
    assert begin(restored) == [("a", 0)]


def test_a_summary_counts_the_children_by_state() -> None:
    scheduler = submit_all(of(vcpus=3), job("a", 6))
    starts = scheduler.place()
    scheduler.attempt_started("a", starts[0].child, 0)
    scheduler.attempt_started("a", starts[1].child, 0)
    scheduler.attempt_ended("a", starts[1].child, OK)
    # SUBMITTED, PENDING, RUNNABLE, STARTING, RUNNING, SUCCEEDED, FAILED
    assert scheduler.summary("a").counts == (0, 0, 3, 1, 1, 1, 0)


def test_an_array_of_one_child_is_an_array_still() -> None:
    scheduler = submit_all(of(), job("a", 1))
    assert state(scheduler, "a") is PENDING
    assert settled_jobs(finish(scheduler, lambda start: BAD)) == {
        "a": (FAILED, StatusReason.CHILD_FAILED)
    }


# -- dependencies ----------------------------------------------------------------------------------


def test_a_whole_dependency_waits_for_every_child_of_an_array() -> None:
    scheduler = submit_all(of(), job("a", 2), job("b", 2, whole("a")))
    assert begin(scheduler) == [("a", 0), ("a", 1)]
    scheduler.attempt_ended("a", 1, OK)
    assert begin(scheduler) == []
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("b", 0), ("b", 1)]


def test_n_to_n_lets_a_child_go_as_soon_as_its_own_counterpart_succeeded() -> None:
    scheduler = submit_all(of(), job("a", 3), job("b", 3, each("a")))
    begin(scheduler)
    scheduler.attempt_ended("a", 2, OK)
    assert begin(scheduler) == [("b", 2)]
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("b", 0)]


def test_n_to_n_fails_only_the_counterpart_of_a_failed_child() -> None:
    b = job("b", 3, each("a"))
    scheduler = submit_all(of(), job("a", 3), b)
    begin(scheduler)
    assert scheduler.attempt_ended("a", 1, BAD) == [
        Settled("a", 1, 1, FAILED, StatusReason.EXITED),
        Settled("b", 1, 0, FAILED, DEPENDENT),
    ]
    changes = finish(scheduler)
    assert states(scheduler, b) == [SUCCEEDED, FAILED, SUCCEEDED]
    assert settled_jobs(changes)["b"] == (FAILED, StatusReason.CHILD_FAILED)


def test_pairs_say_which_child_waits_for_which() -> None:
    """Children 0 and 1 of b wait for children 2 and 0 of a; child 2 of b waits for none."""
    pairs = Dependency("a", DependencyType.N_TO_N, pairs=(1, NOBODY, 0))
    b = job("b", 3, pairs)
    scheduler = submit_all(of(), job("a", 3), b)
    assert begin(scheduler) == [("a", 0), ("a", 1), ("a", 2), ("b", 2)]
    assert scheduler.attempt_ended("a", 1, BAD) == [Settled("a", 1, 1, FAILED, StatusReason.EXITED)]
    assert scheduler.attempt_ended("a", 2, BAD)[1:2] == [Settled("b", 0, 0, FAILED, DEPENDENT)]
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("b", 1)]
    finish(scheduler)
    assert states(scheduler, b) == [FAILED, SUCCEEDED, SUCCEEDED]


def test_pairs_of_jobs_that_are_no_arrays() -> None:
    single = job("b", None, Dependency("a", DependencyType.N_TO_N, pairs=(NOBODY, 0)))
    array = job("c", 2, Dependency("b", DependencyType.N_TO_N, pairs=(1,)))
    scheduler = submit_all(of(), job("a", 2), single, array)
    assert begin(scheduler) == [("a", 0), ("a", 1), ("c", 0)]
    scheduler.attempt_ended("a", 0, BAD)
    scheduler.attempt_ended("a", 1, OK)
    assert begin(scheduler) == [("b", 0)]
    scheduler.terminate("b", "enough")
    scheduler.attempt_ended("b", 0, OK)
    assert states(scheduler, array)[1] is FAILED


def test_pairs_with_a_job_that_does_not_exist() -> None:
    with pytest.raises(InvalidJobError, match="no job has the id a"):
        of().submit(job("b", 2, Dependency("a", DependencyType.N_TO_N, pairs=(0, 1))))


def test_sequential_runs_one_child_after_the_other() -> None:
    scheduler = submit_all(of(), job("a", 3, SEQUENTIAL))
    for index in range(3):
        assert begin(scheduler) == [("a", index)]
        scheduler.attempt_ended("a", index, OK)
    assert state(scheduler, "a") is SUCCEEDED


def test_a_failed_child_of_a_sequential_array_fails_all_that_come_after_it() -> None:
    one = job("a", 4, SEQUENTIAL)
    scheduler = submit_all(of(), one)
    changes = finish(scheduler, lambda start: BAD if start.child == 1 else OK)
    assert states(scheduler, one) == [SUCCEEDED, FAILED, FAILED, FAILED]
    assert Settled("a", 3, 0, FAILED, DEPENDENT) in changes
    assert changes[-1] == JobSettled("a", FAILED, StatusReason.CHILD_FAILED)


def test_sequential_with_a_whole_dependency_waits_for_both() -> None:
    scheduler = submit_all(of(), job("a"), job("b", 2, whole("a"), SEQUENTIAL))
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("b", 0)]
    scheduler.attempt_ended("b", 0, OK)
    assert begin(scheduler) == [("b", 1)]


def test_sequential_with_n_to_n_waits_for_both() -> None:
    scheduler = submit_all(of(), job("a", 2), job("b", 2, each("a"), SEQUENTIAL))
    begin(scheduler)
    scheduler.attempt_ended("a", 1, OK)
    assert begin(scheduler) == []
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("b", 0)]
    scheduler.attempt_ended("b", 0, OK)
    assert begin(scheduler) == [("b", 1)]


def test_n_to_n_with_a_whole_dependency_waits_for_both() -> None:
    scheduler = submit_all(of(), job("a", 2), job("w"), job("b", 2, whole("w"), each("a")))
    begin(scheduler)
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == []
    scheduler.attempt_ended("w", 0, OK)
    assert begin(scheduler) == [("b", 0)]


def test_a_dependency_on_one_child_waits_for_that_child_only() -> None:
    scheduler = submit_all(of(), job("a", 3), job("b", None, whole("a:1")))
    begin(scheduler)
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == []
    scheduler.attempt_ended("a", 1, OK)
    assert begin(scheduler) == [("b", 0)]


def test_a_dependency_on_one_child_fails_with_that_child_and_not_with_its_siblings() -> None:
    scheduler = submit_all(
        of(), job("a", 3), job("b", None, whole("a:1")), job("c", None, whole("a:2"))
    )
    begin(scheduler)
    scheduler.attempt_ended("a", 0, BAD)
    assert (state(scheduler, "b"), state(scheduler, "c")) == (PENDING, PENDING)
    scheduler.attempt_ended("a", 1, BAD)
    assert (state(scheduler, "b"), state(scheduler, "c")) == (FAILED, PENDING)
    scheduler.attempt_ended("a", 2, OK)
    assert state(scheduler, "c") is RUNNABLE


@pytest.mark.parametrize("end", ["terminated", "its own dependency failed", "fail_fast"])
def test_a_dependency_on_one_child_fails_with_it_when_the_whole_array_fails_unstarted(
    end: str,
) -> None:
    scheduler = of(fail_fast=end == "fail_fast")
    submit_all(scheduler, job("0"), job("a", 3, whole("0")), job("b", None, whole("a:1")))
    begin(scheduler)
    if end == "terminated":
        scheduler.terminate("a", "not wanted")
    scheduler.attempt_ended("0", 0, OK if end == "terminated" else BAD)
    assert state(scheduler, "b") is FAILED
    assert scheduler.is_over


def test_a_dependency_on_a_placed_child_of_a_terminated_array_fails_when_it_has_ended() -> None:
    scheduler = submit_all(of(vcpus=1), job("a", 3), job("b", None, whole("a:0")))
    begin(scheduler)
    scheduler.terminate("a", "not wanted")
    assert state(scheduler, "b") is PENDING
    changes = scheduler.attempt_ended("a", 0, BAD)
    assert settled_jobs(changes) == {"a": (FAILED, "not wanted"), "b": (FAILED, DEPENDENT)}


def test_a_job_waits_for_all_its_dependencies() -> None:
    scheduler = submit_all(of(), job("a"), job("b"), job("c", None, whole("a"), whole("b")))
    begin(scheduler)
    scheduler.attempt_ended("b", 0, OK)
    assert begin(scheduler) == []
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("c", 0)]


def test_a_dependency_named_twice_is_met_once() -> None:
    scheduler = submit_all(
        of(),
        job("a", 2),
        job("b", 2, whole("a"), whole("a")),
        job("c", 2, each("a"), each("a")),
        job("d", 2, SEQUENTIAL, SEQUENTIAL),
    )
    finish(scheduler)
    assert {id: state(scheduler, id) for id in "abcd"} == dict.fromkeys("abcd", SUCCEEDED)


def test_a_child_may_have_more_n_to_n_dependencies_than_a_byte_can_count() -> None:
    scheduler = of(vcpus=1_000, memory_mib=10**6)
    names = [f"a{number}" for number in range(300)]
    submit_all(scheduler, *(job(name, 2) for name in names), job("z", 2, *map(each, names)))
    finish(scheduler)
    assert state(scheduler, "z") is SUCCEEDED


def test_a_job_fails_unstarted_when_a_dependency_fails() -> None:
    scheduler = submit_all(of(), job("a"), job("b", 4, whole("a")))
    begin(scheduler)
    assert scheduler.attempt_ended("a", 0, BAD) == [
        Settled("a", 0, 1, FAILED, StatusReason.EXITED),
        JobSettled("a", FAILED, StatusReason.EXITED),
        RestFailed("b", DEPENDENT),
        JobSettled("b", FAILED, DEPENDENT),
    ]
    assert scheduler.summary("b").counts == (0, 0, 0, 0, 0, 0, 4)


def test_a_failed_dependency_is_told_once_however_many_there_are() -> None:
    scheduler = submit_all(of(), job("a"), job("b"), job("c", None, whole("a"), whole("b")))
    begin(scheduler)
    first = scheduler.attempt_ended("a", 0, BAD)
    second = scheduler.attempt_ended("b", 0, BAD)
    assert [change for change in first + second if change.job_id == "c"] == [
        RestFailed("c", DEPENDENT),
        JobSettled("c", FAILED, DEPENDENT),
    ]


def test_a_failure_goes_down_the_whole_graph() -> None:
    scheduler = submit_all(
        of(),
        job("a"),
        job("b", 2, whole("a")),
        job("c", 2, each("b")),
        job("d", None, whole("c:1")),
        job("e", None, whole("d")),
    )
    changes = finish(scheduler, lambda start: BAD)
    assert settled_jobs(changes) == {
        "a": (FAILED, StatusReason.EXITED),
        "b": (FAILED, DEPENDENT),
        "c": (FAILED, StatusReason.CHILD_FAILED),
        "d": (FAILED, DEPENDENT),
        "e": (FAILED, DEPENDENT),
    }


# -- submitting after the fact ---------------------------------------------------------------------


def test_a_dependency_that_has_succeeded_is_met_at_submit() -> None:
    scheduler = submit_all(of(), job("a", 2), job("s"))
    finish(scheduler)
    submit_all(
        scheduler,
        job("b", None, whole("a")),
        job("c", 2, each("a")),
        job("d", None, whole("a:1"), whole("s")),
    )
    assert begin(scheduler) == [("b", 0), ("c", 0), ("c", 1), ("d", 0)]


def test_a_dependency_that_has_failed_fails_the_job_at_submit() -> None:
    scheduler = submit_all(of(), job("a", 2))
    finish(scheduler, lambda start: BAD if start.child else OK)
    changes = [RestFailed("b", DEPENDENT), JobSettled("b", FAILED, DEPENDENT)]
    assert scheduler.submit(job("b", None, whole("a"))) == changes
    assert settled_jobs(scheduler.submit(job("c", None, whole("a:1")))) == {
        "c": (FAILED, DEPENDENT)
    }
    assert scheduler.submit(job("d", None, whole("a:0"))) == []
    assert scheduler.submit(job("e", 2, each("a"))) == [Settled("e", 1, 0, FAILED, DEPENDENT)]
    assert begin(scheduler) == [("d", 0), ("e", 0)]


def test_n_to_n_at_submit_sees_what_has_ended_and_waits_for_the_rest() -> None:
    b = job("b", 3, each("a"))
    scheduler = submit_all(of(), job("a", 3))
    begin(scheduler)
    scheduler.attempt_ended("a", 0, OK)
    scheduler.attempt_ended("a", 1, BAD)
    scheduler.submit(b)
    assert states(scheduler, b) == [RUNNABLE, FAILED, PENDING]


@pytest.mark.parametrize(
    "depends_on",
    [(each("a"), SEQUENTIAL), (SEQUENTIAL, each("a"))],
    ids=["n_to_n first", "sequential first"],
)
def test_a_sequential_array_whose_counterpart_had_failed_ends_in_either_order(
    depends_on: tuple[Dependency, ...],
) -> None:
    b = job("b", 4, *depends_on)
    scheduler = submit_all(of(), job("a", 4))
    finish(scheduler, lambda start: BAD if start.child == 1 else OK)
    scheduler.submit(b)
    assert begin(scheduler) == [("b", 0)]
    scheduler.attempt_ended("b", 0, OK)
    assert states(scheduler, b) == [SUCCEEDED, FAILED, FAILED, FAILED]
    assert scheduler.is_over


def test_a_dependency_half_done_counts_from_where_it_is() -> None:
    scheduler = submit_all(of(), job("a", 2))
    begin(scheduler)
    scheduler.attempt_ended("a", 0, OK)
    submit_all(scheduler, job("b", None, whole("a")), job("c", None, whole("a:0")))
    assert begin(scheduler) == [("c", 0)]
    scheduler.attempt_ended("a", 1, OK)
    assert begin(scheduler) == [("b", 0)]


# -- long cascades ---------------------------------------------------------------------------------


def test_a_sequential_array_of_10_000_fails_in_one_go() -> None:
    scheduler = submit_all(of(), job("a", 10_000, SEQUENTIAL), job("z", 10_000, each("a")))
    begin(scheduler)
    changes = scheduler.attempt_ended("a", 0, BAD)
    assert scheduler.is_over
    assert Counter(type(change) for change in changes) == {Settled: 20_000, JobSettled: 2}


def test_a_chain_of_3_000_jobs_fails_in_one_go() -> None:
    jobs = [job("0"), *(job(str(n), None, whole(str(n - 1))) for n in range(1, 3_000))]
    scheduler = submit_all(of(), *jobs)
    begin(scheduler)
    changes = scheduler.attempt_ended("0", 0, BAD)
    assert scheduler.is_over
    assert len(settled_jobs(changes)) == 3_000


def test_a_chain_of_3_000_paired_arrays_fails_in_one_go() -> None:
    jobs = [job("0", 2), *(job(str(n), 2, each(str(n - 1))) for n in range(1, 3_000))]
    scheduler = submit_all(of(), *jobs)
    changes = scheduler.terminate("0", "not wanted")
    assert scheduler.is_over
    assert len(settled_jobs(changes)) == 3_000


def test_a_chain_of_3_000_jobs_succeeds_one_by_one() -> None:
    jobs = [job("0"), *(job(str(n), None, whole(str(n - 1))) for n in range(1, 3_000))]
    scheduler = submit_all(of(), *jobs)
    assert set(settled_jobs(finish(scheduler)).values()) == {(SUCCEEDED, StatusReason.EXITED)}


# -- what is not accepted --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (job("x", queue="r"), "no queue is named 'r'"),
        (job("x", queue="closed"), "queue 'closed' is disabled"),
        (job("a"), "was submitted before"),
        (job("x", 0), "children"),
        (job("x", None, whole("nobody")), "no job has the id nobody"),
        (job("x", None, whole("a:3")), "no job has the id a:3"),
        (job("x", None, whole("a:-1")), "no job has the id a:-1"),
        (job("x", None, whole("a:one")), "no job has the id a:one"),
        (job("x", None, whole("a:²")), "no job has the id a:²"),
        (job("x", None, whole("a:")), "no job has the id a:"),
        (job("x", None, whole("s:0")), "no job has the id s:0"),
        (job("x", None, whole("x")), "no job has the id x"),
        (job("x", None, Dependency()), "must name a job"),
        (job("x", 3, Dependency(None, DependencyType.N_TO_N)), "must name a job"),
        (job("x", 4, each("a")), "'step-x' has 4 children, 'step-a' has 3"),
        (job("x", 3, each("s")), "'step-x' has 3 children, 'step-s' has none"),
        (job("x", 3, each("a:1")), "N_TO_N"),
        (job("x", None, each("a")), "N_TO_N is for array jobs"),
        (job("x", None, SEQUENTIAL), "SEQUENTIAL is for array jobs"),
        (
            job("x", 3, Dependency("a", DependencyType.SEQUENTIAL)),
            "SEQUENTIAL dependency names no job",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_and_leaves_nothing_behind(refused: Job, why: str) -> None:
    room = ComputeEnvironment("ce", Resources(8, 8_000))
    scheduler = Scheduler([Queue("q", ("ce",)), Queue("closed", ("ce",), is_enabled=False)], [room])
    submit_all(scheduler, job("a", 3), job("s"))
    with pytest.raises(InvalidJobError, match=why):
        scheduler.submit(refused)
    finish(scheduler)
    assert scheduler.is_over
    assert state(scheduler, "a") is SUCCEEDED


# -- attempts --------------------------------------------------------------------------------------


def test_a_failed_attempt_with_attempts_left_is_runnable_again() -> None:
    scheduler = submit_all(of(), job("a", attempts=2))
    begin(scheduler)
    assert scheduler.attempt_ended("a", 0, BAD) == [Requeued("a", 0, 1)]
    assert state(scheduler, "a") is RUNNABLE
    assert not scheduler.is_over


def test_attempts_are_counted_from_one_and_end_with_the_strategy() -> None:
    scheduler = submit_all(of(), job("a", attempts=3))
    for attempt in (1, 2):
        assert scheduler.place() == [Start("a", 0, attempt, (), "ce")]
        assert scheduler.attempt_ended("a", 0, BAD) == [Requeued("a", 0, attempt)]
    assert scheduler.place() == [Start("a", 0, 3, (), "ce")]
    assert scheduler.attempt_ended("a", 0, BAD)[0] == Settled(
        "a", 0, 3, FAILED, StatusReason.EXITED
    )


def test_an_attempt_that_never_came_to_run_is_counted_too() -> None:
    scheduler = submit_all(of(), job("a", attempts=2))
    scheduler.place()
    assert scheduler.attempt_ended("a", 0, Outcome(None, StatusReason.NOT_STARTED)) == [
        Requeued("a", 0, 1)
    ]
    assert scheduler.place()[0].attempt == 2


def test_each_child_has_its_own_attempts() -> None:
    scheduler = submit_all(of(), job("a", 2, attempts=2))
    begin(scheduler)
    scheduler.attempt_ended("a", 0, BAD)
    scheduler.attempt_ended("a", 1, OK)
    assert scheduler.place() == [Start("a", 0, 2, (), "ce")]
    assert scheduler.attempt_ended("a", 0, OK)[-1] == JobSettled("a", SUCCEEDED, "")


def test_the_strategy_s_rules_decide() -> None:
    strategy = RetryStrategy(3, (EvaluateOnExit(Action.EXIT, on_exit_code="2"),))
    scheduler = submit_all(of(), job("a", 2, retry=strategy))
    begin(scheduler)
    assert scheduler.attempt_ended("a", 0, Outcome(1)) == [Requeued("a", 0, 1)]
    assert scheduler.attempt_ended("a", 1, Outcome(2)) == [
        Settled("a", 1, 1, FAILED, StatusReason.EXITED)
    ]


def test_exit_0_is_a_success_whatever_the_rules_say() -> None:
    strategy = RetryStrategy(3, (EvaluateOnExit(Action.RETRY, on_exit_code="*"),))
    scheduler = submit_all(of(), job("a", retry=strategy))
    begin(scheduler)
    assert scheduler.attempt_ended("a", 0, OK)[0] == Settled(
        "a", 0, 1, SUCCEEDED, StatusReason.EXITED
    )


def test_a_retry_goes_to_the_front_of_its_queue() -> None:
    scheduler = submit_all(of(vcpus=1), job("a", attempts=2), job("b"), job("c"))
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, BAD)
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("b", 0)]


def test_retries_keep_the_order_in_which_they_failed() -> None:
    scheduler = submit_all(of(vcpus=3), job("a", 3, attempts=2), job("b", 3))
    begin(scheduler)
    for index in (2, 0, 1):
        scheduler.attempt_ended("a", index, BAD)
    assert begin(scheduler) == [("a", 2), ("a", 0), ("a", 1)]


def test_retries_that_find_no_room_keep_their_place_at_the_front() -> None:
    queues = [Queue("p", ("ce",), priority=9), Queue("q", ("ce",))]
    scheduler = Scheduler(queues, [ComputeEnvironment("ce", Resources(3, 8_000))])
    submit_all(
        scheduler, job("a", asks=Resources(2, 1), attempts=2), job("b", attempts=2), job("c", 9)
    )
    begin(scheduler)
    scheduler.attempt_ended("a", 0, BAD)
    scheduler.attempt_ended("b", 0, BAD)
    scheduler.submit(job("urgent", queue="p", asks=Resources(2, 1)))
    assert begin(scheduler) == [("urgent", 0)]
    scheduler.attempt_ended("urgent", 0, OK)
    assert begin(scheduler) == [("a", 0), ("b", 0)]


def test_a_dependent_waits_while_what_it_needs_is_retried() -> None:
    scheduler = submit_all(of(), job("a", attempts=2), job("b", None, whole("a")))
    begin(scheduler)
    scheduler.attempt_ended("a", 0, BAD)
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("b", 0)]


# -- timeouts --------------------------------------------------------------------------------------


def test_a_child_is_stopped_when_its_time_is_up_and_not_before() -> None:
    scheduler = submit_all(of(), job("a", timeout_s=60))
    begin(scheduler, now_ms=1_000)
    assert scheduler.tick(60_999) == []
    assert scheduler.tick(61_000) == [Stop("a", 0)]
    assert scheduler.tick(62_000) == []


def test_a_timed_out_child_has_failed_and_is_not_retried() -> None:
    scheduler = submit_all(of(), job("a", attempts=3, timeout_s=60))
    begin(scheduler)
    scheduler.tick(60_000)
    assert scheduler.attempt_ended("a", 0, Outcome(143)) == [
        Settled("a", 0, 1, FAILED, StatusReason.TIMEOUT),
        JobSettled("a", FAILED, StatusReason.TIMEOUT),
    ]


def test_the_clock_counts_from_running_and_not_from_starting() -> None:
    scheduler = submit_all(of(), job("a", timeout_s=60))
    scheduler.place()
    assert scheduler.tick(1_000_000) == []
    scheduler.attempt_started("a", 0, 1_000_000)
    assert scheduler.tick(1_059_999) == []
    assert scheduler.tick(1_060_000) == [Stop("a", 0)]


def test_the_clock_restarts_with_each_attempt() -> None:
    scheduler = submit_all(of(), job("a", attempts=2, timeout_s=60))
    begin(scheduler, now_ms=0)
    scheduler.attempt_ended("a", 0, BAD)
    begin(scheduler, now_ms=50_000)
    assert scheduler.tick(60_000) == []
    assert scheduler.tick(109_999) == []
    assert scheduler.tick(110_000) == [Stop("a", 0)]


def test_each_child_of_an_array_has_its_own_clock() -> None:
    scheduler = submit_all(of(), job("a", 2, timeout_s=60))
    scheduler.place()
    scheduler.attempt_started("a", 0, 0)
    scheduler.attempt_started("a", 1, 10_000)
    assert scheduler.tick(60_000) == [Stop("a", 0)]
    assert scheduler.tick(70_000) == [Stop("a", 1)]


def test_a_child_that_ended_in_time_is_not_stopped() -> None:
    scheduler = submit_all(of(), job("a", timeout_s=60))
    begin(scheduler)
    scheduler.attempt_ended("a", 0, OK)
    assert scheduler.tick(60_000) == []


def test_without_a_timeout_there_is_no_deadline() -> None:
    scheduler = submit_all(of(), job("a"))
    begin(scheduler)


# -- terminate -------------------------------------------------------------------------------------


def test_terminating_a_pending_or_runnable_job_fails_it_at_once_with_the_users_reason() -> None:
    scheduler = submit_all(of(), job("a"), job("b", 2, whole("a")))
    changes = [RestFailed("b", "not wanted"), JobSettled("b", FAILED, "not wanted")]
    assert scheduler.terminate("b", "not wanted") == changes
    assert scheduler.terminate("a", "nor this")[:2] == [
        RestFailed("a", "nor this"),
        JobSettled("a", FAILED, "nor this"),
    ]
    assert scheduler.is_over
    assert scheduler.place() == []


@pytest.mark.parametrize("is_running", [False, True], ids=["STARTING", "RUNNING"])
def test_terminating_a_placed_job_stops_it_and_it_fails_when_it_has_ended(is_running: bool) -> None:
    scheduler = submit_all(of(), job("a", attempts=3))
    scheduler.place()
    if is_running:
        scheduler.attempt_started("a", 0, 0)
    assert scheduler.terminate("a", "not wanted") == [RestFailed("a", "not wanted"), Stop("a", 0)]
    assert state(scheduler, "a") is (RUNNING if is_running else STARTING)
    assert scheduler.attempt_ended("a", 0, Outcome(143)) == [
        Settled("a", 0, 1, FAILED, "not wanted"),
        JobSettled("a", FAILED, "not wanted"),
    ]


def test_a_stopped_child_has_failed_even_if_it_managed_an_exit_0() -> None:
    scheduler = submit_all(of(), job("a"), job("b", 2, timeout_s=60))
    begin(scheduler)
    scheduler.terminate("a", "not wanted")
    assert settled_jobs(scheduler.attempt_ended("a", 0, OK)) == {"a": (FAILED, "not wanted")}
    scheduler.tick(60_000)
    assert scheduler.attempt_ended("b", 0, OK) == [Settled("b", 0, 1, FAILED, StatusReason.TIMEOUT)]


@pytest.mark.parametrize("outcome", [OK, BAD])
def test_terminating_what_is_over_changes_nothing(outcome: Outcome) -> None:
    scheduler = submit_all(of(), job("a", 2))
    finish(scheduler, lambda start: outcome)
    before = scheduler.summary("a")
    assert scheduler.terminate("a", "too late") == []
    assert scheduler.terminate("a", "too late", 1) == []
    assert scheduler.summary("a") == before


def test_terminating_twice_is_the_same_as_once() -> None:
    scheduler = submit_all(of(vcpus=2), job("a", 4))
    begin(scheduler)
    assert scheduler.terminate("a", "first") == [
        RestFailed("a", "first"),
        Stop("a", 0),
        Stop("a", 1),
    ]
    assert scheduler.terminate("a", "second") == []
    scheduler.attempt_ended("a", 0, BAD)
    assert scheduler.attempt_ended("a", 1, BAD) == [
        Settled("a", 1, 1, FAILED, "first"),
        JobSettled("a", FAILED, "first"),
    ]


def test_terminating_what_is_being_stopped_for_its_timeout_stops_it_no_second_time() -> None:
    scheduler = submit_all(of(), job("a", 2, timeout_s=60))
    begin(scheduler)
    scheduler.tick(60_000)
    assert scheduler.terminate("a", "enough") == [RestFailed("a", "enough")]
    assert scheduler.attempt_ended("a", 0, BAD) == [
        Settled("a", 0, 1, FAILED, StatusReason.TIMEOUT)
    ]


def test_terminating_an_array_fails_what_waits_and_stops_what_runs() -> None:
    one = job("a", 4)
    scheduler = submit_all(of(vcpus=2), one)
    begin(scheduler)
    scheduler.attempt_ended("a", 0, OK)
    begin(scheduler)
    assert scheduler.terminate("a", "enough") == [
        RestFailed("a", "enough"),
        Stop("a", 1),
        Stop("a", 2),
    ]
    assert states(scheduler, one) == [SUCCEEDED, RUNNING, RUNNING, FAILED]
    scheduler.attempt_ended("a", 2, BAD)
    assert scheduler.attempt_ended("a", 1, BAD)[-1] == JobSettled("a", FAILED, "enough")


def test_holding_an_array_fails_what_waits_and_lets_go_on_what_runs() -> None:
    array = job("a", 4, attempts=3)
    scheduler = submit_all(of(vcpus=2), array, job("b", None, whole("a")))
    begin(scheduler)
    for id in ("b", "a"):
        assert isinstance(scheduler.hold(id, "the cap")[0], RestFailed)
        # Holding it again changes nothing.
        assert not scheduler.hold(id, "the cap")
    assert states(scheduler, array) == [JobState.RUNNING] * 2 + [JobState.FAILED] * 2
    scheduler.attempt_ended("a", 0, OK)
    # No further attempt, although the strategy has some left.
    changes = scheduler.attempt_ended("a", 1, Outcome(1, "exited"))
    assert not scheduler.place() and scheduler.is_over
    assert settled_jobs(changes)["a"] == (JobState.FAILED, "the cap")
    assert states(scheduler, array)[:2] == [JobState.SUCCEEDED, JobState.FAILED]


def test_a_held_job_can_be_stopped() -> None:
    scheduler = submit_all(of(), job("a"))
    begin(scheduler)
    assert not [c for c in scheduler.hold("a", "the cap") if isinstance(c, Stop)]
    assert scheduler.terminate("a", "stopped") == [Stop("a", 0)]
    scheduler.attempt_ended("a", 0, OK)
    assert state(scheduler, "a") is JobState.FAILED


def test_terminating_an_array_fails_the_counterparts_of_what_had_not_started() -> None:
    b = job("b", 3, each("a"))
    scheduler = submit_all(of(vcpus=1), job("a", 3), b)
    begin(scheduler)
    changes = scheduler.terminate("a", "enough")
    assert [change for change in changes if change.job_id == "b"] == [
        Settled("b", 1, 0, FAILED, DEPENDENT),
        Settled("b", 2, 0, FAILED, DEPENDENT),
    ]
    assert states(scheduler, b) == [PENDING, FAILED, FAILED]
    scheduler.attempt_ended("a", 0, BAD)
    assert scheduler.is_over


@pytest.mark.parametrize("when", ["PENDING", "RUNNABLE", "STARTING", "RUNNING", "to be retried"])
def test_terminating_a_child_lets_its_siblings_go_on_and_condemns_the_parent(when: str) -> None:
    one = job("a", 3, whole("0"), attempts=2)
    scheduler = submit_all(of(), job("0"), one)
    if when == "PENDING":
        scheduler.terminate("a", "not this one", 1)
    begin(scheduler)
    scheduler.attempt_ended("0", 0, OK)
    if when == "RUNNABLE":
        scheduler.terminate("a", "not this one", 1)
    starts = scheduler.place()
    if when == "STARTING":
        assert scheduler.terminate("a", "not this one", 1) == [Stop("a", 1)]
    for start in starts:
        scheduler.attempt_started("a", start.child, 0)
    if when == "RUNNING":
        assert scheduler.terminate("a", "not this one", 1) == [Stop("a", 1)]
        assert scheduler.terminate("a", "not this one", 1) == []
    if when == "to be retried":
        scheduler.attempt_ended("a", 1, BAD)
        scheduler.terminate("a", "not this one", 1)
    changes = finish(scheduler, lambda start: OK)
    assert states(scheduler, one) == [SUCCEEDED, FAILED, SUCCEEDED]
    assert settled_jobs(changes)["a"] == (FAILED, StatusReason.CHILD_FAILED)


def test_a_terminated_child_does_not_start_again() -> None:
    scheduler = submit_all(of(vcpus=1), job("a", 2, attempts=2))
    begin(scheduler)
    scheduler.attempt_ended("a", 0, BAD)
    assert scheduler.terminate("a", "not this one", 0) == [
        Settled("a", 0, 0, FAILED, "not this one")
    ]
    assert begin(scheduler) == [("a", 1)]


def test_terminating_a_child_of_a_sequential_array_fails_those_after_it() -> None:
    one = job("a", 4, SEQUENTIAL)
    scheduler = submit_all(of(), one)
    begin(scheduler)
    scheduler.terminate("a", "not this one", 2)
    assert states(scheduler, one) == [RUNNING, PENDING, FAILED, FAILED]
    finish(scheduler)
    assert states(scheduler, one) == [SUCCEEDED, SUCCEEDED, FAILED, FAILED]


def test_what_depends_on_a_terminated_job_fails() -> None:
    scheduler = submit_all(of(), job("a"), job("b", None, whole("a")))
    changes = scheduler.terminate("a", "not wanted")
    assert settled_jobs(changes) == {"a": (FAILED, "not wanted"), "b": (FAILED, DEPENDENT)}


# -- capacity --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "asks", "at_once"),
    [
        (Resources(4, 10_000), Resources(1, 1), 4),
        (Resources(4, 10_000), Resources(3, 1), 1),
        (Resources(64, 1_000), Resources(1, 300), 3),
        (Resources(64, 10_000, 4), Resources(1, 1, 1), 4),
        (Resources(64, 10_000, 8), Resources(1, 1, 3), 2),
        (Resources(2, 10_000, 8), Resources(1, 1, 1), 2),
    ],
)
def test_no_more_children_run_than_vcpus_memory_and_gpus_allow(
    room: Resources, asks: Resources, at_once: int
) -> None:
    scheduler = submit_all(of(room.vcpus, room.memory_mib, room.gpus), job("a", 10, asks=asks))
    assert len(begin(scheduler)) == at_once
    assert begin(scheduler) == []
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("a", at_once)]


def test_what_a_child_held_is_free_again_when_it_has_ended() -> None:
    scheduler = submit_all(of(4, 1_000, 2), job("a", asks=Resources(2, 600, 1), attempts=2))
    assert scheduler.free("ce") == Resources(4, 1_000, 2)
    begin(scheduler)
    assert scheduler.free("ce") == Resources(2, 400, 1)
    assert scheduler.placed_children() == [("a", 0)]
    scheduler.attempt_ended("a", 0, BAD)
    assert scheduler.free("ce") == Resources(4, 1_000, 2)
    begin(scheduler)
    scheduler.terminate("a", "not wanted")
    assert scheduler.free("ce") == Resources(2, 400, 1)  # it still runs
    scheduler.attempt_ended("a", 0, BAD)
    assert scheduler.free("ce") == Resources(4, 1_000, 2)
    assert scheduler.placed_children() == []


def test_the_lowest_gpu_numbers_go_out_first_and_come_back() -> None:
    scheduler = submit_all(
        of(gpus=4), job("a", 5, asks=Resources(1, 1, 1)), job("b", asks=Resources(1, 1, 2))
    )
    assert [start.gpus for start in scheduler.place()] == [(0,), (1,), (2,), (3,)]
    scheduler.attempt_ended("a", 2, OK)
    scheduler.attempt_ended("a", 0, OK)
    assert [(start.job_id, start.gpus) for start in scheduler.place()] == [("a", (0,))]
    scheduler.attempt_ended("a", 3, OK)
    assert [(start.job_id, start.gpus) for start in scheduler.place()] == [("b", (2, 3))]


def test_a_child_without_gpus_is_given_none() -> None:
    scheduler = submit_all(of(gpus=4), job("a"))
    assert scheduler.place()[0].gpus == ()


def test_jobs_start_in_the_order_of_their_submission_and_children_in_theirs() -> None:
    scheduler = submit_all(of(vcpus=100), job("b", 2), job("a"), job("c", 2))
    assert begin(scheduler) == [("b", 0), ("b", 1), ("a", 0), ("c", 0), ("c", 1)]


def test_a_job_that_becomes_runnable_later_keeps_its_place_by_submission() -> None:
    scheduler = submit_all(of(vcpus=1), job("0"), job("a", None, whole("0")), job("b"))
    begin(scheduler)
    scheduler.attempt_ended("0", 0, OK)
    assert begin(scheduler) == [("a", 0)]


@pytest.mark.parametrize("asks", [Resources(4, 100), Resources(1, 8_000)], ids=["vCPUs", "memory"])
def test_a_large_child_is_not_starved_by_small_ones(asks: Resources) -> None:
    small = Resources(1, 2_000)
    scheduler = submit_all(
        of(4, 8_000), job("a", 3, asks=small), job("big", asks=asks), job("c", 9, asks=small)
    )
    assert begin(scheduler) == [("a", 0), ("a", 1), ("a", 2)]
    for index in range(2):
        scheduler.attempt_ended("a", index, OK)
        assert begin(scheduler) == []  # there is room for c, and it is big's turn
    scheduler.attempt_ended("a", 2, OK)
    assert begin(scheduler)[0] == ("big", 0)


def test_a_large_child_that_is_tried_again_is_not_starved_either() -> None:
    scheduler = submit_all(of(4), job("big", asks=Resources(4, 1), attempts=2), job("c", 9))
    begin(scheduler)
    scheduler.attempt_ended("big", 0, BAD)
    assert begin(scheduler) == [("big", 0)]


def test_children_without_gpus_pass_one_that_waits_for_a_gpu() -> None:
    gpu = Resources(1, 1, 1)
    scheduler = submit_all(of(4, gpus=1), job("g", 3, asks=gpu), job("c", 2))
    assert begin(scheduler) == [("g", 0), ("c", 0), ("c", 1)]
    scheduler.attempt_ended("g", 0, OK)
    assert begin(scheduler) == [("g", 1)]


def test_children_with_fewer_gpus_do_not_pass_one_that_waits_for_more() -> None:
    scheduler = submit_all(
        of(gpus=2),
        job("a", asks=Resources(1, 1, 1)),
        job("two", asks=Resources(1, 1, 2)),
        job("one", asks=Resources(1, 1, 1)),
    )
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("two", 0)]


def test_a_gpu_child_that_lacks_vcpus_holds_up_everything_behind_it() -> None:
    scheduler = submit_all(
        of(4, gpus=1), job("a", asks=Resources(2, 1)), job("g", asks=Resources(4, 1, 1)), job("c")
    )
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("g", 0)]


def test_a_gpu_child_that_is_tried_again_waits_for_its_gpu_and_lets_cpu_children_pass() -> None:
    gpu = Resources(1, 1, 1)
    scheduler = submit_all(of(4, gpus=1), job("g", 2, asks=gpu, attempts=2), job("c", 9))
    begin(scheduler)
    scheduler.attempt_ended("g", 0, BAD)
    assert begin(scheduler) == [("g", 0)]
    scheduler.attempt_ended("c", 0, OK)
    assert begin(scheduler) == [("c", 3)]


# -- environments and queues -----------------------------------------------------------------------


def test_environments_are_tried_in_the_queues_order() -> None:
    rooms = [ComputeEnvironment(name, Resources(2, 100)) for name in ("first", "second")]
    scheduler = Scheduler([Queue("q", ("second", "first"))], rooms)
    scheduler.submit(job("a", 3, asks=Resources(1, 1)))
    assert [start.environment for start in scheduler.place()] == ["second", "second", "first"]
    scheduler.attempt_ended("a", 0, OK)
    assert (scheduler.free("second").vcpus, scheduler.free("first").vcpus) == (1, 1)


def test_a_child_must_fit_in_one_environment_whole() -> None:
    rooms = [
        ComputeEnvironment("small", Resources(2, 100)),
        ComputeEnvironment("large", Resources(4, 100)),
    ]
    scheduler = Scheduler([Queue("q", ("small", "large"))], rooms)
    scheduler.submit(job("a", 2, asks=Resources(3, 1)))
    assert [start.environment for start in scheduler.place()] == ["large"]


def test_a_disabled_environment_takes_nothing_new() -> None:
    rooms = [
        ComputeEnvironment("off", Resources(8, 100, 8), is_enabled=False),
        ComputeEnvironment("on", Resources(1, 100, 1)),
    ]
    scheduler = Scheduler([Queue("q", ("off", "on"))], rooms)
    submit_all(scheduler, job("g", asks=Resources(1, 1, 1)), job("a", 2, asks=Resources(1, 1)))
    assert [start.environment for start in scheduler.place()] == ["on"]


def test_gpu_numbers_are_counted_in_each_environment() -> None:
    rooms = [ComputeEnvironment(name, Resources(8, 100, 1)) for name in ("x", "y")]
    scheduler = submit_all(
        Scheduler([Queue("q", ("x", "y"))], rooms), job("a", 3, asks=Resources(1, 1, 1))
    )
    assert [(start.environment, start.gpus) for start in scheduler.place()] == [
        ("x", (0,)),
        ("y", (0,)),
    ]


def test_the_queue_of_higher_priority_is_served_first() -> None:
    queues = [Queue("low", ("ce",), priority=1), Queue("high", ("ce",), priority=10)]
    scheduler = Scheduler(queues, [ComputeEnvironment("ce", Resources(2, 1_000))])
    submit_all(scheduler, job("l", 2, queue="low"), job("h", 3, queue="high"))
    assert begin(scheduler) == [("h", 0), ("h", 1)]
    scheduler.attempt_ended("h", 0, OK)
    scheduler.attempt_ended("h", 1, OK)
    assert begin(scheduler) == [("h", 2), ("l", 0)]


def test_a_queue_that_waits_holds_up_no_other_with_room_of_its_own() -> None:
    rooms = [ComputeEnvironment(name, Resources(1, 1_000)) for name in ("x", "y")]
    scheduler = Scheduler([Queue("p", ("x",), priority=5), Queue("q", ("y",))], rooms)
    submit_all(scheduler, job("a", 2, queue="p"), job("b", 1))
    assert begin(scheduler) == [("a", 0), ("b", 0)]


def test_a_dependency_may_be_in_another_queue() -> None:
    rooms = [ComputeEnvironment("ce", Resources(8, 1_000))]
    scheduler = Scheduler([Queue("p", ("ce",)), Queue("q", ("ce",))], rooms)
    submit_all(scheduler, job("a", queue="p"), job("b", None, whole("a")))
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, OK)
    assert begin(scheduler) == [("b", 0)]


# -- consumables -----------------------------------------------------------------------------------


def test_a_consumable_limits_its_own_job_and_holds_up_no_other() -> None:
    limited = job("a", 4, consumables=(("a", 1),))
    scheduler = submit_all(of(consumables={"a": 2}), limited, job("b", 2))
    assert begin(scheduler) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    scheduler.attempt_ended("a", 1, OK)
    assert begin(scheduler) == [("a", 2)]


def test_a_child_that_is_tried_again_waits_for_its_consumable_and_holds_up_no_other() -> None:
    limited = job("a", 2, consumables=(("tokens", 1),), attempts=2)
    other = job("x", 2, consumables=(("tokens", 1),))
    scheduler = submit_all(of(vcpus=3, consumables={"tokens": 1}), limited, other, job("b", 9))
    assert begin(scheduler) == [("a", 0), ("b", 0), ("b", 1)]
    scheduler.attempt_ended("a", 0, BAD)
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("b", 0, OK)
    assert begin(scheduler) == [("b", 2)]


def test_a_consumable_is_given_back_however_the_attempt_ended() -> None:
    limited = job("a", 3, consumables=(("a", 1),), attempts=2)
    scheduler = submit_all(of(consumables={"a": 1}), limited)
    assert begin(scheduler) == [("a", 0)]
    scheduler.attempt_ended("a", 0, BAD)
    assert begin(scheduler) == [("a", 0)]
    scheduler.terminate("a", "not this one", 0)
    scheduler.attempt_ended("a", 0, BAD)
    assert begin(scheduler) == [("a", 1)]


def test_a_child_that_has_its_consumable_and_no_room_holds_up_what_is_behind() -> None:
    limited = job("a", 2, consumables=(("a", 1),), asks=Resources(3, 1))
    scheduler = submit_all(of(vcpus=4, consumables={"a": 2}), limited, job("b"))
    assert begin(scheduler) == [("a", 0)]


# -- fail_fast -------------------------------------------------------------------------------------


def test_fail_fast_fails_what_waits_and_stops_what_runs_after_the_first_failure() -> None:
    jobs = [job("a", 3), job("b", None, whole("a")), job("c")]
    scheduler = submit_all(of(vcpus=2, fail_fast=True), *jobs)
    begin(scheduler)
    changes = scheduler.attempt_ended("a", 1, BAD)
    reason = "fail_fast: step-a failed"
    assert changes[0] == Settled("a", 1, 1, FAILED, StatusReason.EXITED)
    assert set(changes[1:]) == {
        RestFailed("c", reason),
        JobSettled("c", FAILED, reason),
        RestFailed("b", reason),
        JobSettled("b", FAILED, reason),
        RestFailed("a", reason),
        Stop("a", 0),
    }
    assert scheduler.attempt_ended("a", 0, Outcome(143)) == [
        Settled("a", 0, 1, FAILED, reason),
        JobSettled("a", FAILED, reason),
    ]
    assert scheduler.is_over


def test_fail_fast_waits_while_a_failed_attempt_is_retried() -> None:
    scheduler = submit_all(of(fail_fast=True), job("a", attempts=2), job("b"))
    begin(scheduler)
    assert scheduler.attempt_ended("a", 0, BAD) == [Requeued("a", 0, 1)]
    finish(scheduler)
    assert (state(scheduler, "a"), state(scheduler, "b")) == (SUCCEEDED, SUCCEEDED)


def test_fail_fast_leaves_what_has_succeeded() -> None:
    b = job("b", 2)
    scheduler = submit_all(of(fail_fast=True), job("a"), b)
    begin(scheduler)
    scheduler.attempt_ended("b", 0, OK)
    scheduler.attempt_ended("a", 0, BAD)
    scheduler.attempt_ended("b", 1, BAD)
    assert states(scheduler, b) == [SUCCEEDED, FAILED]


# -- picking up where another process stopped ------------------------------------------------------


def graph() -> list[Job]:
    """Every kind of dependency, retries that help or do not help, failures that cascade."""
    return [
        job("a", 4, attempts=2),
        job("b", 4, each("a")),
        job("c", None, whole("a:0")),
        job("d", 3, SEQUENTIAL, whole("c")),
        job("e", 3, each("d"), whole("a:1")),
        job("f", None, whole("b")),
        job("g", 2, attempts=3),
        job("h", None, whole("g"), whole("c")),
    ]


FAILURES = {
    ("a", 2, 1),
    ("a", 3, 1),
    ("a", 3, 2),
    ("d", 1, 1),
    ("g", 0, 1),
    ("g", 0, 2),
    ("g", 1, 1),
}


def outcome_of(start: Start) -> Outcome:
    return BAD if (start.job_id, start.child, start.attempt) in FAILURES else OK


def restored(scheduler: Scheduler, jobs: list[Job], changes: list[Change]) -> Scheduler:
    """Restore a run as the embedded engine does: job by job, records in order, then RestFailed."""
    submit_all(scheduler, *jobs)
    for one in jobs:
        records = [c for c in changes if isinstance(c, Settled | Requeued) and c.job_id == one.id]
        for record in sorted(records, key=lambda record: (record.child, record.attempt)):
            is_over = isinstance(record, Settled)
            end = record.state if is_over else None
            reason = record.status_reason if is_over else ""
            scheduler.restore(one.id, record.child, record.attempt, end, reason)
        for change in changes:
            if isinstance(change, RestFailed) and change.job_id == one.id:
                scheduler.terminate(one.id, change.status_reason)
    return scheduler


def test_any_prefix_of_a_run_restored_comes_to_the_same_end() -> None:
    jobs = graph()
    uninterrupted = submit_all(of(vcpus=3), *jobs)
    finish(uninterrupted, outcome_of)
    expected = {one.id: states(uninterrupted, one) for one in jobs}
    assert expected["a"] == [
        SUCCEEDED,
        SUCCEEDED,
        SUCCEEDED,
        FAILED,
    ]  # the graph is what it says it is
    assert expected["d"] == [SUCCEEDED, FAILED, FAILED]
    for steps in range(40):
        changes = finish(submit_all(of(vcpus=3), *jobs), outcome_of, steps)
        resumed = restored(of(vcpus=3), jobs, changes)
        ran = [start for start in _starts(resumed, outcome_of)]
        assert {one.id: states(resumed, one) for one in jobs} == expected
        over = {(c.job_id, c.child) for c in changes if isinstance(c, Settled)}
        assert over.isdisjoint((start.job_id, start.child) for start in ran)


def _starts(scheduler: Scheduler, outcome_of: Callable[[Start], Outcome]) -> list[Start]:
    """Runs everything to its end and says what was started."""
    started: list[Start] = []

    def noted(start: Start) -> Outcome:
        started.append(start)
        return outcome_of(start)

    finish(scheduler, noted)
    return started


def test_a_restored_child_goes_on_with_its_next_attempt() -> None:
    scheduler = submit_all(of(), job("a", attempts=3))
    scheduler.restore("a", 0, 1, None, "")
    scheduler.restore("a", 0, 2, None, "")
    assert scheduler.place() == [Start("a", 0, 3, (), "ce")]
    assert scheduler.attempt_ended("a", 0, BAD)[0] == Settled(
        "a", 0, 3, FAILED, StatusReason.EXITED
    )


def test_attempts_that_still_run_are_adopted_before_all_others() -> None:
    scheduler = submit_all(of(vcpus=2), job("a", 3), job("b", 3, attempts=2))
    scheduler.restore("b", 1, 1, None, "")
    # Attempts that are over, or not the next one, have no room to keep.
    starts = scheduler.adopt([("b", 2, 1), ("b", 1, 2), ("b", 1, 1), ("a", 2, 3)])
    assert [(start.job_id, start.child, start.attempt) for start in starts] == [
        ("b", 2, 1),
        ("b", 1, 2),
    ]
    assert begin(scheduler) == []
    scheduler.attempt_ended("b", 2, OK)
    assert begin(scheduler) == [("a", 0)]


def test_a_job_that_was_stopped_stops_the_attempts_that_it_adopts() -> None:
    scheduler = submit_all(of(vcpus=4), job("a", 3))
    scheduler.adopt([("a", 1, 1)])
    changes = scheduler.terminate("a", "stopped")
    assert Stop("a", 1) in changes
    assert begin(scheduler) == []
    scheduler.attempt_ended("a", 1, OK)
    assert scheduler.is_over and scheduler.child_state("a", 1) is JobState.FAILED


def test_attempts_are_counted_right_in_whatever_order_they_are_restored() -> None:
    scheduler = submit_all(of(), job("a", attempts=3))
    scheduler.restore("a", 0, 2, None, "")
    scheduler.restore("a", 0, 1, None, "")
    assert scheduler.place()[0].attempt == 3


def test_a_restored_success_meets_dependencies() -> None:
    scheduler = submit_all(of(), job("a", 2), job("b", None, whole("a")), job("c", 2, each("a")))
    scheduler.restore("a", 1, 1, SUCCEEDED, StatusReason.EXITED)
    assert begin(scheduler) == [("a", 0), ("c", 1)]


def test_a_restored_failure_fails_what_depends_on_it() -> None:
    scheduler = submit_all(of(), job("a"), job("b", 2, whole("a")))
    scheduler.restore("a", 0, 1, FAILED, StatusReason.EXITED)
    assert state(scheduler, "b") is FAILED
    assert scheduler.is_over


def test_a_restored_job_that_was_being_stopped_does_not_start_again() -> None:
    jobs = [job("a", 3), job("b")]
    scheduler = submit_all(of(vcpus=1), *jobs)
    begin(scheduler)
    resumed = restored(of(vcpus=1), jobs, scheduler.terminate("a", "enough"))
    assert state(resumed, "a") is FAILED
    assert begin(resumed) == [("b", 0)]


def test_a_restored_fail_fast_leaves_what_had_succeeded_whatever_the_order_of_the_records() -> None:
    jobs = [job("a", 3), job("b", 2), job("c", None, whole("b"))]
    scheduler = submit_all(of(fail_fast=True), *jobs)
    begin(scheduler)
    changes = [
        *scheduler.attempt_ended("a", 2, OK),
        *scheduler.attempt_ended("b", 0, OK),
        *scheduler.attempt_ended(
            "a", 0, BAD
        ),  # from here on everything fails; a:1 and b:1 are being stopped
    ]
    resumed = restored(of(fail_fast=True), jobs, changes)
    assert states(resumed, jobs[0]) == [FAILED, FAILED, SUCCEEDED]
    assert states(resumed, jobs[1]) == [SUCCEEDED, FAILED]
    assert resumed.is_over


def test_the_same_events_give_the_same_changes() -> None:
    assert finish(submit_all(of(), *graph()), outcome_of) == finish(
        submit_all(of(), *graph()), outcome_of
    )
