"""Laws of the arithmetic of cost, for every input."""

from __future__ import annotations

import random
from heapq import heapify, heappop, heappush
from math import ceil
from statistics import mean

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchyard.batch.jobs import Resources
from batchyard.cost.bill import (
    MIN_BILLED_S,
    Bill,
    Instance,
    PriceChange,
    Use,
    dominant_share,
    make_bill,
    price_instance,
)
from batchyard.cost.estimate import (
    OVERHEAD_S,
    Spread,
    Work,
    estimate_usd,
    measure_spread,
    sum_of_commands,
)

TIMES = st.floats(-1000, 20_000)
DOLLARS = st.floats(0, 200)
RESOURCES = st.builds(Resources, st.integers(1, 8), st.integers(1, 4096), st.integers(0, 4))
CAPACITIES = st.builds(Resources, st.integers(1, 8), st.integers(1, 4096), st.integers(0, 4))
IDS = st.sampled_from(["i-1", "i-2"])


@st.composite
def instances(draw: st.DrawFn, name: str) -> Instance:
    times = sorted(draw(st.lists(TIMES, min_size=1, max_size=4)))
    start_s, end_s = sorted((draw(TIMES), draw(TIMES)))
    return Instance(
        name,
        draw(CAPACITIES),
        start_s,
        end_s,
        tuple(PriceChange(time, draw(DOLLARS)) for time in times),
        is_spot=draw(st.booleans()),
        was_reclaimed=draw(st.booleans()),
        on_demand_usd_h=draw(DOLLARS),
    )


FLEETS = st.tuples(instances("i-1"), instances("i-2"))
USES = st.lists(
    st.builds(Use, IDS, st.sampled_from(["a", "b"]), TIMES, TIMES, RESOURCES, st.booleans()),
    max_size=12,
).map(lambda uses: [use for use in uses if use.started_s <= use.ended_s])


def close(usd: float) -> object:
    return pytest.approx(usd, rel=1e-9, abs=1e-9)


@given(FLEETS, USES)
def test_used_idle_and_lost_are_what_is_paid(fleet: tuple[Instance, ...], uses: list[Use]) -> None:
    bill = make_bill(fleet, uses)
    assert bill.paid_usd == close(sum(map(price_instance, fleet)))


@given(FLEETS, USES)
def test_no_cost_is_negative(fleet: tuple[Instance, ...], uses: list[Use]) -> None:
    bill = make_bill(fleet, uses)
    amounts = [bill.used_usd, bill.idle_usd, bill.lost_usd, bill.on_demand_usd or 0.0]
    amounts += [usd for cost in bill.by_step.values() for usd in (cost.used_usd, cost.lost_usd)]
    assert min(amounts) >= 0


@given(FLEETS, USES)
def test_shares_never_add_up_to_more_than_the_price_of_the_instance(
    fleet: tuple[Instance, ...], uses: list[Use]
) -> None:
    for instance in fleet:
        bill = make_bill([instance], uses)
        shares = sum(cost.used_usd + cost.lost_usd for cost in bill.by_step.values())
        assert shares <= price_instance(instance) * (1 + 1e-9) + 1e-9
        assert shares == close(bill.used_usd + bill.lost_usd)


@given(instances("i-1"))
def test_an_instance_is_billed_for_a_minute_at_least_or_was_reclaimed(instance: Instance) -> None:
    lifetime_s = instance.ended_s - instance.started_s
    if instance.billed_s:
        assert instance.billed_s == max(MIN_BILLED_S, lifetime_s)
    else:
        assert instance.is_spot and instance.was_reclaimed and lifetime_s < 3600


@given(FLEETS, USES)
def test_the_order_of_attempts_changes_nothing(
    fleet: tuple[Instance, ...], uses: list[Use]
) -> None:
    def amounts(bill: Bill) -> tuple[float, ...]:
        return (bill.used_usd, bill.idle_usd, bill.lost_usd, bill.on_demand_usd or 0.0)

    assert amounts(make_bill(fleet, uses[::-1])) == close_all(amounts(make_bill(fleet, uses)))


