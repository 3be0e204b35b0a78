"""Lines of `logs -f` about what a silent run waits for, and how often they come."""

from __future__ import annotations

from itertools import pairwise

from batchyard import wait_reasons
from batchyard.batch.jobs import JobState, Resources
from batchyard.cli import waiting
from batchyard.engines.base import JobDetail, Wait
from batchyard.pipeline import Need
from batchyard.plan import Plan, PlannedJob

NOW_MS = 1_000_000


def plan(**needs: tuple[str, ...]) -> Plan:
    """Return a plan. ``needs``: step -> the steps that it needs."""
    return Plan(
        "p",
        tuple(
            PlannedJob(
                step,
                10,
                True,
                Resources(1, 64),
                command="true",
                needs=tuple(Need(name) for name in names),
            )
            for step, names in needs.items()
        ),
    )


def job(step: str, **counts: int) -> JobDetail:
    states = tuple(counts.get(state.value, 0) for state in JobState)
    return JobDetail(
        f"id-{step}", step, JobState.PENDING, "", sum(states), states, 0, 0, None, None
    )


def test_reminders_become_rare_and_begin_anew_after_output() -> None:
    timer = waiting.ReminderTimer(30, 0)
    due_s = [now_s for now_s in range(0, 20_000, 10) if timer.is_due(now_s)]
    assert due_s[:7] == [30, 90, 210, 450, 930, 1890, 3690]
    assert {later - earlier for earlier, later in pairwise(due_s[6:])} == {1800}
    timer.restart(20_000)
    due_s = [now_s for now_s in range(20_000, 20_100, 10) if timer.is_due(now_s)]
    assert due_s == [20_030, 20_090]


def test_a_patience_above_the_longest_gap_is_kept() -> None:
    timer = waiting.ReminderTimer(7200, 0)
    assert [now_s for now_s in range(0, 20_000, 600) if timer.is_due(now_s)] == [7200, 14400]


def test_an_array_that_waits_for_hosts_on_aws() -> None:
    # Two jobs of one step, as where an array is larger than AWS takes.
    jobs = [job("train", RUNNABLE=200), job("train", RUNNABLE=100), job("collect", PENDING=1)]
    waits = [
        Wait("train", 200, "a:3", NOW_MS - 240_000, "doctor job a:3 --env lab"),
        Wait("train", 100, "b:0", NOW_MS - 60_000, "doctor job b:0 --env lab"),
    ]
    assert wait_reasons.describe_waits(
        plan(train=(), collect=("train",)), jobs, waits, None, NOW_MS, " --home x"
    ) == [
        "waiting: 300 children of train are RUNNABLE for 4m; "
        "`batchyard doctor job a:3 --env lab --home x` says why"
    ]


def test_a_followed_step_that_waits_for_another_has_a_line() -> None:
    jobs = [
        job("a", SUCCEEDED=1),
        job("b", RUNNING=2, RUNNABLE=1),
        job("c", PENDING=3),
        job("other", RUNNING=1),
    ]
    steps = plan(a=(), b=("a",), c=("a", "b"), other=())
    assert wait_reasons.describe_waits(steps, jobs, None, "c", NOW_MS) == [
        "waiting: 2 children of b are RUNNING",
        "waiting: 1 child of b is RUNNABLE until other children end",
        "waiting: 3 children of c are PENDING until b has ended",
    ]


def test_if_the_followed_step_is_over_other_steps_have_lines() -> None:
    jobs = [job("a", SUCCEEDED=2), job("b", STARTING=1)]
    assert wait_reasons.describe_waits(plan(a=(), b=("a",)), jobs, (), "a", NOW_MS) == [
        "waiting: 1 child of b is STARTING"
    ]


def test_nothing_has_begun() -> None:
    jobs = [job("a", SUBMITTED=1), job("b", PENDING=1)]
    assert wait_reasons.describe_waits(plan(a=(), b=("a",)), jobs, (), None, NOW_MS) == [
        "waiting: 1 child of a is SUBMITTED",
        "waiting: 1 child of b is PENDING until a has ended",
    ]


def test_without_the_right_to_list_jobs_the_states_have_lines() -> None:
    assert wait_reasons.describe_waits(plan(a=()), [job("a", RUNNABLE=2)], (), None, NOW_MS) == [
        "waiting: 2 children of a are RUNNABLE"
    ]


def test_hundreds_of_steps_are_not_listed() -> None:
    steps = [f"s{number}" for number in range(100)]
    lines = wait_reasons.describe_waits(
        plan(**{step: () for step in steps}),
        [job(step, RUNNING=1) for step in steps],
        None,
        None,
        0,
    )
    assert len(lines) == 6 and lines[-1] == "waiting: 95 more steps"
