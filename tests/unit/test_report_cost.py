"""The cost section of the report, from a bill."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from batchyard.batch.jobs import Resources
from batchyard.cost.bill import PriceChange
from batchyard.cost.host_prices import HostPrices
from batchyard.cost.run_bill import RunBill, make_run_bill
from batchyard.engines.base import RunRecord
from batchyard.engines.memory import MemoryEngine
from batchyard.engines.usage import HostUse, PaidHost, Usage
from batchyard.folder import RunFolder
from batchyard.plan import Plan, PlannedJob
from batchyard.report.costs import cost_section

GPU, HALF = Resources(4, 15_000, 1), Resources(2, 4096)


def make_bill(unknown: tuple[str, ...] = ()) -> RunBill:
    """Return the bill of a run with a reclaim, two types, and a host that two children share."""
    jobs = (
        PlannedJob("fetch", 4, True, HALF, step_size=4, command_count=4),
        PlannedJob("train", 1, False, GPU),
    )
    zone = "us-east-1a"
    hosts = (
        PaidHost("i-1", "m5.xlarge", zone, False, 1000.0, 4600.0, capacity=Resources(4, 15_000)),
        PaidHost("i-2", "g5.xlarge", zone, True, 1000.0, 8200.0, True, GPU),
        PaidHost("i-3", "g5.xlarge", zone, True, 8200.0, 11_800.0, False, GPU, True),
    )
    uses = (
        *(
            HostUse("i-1", "fetch", n, 1, 1100.0 + n // 2 * 1500, 2600.0 + n // 2 * 1500, HALF)
            for n in range(4)
        ),
        HostUse("i-2", "train", 0, 1, 1180.0, 8200.0, GPU, counts=False),
        HostUse("i-3", "train", 0, 2, 8380.0, 11_680.0, GPU),
    )
    prices = HostPrices(
        {("g5.xlarge", zone): (PriceChange(0.0, 0.5), PriceChange(8200.0, 0.6))},
        {"g5.xlarge": 1.006, "m5.xlarge": 0.192},
        ("on-demand prices: AWS Price List, us-east-1",),
        is_live=True,
    )
    usage = Usage("us-east-1", hosts, uses, 12_000.0, True, unknown)
    folder = RunFolder(Path("p-20261117-4f1c2a"))
    record = RunRecord(folder, Plan("p", jobs), MemoryEngine(), None, 1_000_000)
    return make_run_bill(record, usage, prices)


def text_of(markup: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", markup)))


def test_a_run_that_costs_nothing_has_no_section() -> None:
    assert cost_section(None) == ""


def test_the_bill_as_a_section() -> None:
    bill = make_bill()
    assert bill.paid_usd == pytest.approx(0.192 + 2 * 0.5 + 0.6)
    shown = text_of(cost_section(bill))
    assert "$1.7920 paid." in shown and "spot was $0.5437 dearer" in shown
    # Two of four children share the host: each pays for half of it, 1,500 s.
    assert "fetch 4 25m $0.1600 $0.0000 $0.0400" in shown
    assert "train 1 55m $0.5500 $0.9750 $0.5500" in shown
    assert "g5.xlarge us-east-1a spot 2 3h $1.6000" in shown
    assert "m5.xlarge us-east-1a on-demand 1 1h $0.1920" in shown
    assert "Public IPv4 addresses cost $0.0050 more." in shown and "Not counted: disks" in shown
    # The live page forbids inline styles.
    assert cost_section(bill).count("<rect ") == 3 and "style" not in cost_section(bill)


def test_what_is_not_known_is_said_and_escaped() -> None:
    section = cost_section(make_bill(("the end of <i-1> was not seen",)))
    assert "Not known: the end of &lt;i-1&gt; was not seen." in section
