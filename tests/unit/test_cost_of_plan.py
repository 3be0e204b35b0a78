"""`plan --cost`: estimates from earlier runs, or from what the user expects."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from batchyard import engines, operations
from batchyard import plan as planning
from batchyard.batch.jobs import JobState, Resources
from batchyard.cost.estimate import Spread, children_per_instance, instance_seconds, measure_spread
from batchyard.cost.estimate import Work as EstimatedWork
from batchyard.cost.plan_cost import cost_of_plan, find_spreads
from batchyard.embedded.store import AttemptRow, Store
from batchyard.engines.base import Offer, RunRequest
from batchyard.errors import InputError, OperationalError
from batchyard.pipeline import Pipeline, Step
from batchyard.plan import Plan


class NoAws:
    region = "us-east-1"

    def spot_prices(self, types: object, at_time: datetime) -> list[Any]:
        raise OperationalError("no AWS in a test")

    def linux_products(self, instance_type: str) -> list[str]:
        raise OperationalError("no AWS in a test")


def make_plan(home: Path, *steps: Step) -> Plan:
    return planning.make(Pipeline("p", steps, path=home / "p.yaml"))


def record_run(home: Path, *seconds: float) -> None:
    """Record a run of step `a` whose children took these seconds."""
    pipeline = Pipeline("p", (Step("a", "true", array=len(seconds)),), path=home / "p.yaml")
    request = RunRequest(
        planning.make(pipeline), pipeline, home / ".batchyard", Offer(cpus=2, memory_mib=4096)
    )
    record = operations.begin(engines.load(engines.DEFAULT), request)[0]
    store = Store.open(record.folder.database)
    store.commit(
        attempts=[
            AttemptRow(0, child, 1, JobState.SUCCEEDED, 0, "", "", 1000, 1000 + round(s * 1000))
            for child, s in enumerate(seconds)
        ]
    )
    store.close()


def test_earlier_runs_tell_the_time_of_a_command(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, Step("a", "true"), Step("new", "true"))
    assert find_spreads(plan, tmp_path / ".batchyard") == {}
    record_run(tmp_path, 1.0, 2.0)
    record_run(tmp_path, 3.0)
    assert find_spreads(plan, tmp_path / ".batchyard") == {
        "a": Spread(2.0, pytest.approx(2.9), 3),
    }


def test_a_step_that_nobody_knows_makes_the_sum_unknown(tmp_path: Path) -> None:
    record_run(tmp_path, 100.0, 200.0)
    plan = make_plan(tmp_path, Step("a", "true"), Step("new", "true", gpus=1))
    cost = cost_of_plan(plan, tmp_path / ".batchyard", NoAws())
    known, unknown = cost.steps
    assert known.offer is not None and known.spot_usd is not None and known.on_demand_usd
    assert known.spot_usd.high < known.on_demand_usd.high
    assert unknown.spot_usd is None and cost.spot_usd is None
    assert "new: no earlier run tells how long a command takes" in cost.sources
    assert any("no AWS in a test" in source for source in cost.sources)

    guessed = cost_of_plan(plan, tmp_path / ".batchyard", NoAws(), expect_s=60)
    assert guessed.steps[0] == known
    shown = guessed.to_json()
    assert shown["spot_usd"][0] < shown["spot_usd"][1]
    assert shown["steps"][1]["median_s"] == 60 and shown["steps"][1]["earlier_commands"] == 0


def test_a_step_that_no_type_can_run_is_said(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, Step("huge", "true", gpus=99))
    cost = cost_of_plan(plan, tmp_path / ".batchyard", NoAws(), expect_s=60)
    assert cost.on_demand_usd is None and "99 GPUs" in cost.sources[0]


class WrongProfile(NoAws):
    @property
    def region(self) -> str:  # type: ignore[override]
        raise InputError("the profile nope could not be found")


def test_a_wrong_profile_is_an_error_and_no_unknown_price(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, Step("a", "true"))
    with pytest.raises(InputError, match="nope"):
        cost_of_plan(plan, tmp_path / ".batchyard", WrongProfile(), expect_s=60)


def test_children_share_instances() -> None:
    capacity = Resources(16, 60_000, 4)
    assert children_per_instance(Resources(4, 8192, 1), capacity) == 4
    assert children_per_instance(Resources(4, 30_000, 1), capacity) == 2
    assert children_per_instance(Resources(1, 1, 5), capacity) == 0
    steady = Spread(100, 100, 1000)
    whole = instance_seconds(EstimatedWork(8, 8, Resources(4, 8192, 1)), steady, capacity)
    assert whole is not None and whole.low == pytest.approx(200 + 2 * 60)
    one_by_one = EstimatedWork(8, 8, Resources(4, 8192, 1), max_running=1)
    alone = instance_seconds(one_by_one, steady, capacity)
    assert alone is not None and alone.low == pytest.approx(800 + 60)
    assert instance_seconds(EstimatedWork(1, 1, Resources(1, 1, 9)), steady, capacity) is None


def test_a_spread_is_interpolated() -> None:
    assert measure_spread([]) is None
    assert measure_spread([5.0]) == Spread(5.0, 5.0, 1)
    assert measure_spread([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(3.0, pytest.approx(4.8), 5)
