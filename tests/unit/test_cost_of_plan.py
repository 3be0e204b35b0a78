"""`plan --cost`: estimates from earlier runs, or from what the user expects."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from batchyard import engines, operations
from batchyard import plan as planning
from batchyard.batch.jobs import JobState, Resources
from batchyard.cli.render_cost import estimate_line, estimate_lines
from batchyard.cost.caps import make_cap
from batchyard.cost.estimate import (
    Range,
    Spread,
    children_per_instance,
    instance_seconds,
    measure_spread,
)
from batchyard.cost.estimate import Work as EstimatedWork
from batchyard.cost.plan_cost import CapFit, cost_of_plan, cost_of_prepared, find_spreads
from batchyard.embedded.store import AttemptRow, Store
from batchyard.engines.base import FARGATE_CHOICE, HostChoice, Offer, PreparedRun, RunRequest
from batchyard.environments import Environment
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


def prepared(plan: Plan, *choices: HostChoice) -> PreparedRun:
    environment = Environment("lab", "us-east-1", "bucket")
    hosts = {job.step: choices for job in plan.jobs}
    return PreparedRun(plan, None, "p-1", environment=environment, hosts=hosts)


def test_the_types_of_the_queue_count_and_its_size(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, Step("a", "true", array=64, cpus=4, memory_mib=4096, expect_s=600))
    small = prepared(plan, HostChoice(("m5.xlarge",), 16, is_spot=True))
    cost = cost_of_prepared(small, tmp_path, "local", NoAws())
    assert cost is not None and cost.spot_usd is not None and cost.on_demand_usd is not None
    (step,) = cost.steps
    assert step.offer is not None and step.offer.type.name == "m5.xlarge"
    assert step.spread == Spread(600, 1200)
    # 64 children of at least ten minutes or so, on 4 instances, with a minute of boot.
    usual_usd = 64 * 600 * 0.192 / 3600
    assert cost.on_demand_usd.low < usual_usd < cost.on_demand_usd.high
    assert cost.spot_usd.high == pytest.approx(cost.on_demand_usd.high * 0.0649 / 0.192)
    # A queue with two types may start either.
    both = prepared(plan, HostChoice(("m5.xlarge", "m5.8xlarge"), 64))
    wide = cost_of_prepared(both, tmp_path, "local", NoAws())
    assert wide is not None and wide.spot_usd is not None
    assert wide.spot_usd.low <= cost.spot_usd.low and wide.spot_usd.high >= cost.spot_usd.high


def test_without_any_time_an_hour_of_the_fleet_is_priced(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, Step("a", "true", memory_mib=4096))
    choice = HostChoice(("m5.xlarge", "m5.2xlarge"), 16)
    cost = cost_of_prepared(prepared(plan, choice), tmp_path, "local", NoAws())
    assert cost is not None and cost.spot_usd is None and cost.on_demand_usd is None
    assert cost.fleet_on_demand_usd_h == Range(pytest.approx(2 * 0.384), pytest.approx(4 * 0.192))
    assert "unknown for a; an hour of the fleet at full size: $" in estimate_line(cost)


@pytest.mark.parametrize(
    ("expect_s", "usd", "fit", "sentence"),
    [
        (600, 0.3, CapFit.TOO_LOW, "max_cost $0.3 is below the low estimate: `run` refuses it"),
        (600, 3, CapFit.MAY_BE_REACHED, "max_cost $3 is inside the estimate: the run may be held"),
        (600, 50, CapFit.ABOVE_ESTIMATE, "max_cost $50 is above the estimate"),
        (None, 50, CapFit.UNKNOWN, "max_cost $50 is not compared: the estimate is not known"),
    ],
)
def test_a_plan_compares_the_cap_with_the_estimate(
    tmp_path: Path, expect_s: int | None, usd: float, fit: CapFit, sentence: str
) -> None:
    step = Step("a", "true", array=64, cpus=4, memory_mib=4096, expect_s=expect_s)
    run = prepared(make_plan(tmp_path, step), HostChoice(("m5.xlarge",), 16))
    cost = cost_of_prepared(run, tmp_path, "local", NoAws(), max_cost_usd=usd)
    assert cost is not None and cost.cap_fit is fit
    assert sentence in estimate_line(cost) and sentence in "\n".join(estimate_lines(cost))
    assert (cost.to_json()["max_cost_usd"], cost.to_json()["max_cost_is"]) == (usd, fit)


def test_a_cap_that_would_let_nothing_start_is_refused(tmp_path: Path) -> None:
    step = Step("a", "true", array=64, cpus=4, memory_mib=4096)
    run = prepared(make_plan(tmp_path, step), HostChoice(("m5.xlarge",), 256))
    # 64 hosts for 64 s cost $0.22.
    with pytest.raises(InputError, match=r"\$12.29 an hour: .* nothing could start"):
        make_cap(run, tmp_path, "local", 0.2, prices=NoAws())
    assert make_cap(run, tmp_path, "local", 0.3, prices=NoAws()).usd == 0.3


def test_fargate_is_neither_estimated_nor_capped(tmp_path: Path) -> None:
    run = prepared(make_plan(tmp_path, Step("a", "true", expect_s=60)), FARGATE_CHOICE)
    cost = cost_of_prepared(run, tmp_path, "local", NoAws())
    assert cost is not None and cost.spot_usd is None
    assert "a: prices of Fargate are not known" in cost.sources
    with pytest.raises(InputError, match="the hosts of a and their prices are not known"):
        make_cap(run, tmp_path, "local", 20.0, prices=NoAws())


def test_a_cap_counts_the_dearest_type_that_the_queue_may_start(tmp_path: Path) -> None:
    run = prepared(
        make_plan(tmp_path, Step("a", "true", gpus=1)), HostChoice(("g4dn", "g5", "g6"), 256)
    )
    cap = make_cap(run, tmp_path, "local", 1000.0, prices=NoAws())
    names = dict(cap.type_usd_h)
    # More types than an estimate asks about.
    assert len(names) > 8 and {"g4dn.xlarge", "g5.48xlarge"} <= names.keys()
    assert cap.host_usd_h == cap.rate_usd_h == max(names.values())


def test_a_run_that_costs_nothing_has_no_estimate(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, Step("a", "true"))
    assert cost_of_prepared(PreparedRun(plan, None, "p-1"), tmp_path, "local", NoAws()) is None


def test_the_file_comes_before_the_flag_and_earlier_runs_before_both(tmp_path: Path) -> None:
    record_run(tmp_path, 100.0)
    plan = make_plan(
        tmp_path, Step("a", "true", expect_s=7), Step("b", "true", expect_s=7), Step("c", "true")
    )
    cost = cost_of_plan(plan, tmp_path / ".batchyard", NoAws(), expect_s=60)
    assert [step.spread and step.spread.median_s for step in cost.steps] == [100, 7, 60]


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


@pytest.mark.parametrize(
    ("choices", "usd_h"),
    [
        # Two compute environments with the same type, such as spot and on demand.
        ((HostChoice(("m5.xlarge",), 16, is_spot=True), HostChoice(("m5.xlarge",), 8)), 6 * 0.192),
        # The hosts that a cluster has now.
        (
            (HostChoice(("m5.xlarge",), max_hosts=3), HostChoice(("m5.2xlarge",), max_hosts=3)),
            3 * (0.192 + 0.384),
        ),
        # Two types of one compute environment share its vCPUs.
        ((HostChoice(("m5.xlarge", "m5.2xlarge"), 16),), 4 * 0.192),
        # There is more room than children.
        ((HostChoice(("m5.xlarge",), 256), HostChoice(("m5.xlarge",), 256)), 64 * 0.192),
    ],
)
def test_all_groups_of_hosts_may_be_full_at_once(
    tmp_path: Path, choices: tuple[HostChoice, ...], usd_h: float
) -> None:
    step = Step("a", "true", array=64, cpus=4, memory_mib=4096)
    run = prepared(make_plan(tmp_path, step), *choices)
    cap = make_cap(run, tmp_path, "local", 1000.0, prices=NoAws())
    assert cap.rate_usd_h == pytest.approx(usd_h)
    if usd_h < 2:
        cost = cost_of_prepared(run, tmp_path, "local", NoAws())
        assert cost is not None and cost.fleet_on_demand_usd_h is not None
        assert cost.fleet_on_demand_usd_h.high == pytest.approx(usd_h)
