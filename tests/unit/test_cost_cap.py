"""What is done about a run at a given cost and cap, and that a cap is not passed."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from batchyard import cfn_yaml, engines, operations
from batchyard import plan as planning
from batchyard.batch.jobs import JobState
from batchyard.cost_cap import MAX_LOOK_S, MIN_LOOK_S, Cap, CapAction, decide
from batchyard.engines.base import JobDetail, Offer, Overview, RunRecord, RunRequest, RunState
from batchyard.errors import InputError, OperationalError
from batchyard.folder import RunFolder
from batchyard.infra import inline, read_template
from batchyard.pipeline import Pipeline, Step
from batchyard.plan import Plan
from batchyard.supervision import Supervisor

#: 3.6 dollars an hour are 0.001 dollars a second.
MILLI = 3.6


@pytest.mark.parametrize(
    ("cost_usd", "stops", "action"),
    [
        (0.0, False, CapAction.GO_ON),
        (7.9, False, CapAction.GO_ON),
        (8.0, False, CapAction.WARN),
        # It could reach the cap before the look after the next one, and pay a minute of each host.
        (9.93, False, CapAction.WARN),
        (9.94, False, CapAction.HOLD),
        (10.0, False, CapAction.HOLD),
        (11.0, False, CapAction.HOLD),
        (9.93, True, CapAction.WARN),
        (9.94, True, CapAction.STOP),
    ],
)
def test_what_is_done_at_a_cost(cost_usd: float, stops: bool, action: CapAction) -> None:
    decision = decide(Cap(10, stops, MILLI), cost_usd)
    assert decision.action is action
    assert bool(decision.reason) == (action in (CapAction.HOLD, CapAction.STOP))


def test_looks_are_closer_near_the_cap() -> None:
    cap = Cap(1.0, rate_usd_h=MILLI)
    assert decide(cap, 0.0).look_s == MAX_LOOK_S
    assert decide(cap, 0.9).look_s == pytest.approx(18)
    assert decide(cap, 0.933).look_s == MIN_LOOK_S
    assert decide(Cap(1.0), 0.5).look_s == MAX_LOOK_S


# -- 100 random runs -----------------------------------------------------------------------------


class Host:
    """A host that runs one child after the other, and costs a minute at least."""

    def __init__(self, usd_h: float) -> None:
        self.usd_s = usd_h / 3600
        self.launched_s = math.inf
        #: when its child ends
        self.busy_until_s = 0.0
        self.last_start_s = -math.inf

    def cost(self, now_s: float) -> float:
        if self.launched_s > now_s:
            return 0.0
        return self.usd_s * max(60.0, min(now_s, self.busy_until_s) - self.launched_s)


class SimulatedRun:
    """Children that start as soon as a host is free, a few in each second."""

    def __init__(self, rng: random.Random) -> None:
        prices = [rng.uniform(0.05, 5) for _ in range(rng.randint(1, 4))]
        median_s = 10 ** rng.uniform(0, 2)
        self.waiting = [median_s * math.exp(rng.gauss(0, 0.8)) for _ in range(rng.randint(1, 60))]
        at_once = rng.randint(1, len(self.waiting))
        self.hosts = [Host(rng.choice(prices)) for _ in range(at_once)]
        self.ramp = rng.choice([1, 2, at_once])
        mean_usd_s = sum(host.usd_s for host in self.hosts) / at_once
        total_usd = mean_usd_s * (60 * at_once + sum(self.waiting))
        rate_usd_h = at_once * max(prices)
        self.cap = Cap(total_usd * rng.uniform(0.05, 1.5), rng.random() < 0.3, rate_usd_h)
        self.now_s = 0.0
        self.is_held = False

    @property
    def cost_usd(self) -> float:
        return sum(host.cost(self.now_s) for host in self.hosts)

    @property
    def running(self) -> list[Host]:
        return [host for host in self.hosts if host.busy_until_s > self.now_s]

    @property
    def is_over(self) -> bool:
        return not self.running and (self.is_held or not self.waiting)

    def start_children(self) -> None:
        free = [host for host in self.hosts if host.busy_until_s <= self.now_s]
        for host in free[: 0 if self.is_held else self.ramp]:
            if self.waiting:
                host.launched_s = min(host.launched_s, self.now_s)
                host.last_start_s = self.now_s
                host.busy_until_s = self.now_s + self.waiting.pop()

    def end_running(self) -> None:
        for host in self.running:
            host.busy_until_s = self.now_s


@pytest.mark.parametrize("seed", range(100))
def test_a_cap_is_passed_only_by_what_ran_when_it_was_reached(seed: int) -> None:
    run = SimulatedRun(random.Random(seed))
    look_s = 0.0
    reached_s: float | None = None
    running_at_cap: list[Host] = []
    while not run.is_over:
        if run.now_s >= look_s:
            decision = decide(run.cap, run.cost_usd)
            look_s = run.now_s + decision.look_s
            run.is_held |= decision.action in (CapAction.HOLD, CapAction.STOP)
            if decision.action is CapAction.STOP:
                run.end_running()
        run.start_children()
        run.now_s += 1
        if reached_s is None and run.cost_usd > run.cap.usd:
            reached_s, running_at_cap = run.now_s, run.running
    excess_usd = run.cost_usd - run.cap.usd
    if reached_s is None:
        assert excess_usd <= 0
        return
    # No child has started in the second in which the cap was passed, or later.
    assert all(host.last_start_s < reached_s - 1 for host in run.hosts)
    assert excess_usd <= sum(host.cost(run.now_s) for host in running_at_cap)


# -- those who watch -----------------------------------------------------------------------------


class HeldEngine:
    """Records what a supervisor asks of a run."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def hold(self, reason: str) -> None:
        self.calls.append(("hold", reason))

    def stop(self, job_ids: list[str], reason: str) -> float:
        self.calls.append(("stop", list(job_ids)))
        return 0.0


