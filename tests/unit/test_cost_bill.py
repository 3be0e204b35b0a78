"""The bill of instances: worked examples."""

from __future__ import annotations

import pytest

from batchyard.batch.jobs import Resources
from batchyard.cost.bill import (
    Instance,
    PriceChange,
    StepCost,
    Use,
    dominant_share,
    make_bill,
    price_instance,
)

#: 4 GPUs, 48 vCPUs, 192 GiB
LARGE = Resources(48, 192 * 1024, 4)
SMALL = Resources(4, 16 * 1024, 1)
HOUR_S = 3600.0


def instance(
    seconds: float, usd_h: float = 3.6, *, capacity: Resources = SMALL, **more: object
) -> Instance:
    return Instance("i", capacity, 0.0, seconds, (PriceChange(0.0, usd_h),), **more)  # type: ignore[arg-type]


def use(
    start_s: float,
    end_s: float,
    requested: Resources = SMALL,
    *,
    step: str = "a",
    counts: bool = True,
) -> Use:
    return Use("i", step, start_s, end_s, requested, counts)


@pytest.mark.parametrize(
    ("requested", "share"),
    [
        (Resources(4, 16 * 1024, 1), 1 / 4),  # 1 of 4 GPUs
        (Resources(24, 1024), 1 / 2),
        (Resources(1, 144 * 1024), 3 / 4),
        (Resources(96, 1024), 1.0),
        (Resources(1, 1, 9), 1.0),
    ],
)
def test_the_largest_share_counts(requested: Resources, share: float) -> None:
    assert dominant_share(requested, LARGE) == share


@pytest.mark.parametrize(
    ("who", "seconds", "billed_s"),
    [
        # "Billing for interrupted Spot Instances" in AWS's user guide of EC2, Linux
        ("user", 1800, 1800),
        ("user", 5400, 5400),
        ("ec2", 1800, 0),
        ("ec2", 5400, 5400),
        ("ec2", 3599, 0),
        ("ec2", 3600, 3600),
        # one-second increments, with a minimum of 60 seconds
        ("user", 61, 61),
        ("user", 60, 60),
        ("user", 20, 60),
        ("user", 0, 60),
    ],
)
def test_the_seconds_that_aws_bills_of_a_spot_instance(
    who: str, seconds: float, billed_s: float
) -> None:
    spot = instance(seconds, is_spot=True, was_reclaimed=who == "ec2")
    assert spot.billed_s == billed_s
    assert price_instance(spot) == pytest.approx(billed_s * 0.001)


def test_on_demand_a_loss_in_the_first_hour_is_paid() -> None:
    assert instance(1800, was_reclaimed=True).billed_s == 1800


def test_one_job_with_boot_before_and_a_delay_after() -> None:
    bill = make_bill([instance(1000)], [use(100, 700)])
    assert (bill.used_usd, bill.idle_usd, bill.lost_usd) == pytest.approx((0.6, 0.4, 0.0))
    assert bill.efficiency == pytest.approx(0.6) and bill.paid_usd == pytest.approx(1.0)


def test_a_failed_attempt_is_lost_and_the_next_one_is_used() -> None:
    bill = make_bill([instance(1000)], [use(0, 300, counts=False), use(300, 1000)])
    assert (bill.used_usd, bill.idle_usd, bill.lost_usd) == pytest.approx((0.7, 0.0, 0.3))
    assert bill.by_step == {"a": StepCost(pytest.approx(0.7), pytest.approx(0.3))}


def test_two_steps_share_an_instance() -> None:
    uses = [
        use(0, 1000, Resources(4, 1024, 1), step="gpu"),
        use(0, 500, Resources(24, 1024), step="cpu"),
    ]
    bill = make_bill([instance(1000, capacity=LARGE)], uses)
    assert bill.by_step["gpu"].used_usd == pytest.approx(0.25)
    assert bill.by_step["cpu"].used_usd == pytest.approx(0.25)
    assert bill.idle_usd == pytest.approx(0.5)


def test_shares_of_more_than_the_instance_are_reduced_in_proportion() -> None:
    # All GPUs and three quarters of the memory fit together, and are 1.75 of the instance.
    uses = [
        use(0, 1000, Resources(4, 1024, 4), step="gpu"),
        use(0, 1000, Resources(4, 144 * 1024), step="memory"),
    ]
    bill = make_bill([instance(1000, capacity=LARGE)], uses)
    assert bill.by_step["gpu"].used_usd == pytest.approx(1 / 1.75)
    assert bill.by_step["memory"].used_usd == pytest.approx(0.75 / 1.75)
    assert bill.idle_usd == 0 and bill.paid_usd == pytest.approx(1.0)


def test_each_second_has_the_price_of_its_time() -> None:
    prices = (PriceChange(-500, 3.6), PriceChange(400, 7.2), PriceChange(5000, 99.0))
    spot = Instance("i", SMALL, 0, 1000, prices, is_spot=True, on_demand_usd_h=36.0)
    bill = make_bill([spot], [use(0, 500)])
    assert bill.used_usd == pytest.approx(0.4 + 0.2)
    assert bill.idle_usd == pytest.approx(1.0)
    assert bill.saved_usd == pytest.approx(10.0 - 1.6)


def test_what_a_reclaim_ended_is_not_counted_as_saved() -> None:
    spot = Instance("i", SMALL, 0, 7200, (PriceChange(0, 1.0),), True, True, on_demand_usd_h=3.0)
    bill = make_bill([spot], [use(0, 3600), use(3600, 7200, counts=False)])
    assert (bill.used_usd, bill.lost_usd) == pytest.approx((1.0, 1.0))
    assert bill.on_demand_usd == pytest.approx(3.0) and bill.saved_usd == pytest.approx(1.0)


def test_a_spot_host_that_is_taken_in_its_first_hour_costs_nothing() -> None:
    spot = instance(1800, is_spot=True, was_reclaimed=True, on_demand_usd_h=10.0)
    bill = make_bill([spot], [use(0, 600), use(600, 1800, counts=False)])
    assert bill.paid_usd == 0 and bill.efficiency is None
    # On demand, only the ten minutes that were used would have been paid.
    assert bill.saved_usd == pytest.approx(10.0 / 6)


def test_the_first_hour_of_a_host_begins_with_its_launch() -> None:
    later_part = instance(1800, is_spot=True, was_reclaimed=True, launched_s=-1801.0)
    assert later_part.billed_s == 1800


def test_a_host_that_another_run_kept_for_hours_was_not_taken_in_its_first_hour() -> None:
    earlier_part = instance(1800, is_spot=True, was_reclaimed=True, real_end_s=7200.0)
    assert earlier_part.billed_s == 1800


def test_an_instance_without_a_price_is_named_and_not_counted() -> None:
    bill = make_bill([Instance("i-7", SMALL, 0, 100, ())], [Use("i-7", "a", 0, 100, SMALL)])
    assert bill.unpriced == ("i-7",) and bill.paid_usd == 0 and bill.saved_usd is None


def test_time_outside_the_life_of_an_instance_costs_nothing() -> None:
    bill = make_bill([instance(1000)], [use(-500, 100), use(900, 9000), use(5000, 6000)])
    assert bill.used_usd == pytest.approx(0.2) and bill.paid_usd == pytest.approx(1.0)
