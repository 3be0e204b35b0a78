"""`batchyard cost`: the seconds of a run's attempts, used and lost, and their prices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchyard.batch.jobs import JobState, Resources
from batchyard.cost.market import Offers
from batchyard.cost.offers import Offer
from batchyard.cost.run_cost import StepUse, measure_uses, price_uses
from batchyard.ec2_types import TYPES
from batchyard.engines.base import AttemptDetail, CommandDetail
from batchyard.errors import InputError
from batchyard.plan import PlannedJob

ONE_GPU = Resources(4, 8192, 1)


def job(step: str, requested: Resources = ONE_GPU) -> PlannedJob:
    return PlannedJob(step, 2, True, requested)


def attempt(
    number: int, seconds: float, state: JobState | None, *, index: int = 0, step: str = "a"
) -> AttemptDetail:
    ended_ms = int(seconds * 1000)
    return AttemptDetail(step, step, index, number, state, 0, "", "", 0, ended_ms, 0, 0, 0)


def command(
    seconds: float, state: JobState, *, child_attempt: int, index: int = 0, number: int = 0
) -> CommandDetail:
    return CommandDetail(
        *("a", number, index, state, 0, "", 1, 0, int(seconds * 1000), 0, 0, 0, "", child_attempt)
    )


def test_failed_attempts_are_lost() -> None:
    attempts = [
        attempt(1, 10, None),
        attempt(2, 30, JobState.SUCCEEDED),
        attempt(1, 5, JobState.FAILED, index=1),
    ]
    commands = [command(30, JobState.SUCCEEDED, child_attempt=2)]
    assert measure_uses([job("a"), job("b")], attempts, commands) == [
        StepUse("a", ONE_GPU, used_s=30, lost_s=15, succeeded=1),
        StepUse("b", ONE_GPU),
    ]


def test_commands_that_succeeded_in_a_failed_attempt_are_used() -> None:
    attempts = [attempt(1, 10, None), attempt(2, 4, JobState.SUCCEEDED)]
    commands = [
        command(7, JobState.SUCCEEDED, child_attempt=1),
        command(4, JobState.SUCCEEDED, child_attempt=2, number=1),
    ]
    (use,) = measure_uses([job("a")], attempts, commands)
    assert (use.used_s, use.lost_s, use.succeeded) == (11, 3, 2)


def find(*offers: Offer) -> Callable[[Resources], Offers]:
    return lambda requested: Offers(offers, "us-east-1", 0, ("prices: of a test",))


def test_a_child_pays_for_its_share_of_the_type_on_which_it_is_cheapest() -> None:
    single = Offer(TYPES["g5.xlarge"], 1.0, {"a": 0.6})
    quarter = Offer(TYPES["g5.12xlarge"], 6.0, {"a": 2.0})
    use = StepUse("a", ONE_GPU, used_s=3600, lost_s=1800, succeeded=10)
    cost = price_uses("r", [use], find(single, quarter))
    (step,) = cost.steps
    assert step.offer == quarter and step.share == 0.25
    assert step.usd(use.used_s, is_spot=True) == pytest.approx(0.5)
    assert cost.total_usd(is_spot=True) == pytest.approx(0.75)
    assert cost.total_usd(is_spot=False) == pytest.approx(2.25)
    shown = cost.to_json()
    assert shown["steps"][0]["spot_usd_per_command"] == pytest.approx(0.05)
    assert shown["sources"] == ["prices: of a test"]


def test_a_step_without_a_price_makes_the_sum_unknown() -> None:
    def find_none(requested: Resources) -> Offers:
        if requested != ONE_GPU:
            raise InputError("no type is large enough")
        return find(Offer(TYPES["g5.xlarge"], None, {"a": 0.6}))(requested)

    uses = [StepUse("a", ONE_GPU, 3600), StepUse("huge", Resources(1, 1, 99), 3600)]
    cost = price_uses("r", uses, find_none)
    assert cost.total_usd(is_spot=True) is None
    assert cost.steps[0].usd(3600, is_spot=True) == pytest.approx(0.6)
    assert cost.steps[0].usd(3600, is_spot=False) is None
    assert "huge: no type is large enough" in cost.sources
    assert cost.to_json()["steps"][1]["type"] is None


def test_each_kind_of_resources_is_priced_once() -> None:
    asked: list[Resources] = []

    def find_and_note(requested: Resources) -> Offers:
        asked.append(requested)
        return find()(requested)

    price_uses("r", [StepUse("a", ONE_GPU), StepUse("b", ONE_GPU)], find_and_note)
    assert asked == [ONE_GPU]