class UnwillingEngine(HeldEngine):
    """Fails the first time."""

    def hold(self, reason: str) -> None:
        super().hold(reason)
        if len(self.calls) == 1:
            raise OperationalError("could not stop all jobs")


@pytest.mark.parametrize(("stops", "calls"), [(False, ["hold"]), (True, ["hold", "stop"])])
def test_a_supervisor_warns_once_and_then_holds(stops: bool, calls: list[str]) -> None:
    engine, notes = HeldEngine(), list[str]()
    now_s, cost_usd = [0.0], [0.1]
    record = RunRecord(
        RunFolder(Path("p-20250131-abcdef")),
        Plan("p", ()),
        engines.load("memory"),
        settings=None,
        created_ms=0,
        cap=Cap(1.0, stops, MILLI),
    )
    supervise = Supervisor(
        record,
        engine,
        notes.append,
        lambda: now_s[0],
        lambda: cost_usd[0],  # type: ignore[arg-type]
    )
    overview = Overview(RunState.RUNNING, (), None, None)
    assert supervise(overview) == MAX_LOOK_S
    # Nobody asks for the cost before it is time.
    now_s[0], cost_usd[0] = 10.0, 2.0
    assert supervise(overview) == MAX_LOOK_S - 10 and not engine.calls
    for time_s, usd in ((60, 0.85), (130, 0.86)):
        now_s[0], cost_usd[0] = time_s, usd
        supervise(overview)
    assert notes == ["warning: the run has cost $0.8500 of max_cost $1"]
    now_s[0], cost_usd[0] = 300, 0.999
    assert supervise(overview) == MIN_LOOK_S
    now_s[0] = 310
    supervise(overview)
    assert [name for name, _ in engine.calls] == calls
    assert len(notes) == 2 and "max_cost is $1: nothing more starts" in notes[1]


