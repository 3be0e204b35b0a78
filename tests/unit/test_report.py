"""The report page from values: its content, its escaping, and its size."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.base import AttemptDetail, RunState
from batchyard.plan import Plan, PlannedJob
from batchyard.report import amounts, figures, lanes
from batchyard.report.layout import wide
from batchyard.report.markup import Markup, tag
from batchyard.report.page import About, make_page
from batchyard.sampling.samples import AttemptUse, SampledStep, SampledUse, Series
from batchyard.status import Failure, RunStatus, StepStatus

MAX_BARS = wide(()).max_bars
START_MS = 1_700_000_000_000
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Reads a page, and insists that every tag is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.classes: list[str | None] = [None]
        #: rectangles in the timeline, each an attempt
        self.bars: list[dict[str, str | None]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attributes)))
        if name == "rect" and self.classes[-1] == "bars":
            self.bars.append(dict(attributes))
        if name not in VOID:
            self.open.append(name)
            self.classes.append(dict(attributes).get("class"))

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name
        self.classes.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag_name, attributes in self.tags if tag_name == name]

    def text(self, *names: str) -> str:
        return "\n".join(text for name, text in self.texts if not names or name in names)


def attempt(index: int = 0, **changes: object) -> AttemptDetail:
    made = AttemptDetail(
        job_id="id",
        step="work",
        index=index,
        attempt=1,
        state=JobState.SUCCEEDED,
        exit_code=0,
        reason="",
        status_reason="Essential container in task exited",
        started_ms=START_MS + 100 * index,
        ended_ms=START_MS + 100 * index + 150,
        user_s=0.1,
        system_s=0.02,
        max_rss_kib=2048,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def failed_attempt(index: int = 0, **changes: object) -> AttemptDetail:
    return attempt(index, **{"state": JobState.FAILED, "exit_code": 3, **changes})


def step(name: str = "work", **changes: object) -> StepStatus:
    made = StepStatus(name, JobState.SUCCEEDED, 2, 2, 0, 0, 0, 2, "", START_MS, START_MS + 250)
    return replace(made, **changes)  # type: ignore[arg-type]


def run(*steps: StepStatus, **changes: object) -> RunStatus:
    made = RunStatus(
        "work-20250131-abcdef", "work", "local", RunState.SUCCEEDED, START_MS, START_MS + 300, steps
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def about(*steps: StepStatus, **changes: object) -> About:
    jobs = tuple(
        PlannedJob(s.name, s.size, s.size > 1, Resources(1, 64), "true", step_size=s.size)
        for s in steps
    )
    made = About(
        Plan("work", jobs), Resources(2, 1024), "process", "/work space", START_MS + 900, "0.1"
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def made(status: RunStatus, attempts: Sequence[AttemptDetail], **changes: object) -> Page:
    return Page(make_page(status, attempts, about(*status.steps, **changes)))


# -- what is in it -----------------------------------------------------------------------------


def test_a_run_that_succeeded() -> None:
    parsed = made(run(step()), [attempt(0), attempt(1)], file="/work space/p.yaml")
    text = parsed.text()
    assert "work-20250131-abcdef" in parsed.text("h1") and "SUCCEEDED" in text
    assert "2 of 2 children succeeded." in text
    assert "2023-11-14 22:13:20 UTC" in text and "300 ms" in text
    assert "2 vCPUs, 1 GiB" in text and "/work space/p.yaml" in text and "process" in text
    row = [data for name, data in parsed.texts if name == "td"]
    # state, children, succeeded, failed, attempts, wall, median, p95, max, CPU, memory, efficiency
    assert row == [
        "SUCCEEDED",
        "2",
        "2",
        "0",
        "2",
        "250 ms",
        "150 ms",
        "150 ms",
        "150 ms",
        "240 ms",
        "2 MiB",
        "60 %",
    ]
    assert len(parsed.bars) == 2 and "Failures" not in text and "Retries" not in text


def test_what_children_use_is_a_table_and_a_chart_of_the_longest_attempt() -> None:
    series = Series((0.5, 1.5), (10, 30), (40, None), (100, 900))
    use = SampledUse(2, 4.0, 1.0, 1.5, 30 * 1024, 40.0, 40.0, 900, 1000, series)
    sampled = SampledStep(use.without_series(), AttemptUse("work", 1, 2, use))
    page = made(run(step()), [attempt()], uses={"work": sampled})
    assert "Resources" in page.text("h2")
    assert "work:1, attempt 2: 4.00 s" in page.text("h3")
    labels = [svg.get("aria-label") for svg in page.all("svg") if svg.get("class", "")[:3] == "use"]
    assert labels == [
        "CPUs: 1.00 busy, at most 1.50; 1 vCPU requested",
        "Memory: at most 30 MiB; 64 MiB requested",
        "GPU: 40 % busy, at most 40 %",
        "GPU memory: at most 900 MiB of 1000 MiB",
    ]
    assert "Resources" not in made(run(step()), [attempt()]).text("h2")


def test_it_asks_for_nothing_from_anywhere_and_runs_no_script() -> None:
    text = make_page(run(step()), [attempt(0), attempt(1)], about(step()))
    parsed = Page(text)
    for name, attributes in parsed.tags:
        assert name not in {"script", "img", "iframe", "object", "embed"}
        for attribute, value in attributes.items():
            assert not attribute.startswith("on")
            if attribute in {"src", "href"}:
                assert value is not None and value.startswith(("#", "data:,"))
    assert "http:" not in text and "https:" not in text and "@import" not in text
    policy = next(m for m in parsed.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert (policy["content"] or "").startswith("default-src 'none'")


def test_charts_have_names_and_the_page_has_both_colour_schemes() -> None:
    text = make_page(run(step()), [attempt(0)], about(step()))
    charts = [svg for svg in Page(text).all("svg") if svg.get("role") == "img"]
    # Each for wide and for narrow screens.
    assert len(charts) == 4 and text.count("<desc>") == 4
    assert "prefers-color-scheme: dark" in text and "@media print" in text and 'lang="en"' in text


def test_a_run_with_nothing_in_it() -> None:
    waiting = step(
        state=JobState.PENDING, succeeded=0, waiting=2, attempts=0, started_ms=None, ended_ms=None
    )
    parsed = made(run(waiting, state=RunState.RUNNING, started_ms=None, ended_ms=None), [])
    assert "No attempt has ended yet." in parsed.text() and "PENDING" in parsed.text("td")
    assert made(run(ended_ms=START_MS), []).text("p").count("Nothing was started.") == 1


def test_a_run_that_is_not_over() -> None:
    half = step(
        state=JobState.RUNNING, size=4, succeeded=1, running=2, waiting=1, attempts=1, ended_ms=None
    )
    status = run(half, state=RunState.RUNNING, ended_ms=None)
    parsed = made(status, [attempt(0)])
    assert "2 running when this page was made" in parsed.text("p")
    assert "900 ms" in parsed.text("dd")
    assert {"Running", "Waiting"} <= {text for name, text in parsed.texts if name == "th"}
    assert "running attempts are not drawn" in parsed.text("li")


def test_an_interrupted_run_ends_with_the_last_that_is_known() -> None:
    half = step(state=JobState.RUNNABLE, size=4, succeeded=1, waiting=3, attempts=1, ended_ms=None)
    parsed = made(
        run(half, state=RunState.RUNNING, ended_ms=None, interruption="its process died"),
        [attempt(0)],
    )
    assert "INTERRUPTED" in parsed.text("span")
    assert "batchyard resume work-20250131-abcdef" in parsed.text("code")
    assert "150 ms" in parsed.text("dd") and "900 ms" not in parsed.text("dd")


# -- failures ----------------------------------------------------------------------------------


def test_when_everything_failed() -> None:
    attempts = [failed_attempt(i) for i in range(30)]
    broken = step(state=JobState.FAILED, size=30, succeeded=0, failed=30, attempts=30)
    shown_failures = tuple(Failure(a, ("one", "two")) for a in attempts[:20])
    status = run(broken, state=RunState.FAILED, failures=shown_failures)
    parsed = made(status, attempts, commands={("work", 0): ("step --one",)})
    assert len(parsed.all("article")) == 20
    assert "0 of 30 children succeeded" in parsed.text() and "30 failed" in parsed.text("a")
    assert "10 more children failed" in parsed.text("p")
    assert "batchyard logs work-20250131-abcdef --failed" in parsed.text("code")
    assert "$ step --one" in parsed.text("pre") and "one\ntwo" in parsed.text("pre")
    assert all(bar.get("class") == "failed" for bar in parsed.bars)
    assert "exit code 3" in parsed.text("td")


def test_children_that_never_started() -> None:
    broken = step(state=JobState.FAILED, succeeded=1, failed=1)
    dependent = step(
        "after", state=JobState.FAILED, size=7, succeeded=0, failed=7, attempts=0, started_ms=None
    )
    dependent = replace(dependent, reason="Dependent Job failed")
    rows = [
        attempt(0),
        failed_attempt(1),
        failed_attempt(
            0,
            step="after",
            attempt=0,
            exit_code=None,
            started_ms=None,
            status_reason="Dependent Job failed",
        ),
    ]
    parsed = made(
        run(broken, dependent, state=RunState.FAILED, failures=(Failure(rows[1], ()),)), rows
    )
    assert "after: 7 children: Dependent Job failed" in parsed.text("li")
    assert "did not start" in parsed.text("text") and "no output" in parsed.text("p")


def test_children_that_failed_with_the_child_that_they_need_say_so() -> None:
    # The step's own reason is that a child failed, which is true of every array.
    dependent = step("after", state=JobState.FAILED, size=3, succeeded=1, failed=2, attempts=2)
    dependent = replace(dependent, reason="Array Child Job failed")
    rows = [
        attempt(0, step="after"),
        failed_attempt(1, step="after"),
        failed_attempt(
            2,
            step="after",
            attempt=0,
            exit_code=None,
            started_ms=None,
            status_reason="Dependent Job failed",
        ),
    ]
    parsed = made(run(dependent, state=RunState.FAILED, failures=(Failure(rows[1], ()),)), rows)
    assert "after: 1 child: Dependent Job failed" in parsed.text("li")
    assert "Array Child Job failed" not in parsed.text("li")


def test_retries() -> None:
    retried = {"state": None, "reason": "Host EC2 (instance i-0) terminated."}
    rows = [
        failed_attempt(0, **retried),
        attempt(0, attempt=2),
        failed_attempt(1, **retried),
        failed_attempt(1, attempt=2, **retried),
        failed_attempt(1, attempt=3),
    ]
    broken = step(state=JobState.FAILED, succeeded=1, failed=1, attempts=5)
    parsed = made(run(broken, state=RunState.FAILED), rows)
    cells = [text for name, text in parsed.texts if name == "td"]
    assert cells[-4:] == ["Host EC2 (instance i-0) terminated.", "3", "2", "1"]
    marks = [p for p in parsed.all("path") if str(p.get("class", "")).startswith("mark")]
    assert {"mark", "mark again"} == {mark["class"] for mark in marks}


EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"


def test_what_others_wrote_stays_text() -> None:
    broken = step(state=JobState.FAILED, succeeded=1, failed=1, reason=EVIL)
    bad = failed_attempt(1, reason=EVIL)
    status = run(
        broken,
        state=RunState.FAILED,
        failures=(Failure(bad, (EVIL, "\x1b[31mred\x1b[0m \x00\x07")),),
    )
    commands = {("work", 1): (EVIL,)}
    parsed = made(
        status, [attempt(0), bad], commands=commands, file=EVIL, workspace=EVIL, retry_of=EVIL
    )
    names = {name for name, _ in parsed.tags}
    assert not names & {"script", "img"}
    assert parsed.text("pre").count(EVIL) == 2 and parsed.text("dd").count(EVIL) == 3
    assert "red \N{SYMBOL FOR NULL}\N{SYMBOL FOR BELL}" in parsed.text("pre")


def test_lines_without_end_are_cut() -> None:
    bad = failed_attempt(1)
    broken = step(state=JobState.FAILED, succeeded=1, failed=1)
    status = run(broken, state=RunState.FAILED, failures=(Failure(bad, ("x" * 60_000,)),))
    text = make_page(status, [attempt(0), bad], about(broken))
    assert len(text) < 30_000 and "58,000 more characters" in text


@given(st.text(), st.text())
def test_any_text_survives_a_tag(content: str, value: str) -> None:
    element = tag("p", content, title=value)
    assert element.encode()
    parsed = Page(element)
    assert [name for name, _ in parsed.tags] == ["p"]
    visible = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
    if "\x1b" not in content and "&" not in content:
        for word in visible.findall(content):
            assert word in parsed.text("p")


def test_only_markup_is_not_escaped() -> None:
    assert tag("p", "<b>", Markup("<br>"), None, 7, ["&"]) == "<p>&lt;b&gt;<br>7&amp;</p>"
    assert (
        tag("rect", stroke_width=1.25, class_='"', x=None)
        == '<rect stroke-width="1.2" class="&quot;"></rect>'
    )


# -- lanes -------------------------------------------------------------------------------------

SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1])),
    max_size=60,
)


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def brute_most_at_once(spans: list[tuple[int, int]]) -> int:
    # Intervals that overlap pairwise share a moment; halves are the moments between two ticks.
    moments = [half / 2 for half in range(0, 170)]
    most = max((sum(a < moment < b for a, b in spans) for moment in moments), default=0)
    instants = [1 + sum(a < start < b for a, b in spans) for start, end in spans if start == end]
    return max([most, *instants])


@given(SPANS)
def test_no_two_that_overlap_share_a_lane_and_there_are_no_more_lanes_than_needed(
    spans: list[tuple[int, int]],
) -> None:
    starts, ends = [a for a, _ in spans], [b for _, b in spans]
    packed = lanes.pack(starts, ends)
    for i in range(len(spans)):
        for j in range(i):
            assert packed[i] != packed[j] or not overlap(spans[i], spans[j])
    needed = brute_most_at_once(spans)
    assert len(set(packed)) == max(packed, default=-1) + 1 == needed
    assert lanes.max_concurrency(starts, ends) == needed


@given(SPANS, st.integers(1, 50))
def test_counting_loses_no_time(spans: list[tuple[int, int]], columns: int) -> None:
    starts, ends = [a for a, _ in spans], [b for _, b in spans]
    counts = lanes.mean_concurrency(starts, ends, 0, 80, columns)
    assert len(counts) == columns and min(counts) > -1e-9
    assert sum(counts) * 80 / columns == pytest.approx(sum(b - a for a, b in spans), abs=1e-6)
    assert max(counts) <= lanes.max_concurrency(starts, ends) + 1e-9


def test_what_is_outside_the_time_shown_is_counted_as_far_as_it_is_inside() -> None:
    assert lanes.mean_concurrency([-10, 5, 30], [5, 15, 40], 0, 10, 2) == pytest.approx([1, 1])


# -- sizes -------------------------------------------------------------------------------------


def many(count: int) -> Iterator[AttemptDetail]:
    for index in range(count):
        start = START_MS + index * 7 // 10
        bad = index % 11 == 0
        state, code = (JobState.FAILED, 1) if bad else (JobState.SUCCEEDED, 0)
        yield attempt(
            index,
            state=state,
            exit_code=code,
            started_ms=start,
            ended_ms=start + 1 + index * 31 % 97,
        )


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_large_run_makes_a_small_page_soon(count: int) -> None:
    bad = -(-count // 11)
    big = step(state=JobState.FAILED, size=count, succeeded=count - bad, failed=bad, attempts=count)
    big = replace(big, ended_ms=START_MS + count)
    shown_failures = tuple(Failure(failed_attempt(i), ("x" * 500,) * 10) for i in range(20))
    status = run(big, state=RunState.FAILED, ended_ms=START_MS + count, failures=shown_failures)
    attempts = list(many(count))
    begun = time.process_time()
    text = make_page(status, attempts, about(big))
    assert time.process_time() - begun < 10
    assert len(text.encode()) < 600_000
    parsed = Page(text)
    assert parsed.bars == [] and "how many attempts ran at each moment" in parsed.text("li")


def test_as_many_bars_as_allowed_stay_under_a_megabyte() -> None:
    full = step(size=MAX_BARS, succeeded=MAX_BARS, attempts=MAX_BARS)
    text = make_page(run(full), [attempt(i) for i in range(MAX_BARS)], about(full))
    assert len(Page(text).bars) == MAX_BARS and len(text) < 1_000_000


def test_a_small_step_keeps_its_bars_beside_a_large_one() -> None:
    big, small = step("big", size=MAX_BARS + 1), step("small")
    rows = [attempt(i, step="big") for i in range(MAX_BARS + 1)] + [
        attempt(i, step="small") for i in range(2)
    ]
    assert len(made(run(big, small), rows).bars) == 2


# -- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vcpus", "memory_mib", "gpus", "size", "max_running", "slots"),
    [
        (1, 64, 0, 100, None, 8),
        (3, 64, 0, 100, None, 2),
        (1, 512, 0, 100, None, 2),
        (1, 64, 1, 100, None, 4),
        (1, 64, 0, 5, None, 5),
        (1, 64, 0, 100, 3, 3),
        (64, 64, 0, 100, None, 1),
    ],
)
def test_slots(
    vcpus: int, memory_mib: int, gpus: int, size: int, max_running: int | None, slots: int
) -> None:
    job = PlannedJob(
        "a", size, True, Resources(vcpus, memory_mib, gpus), "x", max_running=max_running
    )
    assert figures.slots_of(job, Resources(8, 1024, 4)) == slots


def test_quantiles_are_durations_that_there_were() -> None:
    ascending = list(range(1000, 21_000, 1000))
    assert figures.quantile_s([], 0.5) is None
    assert figures.quantile_s([7], 0.95) == 0.007
    assert [figures.quantile_s(ascending, part) for part in (0.5, 0.95, 1.0)] == [10, 19, 20]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "\N{EN DASH}"),
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9996, "1.00 s"),
        (2.5, "2.50 s"),
        (42.13, "42.1 s"),
        (59.97, "1m"),
        (90, "1m30s"),
        (7500, "2h5m"),
    ],
)
def test_durations_in_words(seconds: float | None, words: str) -> None:
    assert amounts.format_duration(seconds) == words


@given(st.floats(0, 1e9))
def test_axes_have_a_few_round_ticks(span_s: float) -> None:
    ticks = amounts.linear_ticks(span_s)
    assert ticks[0] == 0 and len(ticks) <= 12 and ticks[-1] <= span_s * 1.001
    assert len({amounts.format_tick(tick) for tick in ticks}) == len(ticks)
