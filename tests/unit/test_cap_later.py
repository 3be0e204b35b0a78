"""What a cap allows later: a retry, what goes on by itself, and more children of a step."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from batchyard import operations
from batchyard.batch.jobs import Resources
from batchyard.cost_cap import Cap
from batchyard.engines.base import (
    Fallback,
    HostChoice,
    PreparedRun,
    RetryRequest,
    RunRecord,
    RunSetup,
)
from batchyard.engines.usage import HostUse, PaidHost, Usage
from batchyard.environments import Environment
from batchyard.errors import InputError
from batchyard.folder import RunFolder
from batchyard.plan import Plan, PlannedJob

HOUR_S = 3600.0
NEEDED = Resources(4, 8192)
PRICES = {
    "spot": [],
    "on_demand": {"m5.xlarge": 0.192},
    "sources": [],
    "is_live": True,
    "until_s": 10 * HOUR_S,
}


@pytest.fixture(autouse=True)
def _has_no_prices_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")


class PaidEngine:
    """An engine whose run has used hosts; it plays the run, too."""

    name = "aws"
    cap_keeper = "somebody keeps it"

    def __init__(self, *hosts: PaidHost) -> None:
        self._hosts = hosts

    def open(self, record: RunRecord) -> PaidEngine:
        return self

    def close(self) -> None: ...

    def usage(self, *, asks: bool = True) -> Usage:
        uses = tuple(
            HostUse(host.id, "a", index, 1, HOUR_S, 2 * HOUR_S, NEEDED)
            for index, host in enumerate(self._hosts)
        )
        end_s = 2 * HOUR_S
        return Usage("us-east-1", self._hosts, uses, end_s, is_final=True, prices=PRICES)

    def setup(self) -> RunSetup:
        return RunSetup("aws", "")


def make_record(folder: Path, *hosts: PaidHost, stops: bool = False) -> RunRecord:
    """Return a run that a hundred children made dear."""
    return RunRecord(
        RunFolder(folder / "runs" / "p-20250131-abcdef"),
        Plan("p", (PlannedJob("a", 100, True, NEEDED),)),
        PaidEngine(*hosts),  # type: ignore[arg-type]
        settings=None,
        created_ms=int(HOUR_S * 1000),
        cap=Cap(10.0, stops, 19.2, host_usd_h=2.0),
    )


def prepare(size: int) -> PreparedRun:
    """Return the rest of the run."""
    plan = Plan("p", (PlannedJob("a", size, True, NEEDED),))
    environment = Environment("lab", "us-east-1", "bucket")
    hosts = {"a": (HostChoice(("m5.xlarge",), 256),)}
    return PreparedRun(plan, None, "p-1", environment=environment, hosts=hosts)


def host(name: str, kind: str = "m5.xlarge", **members: Any) -> PaidHost:
    return PaidHost(name, kind, "us-east-1a", launched_s=HOUR_S, ended_s=2 * HOUR_S, **members)


@pytest.mark.parametrize(
    ("hosts", "spent_usd"),
    [
        ([host("i-1"), host("i-2")], 2 * 0.192),
        # Disks and addresses count, as while the run goes on.
        ([host("i-1", disks=(("gp3", 7440),), has_public_address=True)], 0.192 + 0.8 + 0.005),
        # A host without a known price counts like the dearest.
        ([host("i-1"), host("i-2", "")], 0.192 + 2.0),
    ],
)
def test_what_goes_on_by_itself_gets_the_rest_of_the_cap(
    tmp_path: Path, hosts: list[PaidHost], spent_usd: float
) -> None:
    record = make_record(tmp_path, *hosts)
    request = RetryRequest(fallback=Fallback({"a": [0]}, ("a",), 1))
    cap = operations.make_retry_cap(record, request, prepare(2))
    assert cap is not None and cap.usd == pytest.approx(10 - spent_usd, abs=1e-6)
    # What the two that are left can cost, and not what the whole run could.
    assert cap.rate_usd_h == pytest.approx(2 * 0.192)


@pytest.mark.parametrize(
    ("held", "children", "problem"),
    [
        ("", 100, None),
        ("", 101, "found for 100 children of 'a' at once: with 101 the run could pass it"),
        ("max_cost is $10", 1, "no child of 'a' starts any more: max_cost is [$]10"),
    ],
)
def test_more_children_than_the_cap_counts_are_refused(
    tmp_path: Path, held: str, children: int, problem: str | None
) -> None:
    record = make_record(tmp_path)
    with nullcontext() if problem is None else pytest.raises(InputError, match=problem):
        operations.require_room_in_cap(record, held, "a", children)


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_retry_without_an_amount_keeps_the_cap_and_may_stop_at_it(
    tmp_path: Path, asks: bool, stopped: bool
) -> None:
    record = make_record(tmp_path, stops=stopped)
    request = RetryRequest(stops_at_cap=asks)
    cap = operations.make_retry_cap(record, request, prepare(3))
    assert cap is not None and (cap.usd, cap.stops) == (10.0, asks or stopped)
    assert cap.rate_usd_h == pytest.approx(3 * 0.192)