def close_all(amounts: tuple[float, ...]) -> object:
    return pytest.approx(amounts, rel=1e-9, abs=1e-9)


@given(RESOURCES, CAPACITIES)
def test_a_share_is_a_fraction(requested: Resources, capacity: Resources) -> None:
    assert 0 < dominant_share(requested, capacity) <= 1


@example(92895.83291855341, 92895.83291855341, 0, 1)
@given(st.floats(0, 1e5), st.floats(0, 1e5), st.integers(0, 1000), st.integers(0, 10_000))
def test_a_range_has_its_low_end_below_its_high_end(
    one_s: float, other_s: float, count: int, commands: int
) -> None:
    spread = Spread(min(one_s, other_s), max(one_s, other_s), count)
    seconds = sum_of_commands(spread, commands)
    assert 0 <= seconds.low <= seconds.high


REQUESTED, USD_H = Resources(4, 4096), 3.6


@pytest.mark.parametrize(
    ("work", "earlier_count", "children_at_once", "max_instances"),
    [
        (Work(64, 16, REQUESTED), 40, 4, 99),
        (Work(64, 64, REQUESTED), 40, 4, 4),
        (Work(200, 200, REQUESTED), 30, 8, 3),
        (Work(1000, 100, REQUESTED), 30, 4, 10),
        (Work(10, 10, REQUESTED), 10, 2, 2),
        (Work(1, 1, REQUESTED), 5, 1, 9),
    ],
    ids=lambda value: f"{value.commands}-{value.children}" if isinstance(value, Work) else None,
)
@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0])
def test_the_bill_lies_inside_the_estimate(
    work: Work, earlier_count: int, children_at_once: int, max_instances: int, sigma: float
) -> None:
    """Of 20 simulated runs with known distributions, at least 18."""
    capacity = Resources(4 * children_at_once, 60_000)
    inside = 0
    for seed in range(20):
        draw = random.Random(seed)
        earlier = measure_spread([draw.lognormvariate(4, sigma) for _ in range(earlier_count)])
        assert earlier is not None
        estimate = estimate_usd(work, earlier, capacity, USD_H, max_instances)
        assert estimate is not None
        instances = min(ceil(work.children / children_at_once), max_instances)
        bill = simulate_run(draw, sigma, work, capacity, instances)
        inside += estimate.low <= bill.paid_usd <= estimate.high
    assert inside >= 18


def simulate_run(
    draw: random.Random, sigma: float, work: Work, capacity: Resources, instances: int
) -> Bill:
    """Return the bill of a run: each child starts where there is room first."""
    free: list[tuple[float, int]] = []
    for number in range(instances):
        boot_s = draw.uniform(OVERHEAD_S[0] / 2, OVERHEAD_S[1] / 2)
        free += [(boot_s, number)] * (capacity.vcpus // work.requested.vcpus)
    heapify(free)
    uses, ends_s = [], [0.0] * instances
    for _ in range(work.children):
        start_s, number = heappop(free)
        commands = range(work.commands // work.children)
        end_s = start_s + sum(draw.lognormvariate(4, sigma) for _ in commands)
        uses.append(Use(f"i-{number}", "a", start_s, end_s, work.requested))
        ends_s[number] = max(ends_s[number], end_s)
        heappush(free, (end_s, number))
    fleet = [
        Instance(f"i-{number}", capacity, 0, end_s + draw.uniform(0, 300), (PriceChange(0, USD_H),))
        for number, end_s in enumerate(ends_s)
    ]
    return make_bill(fleet, uses)


def test_the_sum_of_many_commands_is_near_its_mean() -> None:
    draw = random.Random(1)
    seconds = [draw.lognormvariate(3, 0.8) for _ in range(10_000)]
    spread = measure_spread(seconds)
    assert spread is not None
    estimate = sum_of_commands(spread, len(seconds))
    assert estimate.low <= mean(seconds) * len(seconds) <= estimate.high
    assert estimate.high < 1.1 * estimate.low
