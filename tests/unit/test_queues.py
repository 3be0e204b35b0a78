"""Queues, environments and shares: what starts first, what is cancelled, what can never start."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from batchyard.batch import blocked
from batchyard.batch.changes import JobSettled, Settled
from batchyard.batch.jobs import Dependency, DependencyType, Job, JobState, Outcome, Resources
from batchyard.batch.queues import ComputeEnvironment, FairShare, Queue, TimeLimit
from batchyard.batch.scheduler import InvalidJobError, Scheduler
from batchyard.batch.share_usage import ShareUsage

OK, BAD = Outcome(0), Outcome(1)
ONE = Resources(1, 1)
LARGE = Resources(1000, 1_000_000, 100)


def job(
    id: str, array: int | None = None, *, queue: str = "q", asks: Resources = ONE, **fields: Any
) -> Job:
    return Job(id=id, name=id, queue=queue, resources=asks, array_size=array, **fields)


def with_queue(vcpus: int = 4, **queue: Any) -> Scheduler:
    return Scheduler(
        [Queue("q", ("ce",), **queue)], [ComputeEnvironment("ce", Resources(vcpus, 1_000_000, 8))]
    )


def start_all(scheduler: Scheduler) -> list[tuple[str, int]]:
    starts = scheduler.place()
    for start in starts:
        scheduler.attempt_started(start.job_id, start.child, 0)
    return [(start.job_id, start.child) for start in starts]


# -- CancelJob (1.6) -------------------------------------------------------------------------------


def test_cancel_fails_what_is_runnable_and_leaves_what_runs() -> None:
    scheduler = with_queue(vcpus=2)
    scheduler.submit(job("a", 4))
    assert start_all(scheduler) == [("a", 0), ("a", 1)]
    changes = scheduler.cancel("a", "not needed")
    assert changes == [Settled("a", i, 0, JobState.FAILED, "not needed") for i in (2, 3)]
    assert scheduler.child_state("a", 0) is JobState.RUNNING
    scheduler.attempt_ended("a", 0, OK)
    assert scheduler.attempt_ended("a", 1, OK)[-1] == JobSettled("a", JobState.FAILED, "not needed")


def test_cancel_of_a_pending_job_takes_effect_when_its_dependencies_have_ended() -> None:
    scheduler = with_queue()
    scheduler.submit(job("a"))
    scheduler.submit(job("b", depends_on=(Dependency("a"),)))
    start_all(scheduler)
    assert scheduler.cancel("b", "not needed") == []
    assert scheduler.child_state("b", 0) is JobState.PENDING
    assert scheduler.attempt_ended("a", 0, OK)[-1] == JobSettled("b", JobState.FAILED, "not needed")
    assert start_all(scheduler) == []


def test_cancel_of_one_pending_child_of_a_pair() -> None:
    scheduler = with_queue()
    scheduler.submit(job("a", 2))
    scheduler.submit(job("b", 2, depends_on=(Dependency("a", DependencyType.N_TO_N),)))
    start_all(scheduler)
    scheduler.cancel("b", "not needed", 1)
    scheduler.attempt_ended("a", 1, OK)
    scheduler.attempt_ended("a", 0, OK)
    assert scheduler.child_state("b", 1) is JobState.FAILED
    assert start_all(scheduler) == [("b", 0)]


def test_cancel_of_one_child_of_a_job_that_waits_for_another() -> None:
    scheduler = with_queue()
    scheduler.submit(job("a"))
    scheduler.submit(job("b", 3, depends_on=(Dependency("a"),)))
    start_all(scheduler)
    scheduler.cancel("b", "not needed", 1)
    scheduler.attempt_ended("a", 0, OK)
    assert scheduler.child_state("b", 1) is JobState.FAILED
    assert start_all(scheduler) == [("b", 0), ("b", 2)]


def test_cancel_of_what_runs_or_is_over_changes_nothing() -> None:
    scheduler = with_queue()
    scheduler.submit(job("a"))
    start_all(scheduler)
    assert scheduler.cancel("a", "late") == []
    assert scheduler.attempt_ended("a", 0, OK)[-1] == JobSettled(
        "a", JobState.SUCCEEDED, "Essential container in task exited"
    )
    assert scheduler.cancel("a", "later still") == []


# -- fair share (7.1) ------------------------------------------------------------------------------


def fair(**policy: Any) -> Scheduler:
    return with_queue(vcpus=9, fair_share=FairShare(**policy))


def test_equal_shares_run_equally_much_whoever_came_first() -> None:
    scheduler = fair()
    scheduler.submit(job("a", 90, share="anna"))
    scheduler.submit(job("b", 90, share="ben"))
    scheduler.submit(job("c", 90, share="cleo"))
    assert Counter(job_id for job_id, _ in start_all(scheduler)) == {"a": 3, "b": 3, "c": 3}


def test_a_lower_weight_is_a_larger_share() -> None:
    scheduler = fair(weights=(("anna", 0.125), ("*", 1.0)))
    scheduler.submit(job("b", 90, share="ben"))
    scheduler.submit(job("a", 90, share="anna"))
    assert Counter(job_id for job_id, _ in start_all(scheduler)) == {"a": 8, "b": 1}


def test_the_front_of_a_fair_queue_is_what_would_start_next() -> None:
    scheduler = with_queue(vcpus=3, fair_share=FairShare(weights=(("anna", 1.0), ("ben", 0.5))))
    scheduler.submit(job("a", 9, share="anna"))
    scheduler.submit(job("b", 9, share="ben"))
    assert [job_id for job_id, _ in scheduler.front_of("q", 1)] == ["a"]
    start_all(scheduler)  # one or two of each share run now: ben's count half
    front = scheduler.front_of("q", 1)
    scheduler.attempt_ended("a", 0, OK)
    assert start_all(scheduler)[:1] == front


def test_within_a_share_priority_then_the_order_of_submission() -> None:
    scheduler = fair()
    for id, priority in (("first", 1), ("second", 1), ("urgent", 9)):
        scheduler.submit(job(id, 4, share="anna", priority=priority))
    assert [job_id for job_id, _ in start_all(scheduler)] == ["urgent"] * 4 + ["first"] * 4 + [
        "second"
    ]


def test_what_has_ended_counts_for_the_decay_window() -> None:
    scheduler = fair(decay_s=600)
    scheduler.tick(0)
    scheduler.submit(job("a", 9, share="anna"))
    for job_id, child in start_all(scheduler):
        scheduler.tick(300_000)
        scheduler.attempt_ended(job_id, child, OK)
    scheduler.submit(job("a2", 9, share="anna"))
    scheduler.submit(job("b", 2, share="ben"))
    assert [job_id for job_id, _ in start_all(scheduler)][:2] == ["b", "b"]


@pytest.mark.parametrize("decay_s", [0, 600])
@pytest.mark.parametrize("vcpus", [1, 2, 5])
def test_a_share_gets_vcpu_time_by_its_weight(vcpus: int, decay_s: int) -> None:
    policy = FairShare(weights=(("anna", 0.25), ("ben", 1.0)), decay_s=decay_s)
    scheduler = with_queue(vcpus=vcpus, fair_share=policy)
    scheduler.submit(job("b", 900, share="ben"))
    scheduler.submit(job("a", 900, share="anna"))
    started: Counter[str] = Counter()
    running: list[tuple[str, int]] = []
    for second in range(100):
        scheduler.tick(second * 1000)
        for job_id, child in running:
            scheduler.attempt_ended(job_id, child, OK)
        running = start_all(scheduler)
        started.update(job_id for job_id, _ in running)
    assert 3.5 < started["a"] / started["b"] < 4.5


def test_a_share_s_use_fades() -> None:
    use = ShareUsage(decay_s=100)
    use.change("anna", 8, 0)
    use.change("anna", -8, 100_000)
    then, later = use.recent_vcpu_s("anna", 100_000), use.recent_vcpu_s("anna", 300_000)
    assert then == 800 and 0 < later < then / 5
    assert use.active_shares(100_000) == {"anna"} and use.active_shares(10_000_000) == set()


def test_a_reservation_is_held_back_for_shares_to_come() -> None:
    scheduler = with_queue(vcpus=8, fair_share=FairShare(reservation_percent=50))
    scheduler.submit(job("a", 90, share="anna"))
    assert len(start_all(scheduler)) == 4  # one active share: a half
    scheduler.submit(job("b", 90, share="ben"))
    assert start_all(scheduler) == [("b", 0), ("b", 1)]  # two: a quarter


# -- environments and queues that change (7, 8.1) --------------------------------------------------


def test_environments_on_one_machine_share_it_and_its_gpus_numbers() -> None:
    scheduler = Scheduler(
        [Queue("q", ("one", "two"))],
        [
            ComputeEnvironment("one", Resources(4, 1000, 8)),
            ComputeEnvironment("two", Resources(4, 1000, 8)),
        ],
        machine=Resources(3, 1000, 2),
    )
    scheduler.submit(job("a", 9, asks=Resources(1, 1, 1)))
    starts = scheduler.place()
    assert [start.gpus for start in starts] == [(0,), (1,)]
    scheduler.attempt_ended("a", 1, OK)
    assert [start.gpus for start in scheduler.place()] == [(1,)]


def test_max_vcpus_is_a_cap_and_can_be_raised() -> None:
    scheduler = with_queue(vcpus=1)
    scheduler.submit(job("a", 9))
    assert len(start_all(scheduler)) == 1
    scheduler.set_environment(ComputeEnvironment("ce", Resources(3, 1_000_000, 8)))
    assert len(start_all(scheduler)) == 2
    scheduler.set_environment(ComputeEnvironment("ce", Resources(1, 1_000_000, 8)))
    scheduler.attempt_ended("a", 0, OK)
    assert start_all(scheduler) == []


def test_a_disabled_queue_refuses_and_finishes_what_it_has() -> None:
    scheduler = with_queue()
    scheduler.submit(job("a"))
    scheduler.set_queue(Queue("q", ("ce",), is_enabled=False))
    with pytest.raises(InvalidJobError, match="disabled"):
        scheduler.submit(job("b"))
    assert start_all(scheduler) == [("a", 0)]


def test_deleting_a_queue_fails_what_is_in_it() -> None:
    scheduler = with_queue(vcpus=1)
    scheduler.submit(job("a", 2))
    start_all(scheduler)
    scheduler.delete_queue("q")
    assert scheduler.attempt_ended("a", 0, OK)[-1] == JobSettled(
        "a", JobState.FAILED, "JobQueue deleted"
    )


def test_a_queue_made_later_with_a_higher_priority_goes_first() -> None:
    scheduler = with_queue(vcpus=1)
    scheduler.submit(job("low"))
    scheduler.set_queue(Queue("high", ("ce",), priority=10))
    scheduler.submit(job("urgent", queue="high"))
    assert start_all(scheduler) == [("urgent", 0)]


# -- what can never start (9.1), and time limits (7.2) ---------------------------------------------


@pytest.mark.parametrize(
    ("requested", "environment", "expected"),
    [
        (Resources(2, 100), ComputeEnvironment("ce", LARGE), ""),
        (
            Resources(2, 100),
            ComputeEnvironment("ce", LARGE, is_enabled=False),
            blocked.NO_ENVIRONMENT,
        ),
        (Resources(4, 100), ComputeEnvironment("ce", Resources(2, 1000)), blocked.MAX_VCPUS),
        (Resources(2, 2000), ComputeEnvironment("ce", Resources(2, 1000)), blocked.NO_INSTANCE),
        (Resources(9, 100), ComputeEnvironment("ce", LARGE), blocked.NO_CAPACITY),
    ],
)
def test_why_a_job_can_never_start(
    requested: Resources, environment: ComputeEnvironment, expected: str
) -> None:
    assert (
        blocked.blocked_reason(requested, [environment], machine=Resources(8, 64_000, 1))
        == expected
    )


def test_only_the_head_of_the_queue_shows_that_it_is_blocked() -> None:
    scheduler = with_queue(vcpus=2)
    scheduler.submit(job("huge", 2, asks=Resources(3, 1)))
    scheduler.submit(job("small"))
    assert start_all(scheduler) == []
    scheduler.tick(1000)
    assert scheduler.blocked_head("q") == ("huge", 0, blocked.MAX_VCPUS)
    assert scheduler.front_of("q", 100) == [("huge", 0), ("huge", 1), ("small", 0)]
    scheduler.terminate("huge", "enough")
    scheduler.tick(2000)
    assert scheduler.blocked_head("q") is None
    assert start_all(scheduler) == [("small", 0)]


def test_a_time_limit_cancels_what_blocks_the_queue_and_is_not_retried() -> None:
    code = "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE"
    scheduler = with_queue(vcpus=2, time_limits=(TimeLimit(code, 600),))
    scheduler.submit(job("huge", asks=Resources(3, 1)))
    scheduler.submit(job("small"))
    assert scheduler.tick(1_000) == []
    assert scheduler.tick(600_999) == []
    text = f"Canceled by JobStateTimeLimit action due to reason: {code}"
    assert scheduler.tick(601_000)[-1] == JobSettled("huge", JobState.FAILED, text)
    assert start_all(scheduler) == [("small", 0)]


def test_a_time_limit_for_another_reason_does_nothing() -> None:
    scheduler = with_queue(
        vcpus=2, time_limits=(TimeLimit("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY", 600),)
    )
    scheduler.submit(job("huge", asks=Resources(3, 1)))
    scheduler.tick(0)
    assert scheduler.tick(10_000_000) == []


# -- consumable resources (7.3) --------------------------------------------------------------------


def test_a_resource_that_is_not_replenished_is_used_up() -> None:
    scheduler = with_queue()
    scheduler.change_consumable("licences", 2, is_replenishable=False)
    scheduler.submit(job("a", 3, consumables=(("licences", 1),)))
    assert start_all(scheduler) == [("a", 0), ("a", 1)]
    scheduler.attempt_ended("a", 0, OK)
    assert start_all(scheduler) == [] and scheduler.free_consumable("licences") == 0
    scheduler.change_consumable("licences", 1)
    assert start_all(scheduler) == [("a", 2)]
