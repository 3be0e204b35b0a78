"""Lanes of slots and hosts in the charts of a run: where they are busy, and their gaps."""

from __future__ import annotations

from dataclasses import replace

from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.base import AttemptDetail, RunState
from batchyard.engines.usage import HostUse, PaidHost, Usage
from batchyard.plan import Plan, PlannedJob
from batchyard.report import _find_hosts, figures
from batchyard.report.figures import StepFigures
from batchyard.report.host_lanes import (
    COLUMNS,
    LEVELS,
    MAX_LANES,
    HostTimes,
    Segment,
    find_hosts,
    find_slots,
)
from batchyard.report.page import About, make_charts, make_page
from batchyard.status import RunStatus, StepStatus

EXITED = "Essential container in task exited"


def attempt(index: int, host: str, start_ms: int, end_ms: int, step: str = "work") -> AttemptDetail:
    measured = (0.1, 0.0, 1000)
    ended = (JobState.SUCCEEDED, 0, "", EXITED, start_ms, end_ms)
    return AttemptDetail("id", step, index, 1, *ended, *measured, host=host)


def step_status(name: str, count: int, end_ms: int) -> StepStatus:
    return StepStatus(name, JobState.SUCCEEDED, count, count, 0, 0, 0, count, "", 0, end_ms)


def make_figures(*attempts: AttemptDetail) -> list[StepFigures]:
    names = list(dict.fromkeys(entry.step for entry in attempts))
    statuses = [step_status(name, len(attempts), 1000) for name in names]
    stats = figures.collect_stats(statuses, attempts)
    return [figures.step_figures(status, stats[status.name], None, 1000) for status in statuses]


def run_of(attempts: list[AttemptDetail], end_ms: int) -> tuple[RunStatus, About]:
    names = list(dict.fromkeys(entry.step for entry in attempts))
    steps = tuple(step_status(name, len(attempts), end_ms) for name in names)
    status = RunStatus("work-20250131-abcdef", "work", "x", RunState.SUCCEEDED, 0, end_ms, steps)
    jobs = tuple(PlannedJob(name, len(attempts), True, Resources(1, 64), "true") for name in names)
    return status, About(Plan("work", jobs), None, "process", "/work", end_ms, "0.1")