def test_a_cap_that_could_not_be_kept_at_once_is_tried_again() -> None:
    engine, notes, now_s = UnwillingEngine(), list[str](), [0.0]
    record = RunRecord(
        RunFolder(Path("p-20250131-abcdef")),
        Plan("p", ()),
        engines.load("memory"),
        settings=None,
        created_ms=0,
        cap=Cap(1.0, False, MILLI),
    )
    supervise = Supervisor(record, engine, notes.append, lambda: now_s[0], lambda: 2.0)  # type: ignore[arg-type]
    overview = Overview(RunState.RUNNING, (), None, None)
    supervise(overview)
    assert notes[-1] == "warning: could not stop all jobs; it is tried again"
    now_s[0] = 60.0
    supervise(overview)
    assert [name for name, _ in engine.calls] == ["hold", "hold"]


def array(*, runnable: int = 0, running: int = 0, ended: int = 0) -> JobDetail:
    by_state = {
        JobState.RUNNABLE: runnable,
        JobState.RUNNING: running,
        JobState.SUCCEEDED: ended,
    }
    counts = tuple(by_state.get(state, 0) for state in JobState)
    return JobDetail("j", "a", JobState.PENDING, "", sum(counts), counts, 0, 0, None, None)


def test_a_held_run_is_looked_at_less_and_less_until_a_child_may_start_again() -> None:
    engine, looks = HeldEngine(), [0]
    record = RunRecord(
        RunFolder(Path("p-20250131-abcdef")),
        Plan("p", ()),
        engines.load("memory"),
        settings=None,
        created_ms=0,
        cap=Cap(1.0, False, MILLI),
    )

    def find_cost() -> float:
        looks[0] += 1
        return 2.0

    supervise = Supervisor(record, engine, lambda text: None, lambda: 0.0, find_cost)  # type: ignore[arg-type]

    def look(**counts: int) -> float:
        return supervise(Overview(RunState.RUNNING, (array(**counts),), None, None))

    pauses = [look(running=4) for _ in range(10)]
    assert pauses[0] == MIN_LOOK_S and pauses[-1] == 30.0 and pauses == sorted(pauses)
    # The cost cannot fall below the cap: nobody asks for it again.
    assert looks == [1] and len(engine.calls) == 1
    # A child has ended, and no other waits.
    assert look(running=3, ended=1) == MIN_LOOK_S and len(engine.calls) == 1
    # One is tried again: it must not start.
    assert look(runnable=1, running=2, ended=1) == MIN_LOOK_S and len(engine.calls) == 2
    look(runnable=1, running=2, ended=1)
    assert len(engine.calls) == 2 and looks == [1]


def test_a_cap_of_a_run_here_has_no_effect_and_says_so(tmp_path: Path) -> None:
    pipeline = Pipeline("p", (Step("a", "true"),), path=tmp_path / "p.yaml", max_cost_usd=5)
    request = RunRequest(
        planning.make(pipeline), pipeline, tmp_path / ".batchyard", Offer(cpus=1, memory_mib=1024)
    )
    record, notes = operations.begin(engines.load(engines.DEFAULT), request)
    assert record.cap is None and "max_cost has no effect: this run costs nothing" in notes
    # A cap of nothing is a mistake, and no reason to take that of the file.
    for usd in (-1, 0):
        with pytest.raises(InputError, match=f"max_cost is {usd}"):
            operations.begin(
                engines.load(engines.DEFAULT),
                RunRequest(request.plan, pipeline, request.home, request.offer, max_cost_usd=usd),
            )


def test_the_template_has_the_tested_code() -> None:
    properties = cfn_yaml.load(read_template("caps"))["Resources"]["Keeper"]["Properties"]
    code: dict[str, Any] = {"__name__": "index"}
    exec(properties["Code"]["ZipFile"], code)
    assert properties["Code"]["ZipFile"] == inline.make_function("keep-caps")
    assert callable(code[properties["Handler"].removeprefix("index.")])
    held = code["decide"](code["Cap"](1.0), 1.0)
    assert held == (code["CapAction"].HOLD, MIN_LOOK_S, decide(Cap(1.0), 1.0).reason)
