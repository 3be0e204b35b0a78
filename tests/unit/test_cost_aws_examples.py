"""Worked examples of AWS's own pages: the arithmetic gives AWS's numbers.

Where a page has a rule without an amount, the price is $3.60 an hour: a tenth of a cent a second.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from batchyard.batch.jobs import Resources
from batchyard.cli.render_bill import bill_lines
from batchyard.cost.bill import Instance, PriceChange, Use, make_bill, price_disk
from batchyard.cost.host_prices import HostPrices
from batchyard.cost.market import parse_products
from batchyard.cost.run_bill import RunBill, make_run_bill
from batchyard.ec2_prices import load_prices
from batchyard.engines.base import RunRecord
from batchyard.engines.memory import MemoryEngine
from batchyard.engines.usage import PaidHost, Usage
from batchyard.folder import RunFolder
from batchyard.plan import Plan
from batchyard.report.costs import cost_section

HOUR_S, DAY_S = 3600, 86_400
SIZE = Resources(4, 15_000)
FLAT = (PriceChange(0.0, 3.6),)
#: A month of 30 days.
JUNE_S = datetime(2026, 6, 1, tzinfo=UTC).timestamp()


class Life(NamedTuple):
    """An instance: its seconds, who ended it, and what AWS charges."""

    seconds: float
    usd: float
    is_spot: bool = False
    by_ec2: bool = False
    prices: tuple[PriceChange, ...] = FLAT


#: "Announcing Amazon EC2 per second billing", 2017-10-02: Linux instances, on demand and on spot,
#: by the second, with a minimum of 60 seconds.
PER_SECOND = {
    "a second costs a minute": Life(1, 0.06),
    "a minute": Life(60, 0.06),
    "a second more": Life(61, 0.061),
    "half an hour and a second": Life(1801, 1.801),
    "an hour": Life(HOUR_S, 3.6),
    "ninety minutes are no two hours": Life(5400, 5.4),
    "a second on spot": Life(1, 0.06, is_spot=True),
}
#: "Billing for interrupted Spot Instances", EC2 User Guide, the rows of Linux.
INTERRUPTED = {
    "you end it in its first hour": Life(1200, 1.2, is_spot=True),
    "you end it later": Life(5400, 5.4, is_spot=True),
    "EC2 interrupts it in its first hour": Life(1200, 0.0, is_spot=True, by_ec2=True),
    "EC2 interrupts it in its last second of that hour": Life(3599, 0.0, is_spot=True, by_ec2=True),
    "EC2 interrupts it later": Life(5400, 5.4, is_spot=True, by_ec2=True),
}
#: "How Spot Instances work", whitepaper: the Spot price that is in effect, to the nearest second.
IN_EFFECT = {
    "the price falls after an hour": Life(
        7200, 3.6 + 1.8, is_spot=True, prices=(*FLAT, PriceChange(HOUR_S, 1.8))
    ),
    "the price rises for a minute": Life(
        HOUR_S,
        3.6 + 0.06,
        is_spot=True,
        prices=(*FLAT, PriceChange(600.0, 7.2), PriceChange(660.0, 3.6)),
    ),
}


LIVES = PER_SECOND | INTERRUPTED | IN_EFFECT


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_what_aws_charges_for_an_instance(life: Life) -> None:
    instance = Instance(
        "i",
        SIZE,
        0.0,
        life.seconds,
        life.prices,
        is_spot=life.is_spot,
        was_reclaimed=life.by_ec2,
        on_demand_usd_h=3.6,
    )
    bill = make_bill([instance], [Use("i", "a", 0.0, life.seconds, SIZE)])
    assert bill.paid_usd == pytest.approx(life.usd)
    assert bill.used_usd + bill.idle_usd + bill.lost_usd == pytest.approx(life.usd)


@pytest.mark.parametrize(
    ("gib", "price", "seconds", "charge"),
    [
        # "Amazon EBS pricing", example 1: a gp3 volume for 12 hours of a month of 30 days, at the
        # price of that page, in its currency.
        (2000, 0.09394, 12 * HOUR_S, 3.13133),
        # The whole month, and the 60-second minimum of the same page.
        (100, 0.08, 30 * DAY_S, 8.0),
        (2000, 0.09394, 1, 0.09394 * 2000 * 60 / (DAY_S * 30)),
    ],
)
def test_what_aws_charges_for_a_volume(
    gib: int, price: float, seconds: float, charge: float
) -> None:
    assert price_disk(gib, price, JUNE_S, JUNE_S + seconds) == pytest.approx(charge, abs=5e-6)


def test_a_volume_of_a_month_costs_the_same_in_every_month() -> None:
    february_s = datetime(2026, 2, 1, tzinfo=UTC).timestamp()
    assert price_disk(100, 0.08, february_s, february_s + 28 * DAY_S) == pytest.approx(8.0)
    # Two days of January, and three of February.
    two_months = price_disk(100, 0.08, february_s - 2 * DAY_S, february_s + 3 * DAY_S)
    assert two_months == pytest.approx(8.0 * (2 / 31 + 3 / 28))


def bill_host(host: PaidHost, seconds: float) -> RunBill:
    folder = RunFolder(Path("p-20260601-4f1c2a"))
    record = RunRecord(folder, Plan("p", ()), MemoryEngine(), None, int(JUNE_S * 1000))
    usage = Usage("us-east-1", (host,), (), JUNE_S + seconds, is_final=True)
    return make_run_bill(record, usage, HostPrices({}, {"m5.xlarge": 0.192}, (), is_live=True))


def make_host(seconds: float, **members: bool | tuple[tuple[str, int], ...]) -> PaidHost:
    return PaidHost(
        "i",
        "m5.xlarge",
        "us-east-1a",
        launched_s=JUNE_S,
        ended_s=JUNE_S + seconds,
        **members,  # type: ignore[arg-type]
    )


def test_a_public_address_costs_what_aws_says() -> None:
    # "New: AWS public IPv4 address charge", AWS News Blog: $0.005 an hour for each address.
    bill = bill_host(make_host(600, has_public_address=True), 600)
    assert bill.address_usd == pytest.approx(0.005 / 6)
    assert load_prices().network_usd_h == {
        # "Amazon VPC pricing", us-east-1: an hour of each.
        "nat_gateway": 0.045,
        "interface_endpoint": 0.01,
        "public_ipv4": 0.005,
    }


def test_disks_are_a_line_of_their_own_and_unknown_ones_are_listed() -> None:
    bill = bill_host(make_host(600, disks=(("gp3", 150), ("gp2", 8))), 600)
    month_s = 30 * DAY_S
    assert bill.disk_usd == pytest.approx((0.08 * 150 + 0.10 * 8) * 600 / month_s)
    assert bill.paid_usd == pytest.approx(0.192 / 6)
    assert not [text for text in bill.not_counted if "disks" in text]
    assert "prices of disks: those of us-east-1" in bill.sources
    assert "disks of the hosts (EBS), not part of the sum: $0.0030" in bill_lines(bill)
    assert "Disks of the hosts (EBS) cost $0.0030 more." in cost_section(bill)
    for disks in ((), (("io2", 100),)):
        bill = bill_host(make_host(600, disks=disks), 600)
        assert "disks of 1 host" in bill.not_counted and not bill.disk_usd


def test_disks_of_a_free_instance_are_paid_for() -> None:
    # "Billing for interrupted Spot Instances": other charges apply, whoever interrupts it and when.
    host = PaidHost(
        *("i", "m5.xlarge", "us-east-1a", True, JUNE_S, JUNE_S + 600, True),
        disks=(("gp3", 150),),
    )
    bill = bill_host(host, 600)
    assert not bill.paid_usd and bill.disk_usd > 0


def test_four_equal_tasks_pay_a_quarter_of_the_instance_each() -> None:
    # "Example of split cost allocation data", Data Exports guide: what tasks reserve, and what they
    # leave, is divided among them. Equal tasks that fill the GPUs pay the same by AWS's weights.
    size = Resources(48, 192 * 1024, 4)
    task = Resources(4, 16 * 1024, 1)
    instance = Instance("i", size, 0.0, HOUR_S, (PriceChange(0.0, 5.672),))
    uses = [Use("i", f"step-{n}", 0.0, HOUR_S, task) for n in range(4)]
    bill = make_bill([instance], uses)
    assert [step.used_usd for step in bill.by_step.values()] == [pytest.approx(5.672 / 4)] * 4
    assert bill.idle_usd == pytest.approx(0.0)


def test_a_product_of_the_price_list() -> None:
    # The form of the Price List Query API: JSON as text, prices as text, reservations beside.
    product = """
    {"product": {"productFamily": "Compute Instance",
                 "attributes": {"instanceType": "m5.xlarge", "operatingSystem": "Linux"}},
     "terms": {"OnDemand": {"X.JRTCKXETXF": {"priceDimensions": {"X.JRTCKXETXF.6YS6EN2CT7": {
                 "unit": "Hrs", "pricePerUnit": {"USD": "0.1920000000"}}}}},
               "Reserved": {"X.Y": {"priceDimensions": {"X.Y.Z": {
                 "unit": "Hrs", "pricePerUnit": {"USD": "0.1210000000"}}}}}}}
    """
    assert parse_products([product]) == pytest.approx(0.192)