def test_a_slot_has_a_gap_where_nothing_ran_in_it() -> None:
    (step,) = make_figures(
        attempt(0, "0", 0, 1000),
        attempt(1, "1", 0, 250),
        attempt(2, "1", 750, 1000),
        attempt(3, "10", 500, 625),
    )
    first, second, last = find_slots(0, step.stats, 0, 1000)
    assert [first.name, second.name, last.name] == ["slot 0", "slot 1", "slot 10"]
    assert first.segments == [Segment(0, COLUMNS, 0, LEVELS)] and first.busy == 1.0
    quarter = COLUMNS // 4
    assert second.segments == [
        Segment(0, quarter, 0, LEVELS),
        Segment(3 * quarter, COLUMNS, 0, LEVELS),
    ]
    assert (second.attempts, second.busy) == (2, 0.5)
    assert last.segments == [Segment(2 * quarter, 2 * quarter + COLUMNS // 8, 0, LEVELS)]


def test_a_slot_that_waits_between_short_attempts_is_less_busy() -> None:
    halves = [attempt(n, "0", 20 * n, 20 * n + 10) for n in range(50)]
    (step,) = make_figures(*halves)
    (lane,) = find_slots(0, step.stats, 0, 1000)
    assert lane.busy == 0.5 and {segment.level for segment in lane.segments} >= {LEVELS}
    (lane,) = find_slots(0, step.stats, 0, 100_000)
    assert [(s.first, s.stop, s.level) for s in lane.segments] == [(0, 2, 2), (2, 3, 1)]


def test_a_host_runs_children_of_several_steps() -> None:
    steps = make_figures(
        attempt(0, "i-2", 500, 1000, "train"),
        attempt(0, "i-1", 0, 500, "fetch"),
        attempt(1, "i-1", 0, 500, "fetch"),
        attempt(1, "i-1", 500, 1000, "train"),
        attempt(2, "", 0, 1000, "train"),
    )
    about = {"i-1": HostTimes("g5.xlarge", 0, 1000), "i-2": HostTimes("", 250, None)}
    first, second = find_hosts(steps, about, 0, 1000)
    half = COLUMNS // 2
    assert (first.name, first.peak, first.busy) == ("i-1 g5.xlarge", 2, 0.75)
    # Steps are numbered in the order of the figures: train, fetch.
    assert first.segments == [Segment(0, half, 1, LEVELS), Segment(half, COLUMNS, 0, LEVELS // 2)]
    # It is there from 250 ms on.
    assert (second.name, second.begin_ms, second.end_ms) == ("i-2", 250, None)
    assert second.busy == 500 / 750


def test_a_host_is_there_while_its_attempts_run() -> None:
    """Its clock is behind that of EC2, and it was looked at before its last attempt ended."""
    steps = make_figures(attempt(0, "i-1", 100, 400), attempt(1, "i-1", 600, 900))
    (lane,) = find_hosts(steps, {"i-1": HostTimes("", 200, 500)}, 0, 1000)
    assert (lane.begin_ms, lane.end_ms, lane.busy) == (100, 900, 600 / 800)


class StoredUsage:
    """The part of an engine that returns what is stored of hosts."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    def usage(self, *, asks: bool = True) -> Usage:
        assert not asks
        return self._usage


def test_a_host_that_was_there_at_the_last_look_may_still_be_there() -> None:
    hosts = (
        PaidHost("i-1", "m5.large", launched_s=10.0),
        PaidHost("i-2", launched_s=20.0, ended_s=50.0),
    )
    uses = tuple(
        HostUse(host.id, "work", 0, 1, 30.0, end_s, Resources(1, 64))
        for host, end_s in zip(hosts, (None, 50.0), strict=True)
    )
    engine = StoredUsage(Usage("eu-west-1", hosts, uses, seen_s=60.0))
    assert _find_hosts(engine) == {  # type: ignore[arg-type]
        "i-1": HostTimes("m5.large", 10_000, None),
        "i-2": HostTimes("", 20_000, 50_000),
    }


def test_hosts_that_share_a_lane_do_not_have_the_type_of_the_first() -> None:
    count = MAX_LANES + 1
    attempts = [attempt(n, f"i-{n:02}", n, n + 1) for n in range(count)]
    about = {f"i-{n:02}": HostTimes("c5.large" if n % 2 else "m5.large") for n in range(count)}
    hosts = find_hosts(make_figures(*attempts), about, 0, 1000)
    assert hosts[0].name == "i-00 and 1 more" and hosts[-1].name == "i-32 m5.large"


def test_long_names_fit_beside_the_charts() -> None:
    long, host = "preprocess-all-frames-of-the-first-video", "i-0123456789abcdef0"
    attempts = [attempt(0, host, 0, 10, long), attempt(1, host, 10, 20, long)]
    status, about = run_of(attempts, 20)
    document = make_page(status, attempts, replace(about, hosts={host: HostTimes("m5.24xlarge")}))
    # Timeline and durations, on wide and narrow screens.
    assert document.count(f"<title>{long}</title>preprocess-all-fram…first-video</text>") == 4
    assert document.count(f">{host} m5.24xlarge</text>") == 2


def test_a_thousand_hosts_share_a_few_lanes() -> None:
    attempts = [attempt(n, f"i-{n:04}", n, n + 1) for n in range(1000)]
    hosts = find_hosts(make_figures(*attempts), {}, 0, 1000)
    assert len(hosts) == MAX_LANES and hosts[0].name == "i-0000 and 31 more"
    assert sum(lane.attempts for lane in hosts) == 1000
    slots = [attempt(n, str(n), 0, 1000) for n in range(1000)]
    lanes = find_slots(0, make_figures(*slots)[0].stats, 0, 1000)
    assert len(lanes) == MAX_LANES and lanes[0].busy == 1.0


def test_the_page_and_the_report_have_the_same_lanes() -> None:
    count = 3000  # more than are drawn as bars
    attempts = [attempt(n, str(n % 4), 10 * n, 10 * n + 30) for n in range(count)]
    status, about = run_of(attempts, 10 * count)
    charts, report = make_charts(status, attempts, about), make_page(status, attempts, about)
    for document in (charts, report):
        # Once for wide and once for narrow screens.
        assert document.count("slot 3: 750 attempts, busy 75 % of the time") == 2
        assert "a slot: busy, and empty where nothing ran in it" in document
    assert "<h2>Hosts" not in report


def test_hosts_are_a_section_of_the_page_and_of_the_report() -> None:
    attempts = [attempt(n, f"i-{n % 2}", 100 * n, 100 * n + 100) for n in range(10)]
    status, about = run_of(attempts, 1000)
    about = replace(about, hosts={"i-0": HostTimes("m5.large", 0, 1000)})
    for document in (make_charts(status, attempts, about), make_page(status, attempts, about)):
        assert "<h2>Hosts</h2>" in document
        assert document.count("<title>i-0 m5.large: 5 attempts, busy 50 % of the time") == 2


def test_bars_are_in_the_row_of_their_slot() -> None:
    """Two attempts that do not overlap, in two slots: without slots they would share a row."""
    apart = [attempt(0, "0", 0, 100), attempt(1, "3", 500, 600)]
    status, about = run_of(apart, 1000)
    rows = {part.partition('y="')[2].partition('"')[0] for part in bars(status, apart, about)}
    assert len(rows) == 2
    unknown = [replace(entry, host="") for entry in apart]
    rows = {part.partition('y="')[2].partition('"')[0] for part in bars(status, unknown, about)}
    assert len(rows) == 1


def bars(status: RunStatus, attempts: list[AttemptDetail], about: About) -> list[str]:
    """Return the bars of the wide chart."""
    chart = make_charts(status, attempts, about).partition('class="bars')[2].partition("</g>")[0]
    return chart.split("<rect ")[1:]


def test_lanes_of_many_attempts_are_small() -> None:
    for count in (10_000, 50_000):
        attempts = [attempt(n, str(n % 64), n, n + 3 + n % 7) for n in range(count)]
        status, about = run_of(attempts, count)
        assert len(make_charts(status, attempts, about)) < 400_000
