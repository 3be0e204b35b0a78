"""The page from values: what is in it, what it never says, and that it is whole."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from bench_values import measurement, on_gpu
from bench_values import results as made

from batchyard.bench import axes, charts
from batchyard.bench.page import page
from batchyard.bench.results import Outcome, Results
from batchyard.ec2_prices import add_prices, load_prices

LISTED = load_prices()
NOW_MS = 1_700_000_000_000
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Reads a page, and insists that every tag is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.data += data


def both() -> list[Results]:
    ours = [measurement(size=size, seconds=size / 1000) for size in (1000, 2000, 4000)]
    theirs = [on_gpu(one, (one.median_s or 1) / 20, (one.median_s or 1) / 5) for one in ours]
    return [
        made("gpu", *theirs, instance_type="g5.xlarge"),
        made("cpu", *ours, instance_type="c7i.4xlarge"),
    ]


def test_cpu_and_gpu() -> None:
    text = page(both(), NOW_MS, LISTED)
    shown = Page(text)
    for words in (
        "c7i.4xlarge against g5.xlarge",
        "Made-up GPU",
        "5.00x",
        "the GPU is cheaper at all sizes",
        "the GPU is faster at all sizes",
        "Prices: EC2 on-demand, us-east-1, Linux, seen 2026-08-22",
        "Roofline",
        "2026-08-22",
    ):
        assert words in shown.data, words
    assert "script" not in [name for name, _ in shown.tags]
    links = [
        value for _, attrs in shown.tags for key, value in attrs.items() if key in ("href", "src")
    ]
    assert links == ["data:,"]
    assert [attrs.get("class") for name, attrs in shown.tags if name == "svg"].count("chart") == 4


def test_with_no_gpu_nothing_is_said_about_one() -> None:
    shown = Page(page([made()], NOW_MS, LISTED))
    assert "No GPU was measured, so nothing here is about one." in shown.data
    assert "against Some" not in shown.data and "with copies" not in shown.data


def test_what_was_not_measured_is_listed_with_its_reason() -> None:
    failed = measurement(
        "blur", 5, outcome=Outcome.FAILED, reason="<b>NaN</b> & worse", warm_s=(), tried=()
    )
    text = page([made("cpu", measurement(), failed, instance_type=None, ended="")], NOW_MS, LISTED)
    assert "<b>NaN</b>" not in text and "<b>NaN</b> & worse" in Page(text).data
    assert "not finished" in text


@pytest.mark.parametrize(
    "measurements", [(), (measurement(outcome=Outcome.SKIPPED, warm_s=(), tried=()),)]
)
def test_nothing_measured_is_a_page_too(measurements: tuple[object, ...]) -> None:
    value = made("cpu", measurements=measurements)
    assert "Nothing has been measured." in Page(page([value], NOW_MS, LISTED)).data


def test_marks_stand_where_their_numbers_are() -> None:
    scale = axes.LogScale(1, 100, 0, 200)
    assert [scale.at(value) for value in (1, 10, 100, 1000)] == pytest.approx([0, 100, 200, 200])
    up = axes.LogScale(1, 100, 200, 0)
    assert up.at(10) == pytest.approx(100) and up.at(100) == pytest.approx(0)
    assert scale.ticks() == [1, 2, 5, 10, 20, 50, 100]
    assert axes.LogScale(0.5, 20000, 0, 1).ticks() == [1, 10, 100, 1000, 10000]
    assert axes.scale_of([3.0], 0, 1).high / axes.scale_of([3.0], 0, 1).low == pytest.approx(10)


def test_series_differ_in_shape_not_only_in_colour() -> None:
    shapes = {
        str(axes.mark(n, 0, 0)).split("class")[0] + str("hollow" in axes.mark(n, 0, 0))
        for n in range(6)
    }
    assert len(shapes) == 6


def test_candidates_have_letters() -> None:
    chart = charts.candidates_chart(made())
    assert ">N</text>" in chart and ">O</text>" in chart and "2.50x" in chart
    assert len(set(charts.LETTERS.values())) == len(charts.LETTERS)
    assert charts.candidates_chart(made("cpu", measurement(tried=()))) == ""


def test_ticks() -> None:
    assert [axes.time_tick(s) for s in (1e-8, 2e-5, 0.005, 1, 20)] == [
        "10 ns",
        "20 µs",
        "5 ms",
        "1 s",
        "20 s",
    ]
    assert [axes.plain_tick(v) for v in (0.5, 1, 20000)] == ["0.5", "1", "20,000"]


def test_the_region_and_the_date_of_prices_are_on_a_page_without_a_comparison() -> None:
    assert (
        "Prices: EC2 on-demand, us-east-1, Linux, seen 2026-08-22"
        in Page(page([made()], NOW_MS, LISTED)).data
    )


def test_a_page_has_the_prices_that_it_is_given() -> None:
    spot = add_prices(load_prices(spot=True), ["g5.xlarge=0.5"])
    shown = Page(page(both(), NOW_MS, spot)).data
    assert "given: g5.xlarge 0.5; others: EC2 spot" in shown
    assert "$0.034" in shown  # 1000 runs of 1 s for 0.1222 dollars an hour
