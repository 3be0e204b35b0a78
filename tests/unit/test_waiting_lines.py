"""What somebody who follows a silent run is told, and how often."""

from __future__ import annotations

from itertools import pairwise

from batchyard.batch.jobs import JobState, Resources
from batchyard.cli import waiting
from batchyard.engines.base import JobDetail, Wait
from batchyard.pipeline import Need
from batchyard.plan import Plan, PlannedJob

NOW_MS = 1_000_000


def plan(**needs: tuple[str, ...]) -> Plan:
    """Step -> the steps that it needs."""
    return Plan(
        "p",
        tuple(
            PlannedJob(
                step,
                10,
                True,
                Resources(1, 64),
                command="true",
                needs=tuple(Need(one) for one in others),
            )
            for step, others in needs.items()
        ),
    )


def job(step: str, **counts: int) -> JobDetail:
    states = tuple(counts.get(state.value, 0) for state in JobState)
    return JobDetail(
        f"id-{step}", step, JobState.PENDING, "", sum(states), states, 0, 0, None, None
    )


def test_reminders_become_rare_and_begin_anew_when_something_was_heard() -> None:
    quiet = waiting.Quiet(30, 0)
    said = [now for now in range(0, 20_000, 10) if quiet.is_due(now)]
    assert said[:7] == [30, 90, 210, 450, 930, 1890, 3690]
    assert {later - earlier for earlier, later in pairwise(said[6:])} == {1800}
    quiet.heard(20_000)
    assert [now for now in range(20_000, 20_100, 10) if quiet.is_due(now)] == [20_030, 20_090]


def test_who_is_more_patient_than_that_is_not_hurried() -> None:
    quiet = waiting.Quiet(7200, 0)
    assert [now for now in range(0, 20_000, 600) if quiet.is_due(now)] == [7200, 14400]


def test_an_array_that_waits_for_hosts_on_aws() -> None:
    # Two jobs of one step, as where an array is larger than AWS takes.
    jobs = [job("train", RUNNABLE=200), job("train", RUNNABLE=100), job("collect", PENDING=1)]
    waits = [
        Wait("train", 200, "a:3", NOW_MS - 240_000, "lab"),
        Wait("train", 100, "b:0", NOW_MS - 60_000, "lab"),
    ]
    assert waiting.lines(
        plan(train=(), collect=("train",)), jobs, waits, None, NOW_MS, " --home x"
    ) == [
        "waiting: 300 children of train are RUNNABLE for 4m; `batchyard doctor job a:3 --env lab --home x` says why"
    ]


def test_what_waits_for_another_step_is_told_where_it_is_what_one_follows() -> None:
    jobs = [
        job("a", SUCCEEDED=1),
        job("b", RUNNING=2, RUNNABLE=1),
        job("c", PENDING=3),
        job("other", RUNNING=1),
    ]
    steps = plan(a=(), b=("a",), c=("a", "b"), other=())
    assert waiting.lines(steps, jobs, None, "c", NOW_MS) == [
        "waiting: 2 children of b are RUNNING",
        "waiting: 1 child of b is RUNNABLE, to start when others have ended",
        "waiting: 3 children of c are PENDING until b has ended",
    ]


def test_of_a_step_that_is_over_what_the_run_waits_for() -> None:
    jobs = [job("a", SUCCEEDED=2), job("b", STARTING=1)]
    assert waiting.lines(plan(a=(), b=("a",)), jobs, (), "a", NOW_MS) == [
        "waiting: 1 child of b is STARTING"
    ]


def test_nothing_has_begun() -> None:
    jobs = [job("a", SUBMITTED=1), job("b", PENDING=1)]
    assert waiting.lines(plan(a=(), b=("a",)), jobs, (), None, NOW_MS) == [
        "waiting: 1 child of a is SUBMITTED",
        "waiting: 1 child of b is PENDING until a has ended",
    ]


def test_where_jobs_may_not_be_listed_the_rest_is_told() -> None:
    assert waiting.lines(plan(a=()), [job("a", RUNNABLE=2)], (), None, NOW_MS) == [
        "waiting: 2 children of a are RUNNABLE"
    ]


def test_hundreds_of_steps_are_not_listed() -> None:
    steps = [f"s{number}" for number in range(100)]
    found = waiting.lines(
        plan(**{step: () for step in steps}),
        [job(step, RUNNING=1) for step in steps],
        None,
        None,
        0,
    )
    assert len(found) == 6 and found[-1] == "waiting: 95 more steps"
