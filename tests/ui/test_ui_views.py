"""Every view with 1, 10,000 and 100,000 children: what it shows, its size, and who can use it.

How long each takes is measured by benchmarks/ui.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser_yard import BROWSER_MARKS, SIZES, Yard, find_violations
from large_runs import FAILING, GAP_MS, SLOTS
from ui_client import Page, serve

from batchyard.ui.page_files import load_page_files

pytestmark = BROWSER_MARKS


@pytest.fixture(autouse=True)
def nothing_goes_wrong(yard: Yard) -> Iterator[None]:
    with yard.watch():
        yield


def count_failed(size: int) -> int:
    first, second = FAILING
    return size // first + size // second - size // (first * second)


def show_runs(yard: Yard, size: int) -> None:
    yard.show()
    yard.browser.wait_for("document.querySelectorAll('table.runs tbody tr').length === 4")
    run = yard.runs[size].run_id
    row = yard.browser.run(
        "[...document.querySelectorAll('table.runs tbody tr')]"
        f".find(row => row.innerText.includes({run!r})).innerText"
    )
    cells = row.split("\t")
    assert f"{size + 2:,}" in cells and ("FAILED" if count_failed(size) else "SUCCEEDED") in row
    assert not count_failed(size) or f"{count_failed(size) + 1:,}" in cells


def show_run(yard: Yard, size: int) -> None:
    yard.show_run(yard.runs[size])
    step = yard.text("table.steps tbody tr:nth-child(2)")
    assert "work" in step and f"{size:,} / {size:,}" in step
    assert yard.browser.run("document.querySelectorAll('.graph .box').length") == 3


def show_timeline(yard: Yard, size: int) -> None:
    yard.show_run(yard.runs[size])
    yard.browser.wait_for("document.querySelector('.charts svg.wide')")
    chart = "document.querySelector('.charts svg.wide')"
    names = yard.browser.run(f"[...{chart}.querySelectorAll('text.name')].map(t => t.textContent)")
    assert names == ["prepare", "work", "collect"]
    titles = yard.browser.run(f"[...{chart}.querySelectorAll('title')].map(t => t.textContent)")
    slots = [title for title in titles if title.startswith("slot ")]
    if size == 1:
        assert any(title.startswith("work:0: ") for title in titles) and not slots
        return
    attempts = size + count_failed(size)
    assert any(title.startswith(f"work: {attempts:,} attempts, at most 4") for title in titles)
    assert [title.partition(":")[0] for title in slots] == [f"slot {n}" for n in range(SLOTS)]
    counts = [int(title.split(": ")[1].split(" ")[0].replace(",", "")) for title in slots]
    assert sum(counts) == attempts
    # All slots have a gap at the same time: nothing is drawn in the middle of it.
    assert count_shapes(yard, 100) == [1] * SLOTS
    assert count_shapes(yard, sum(GAP_MS) / 2000) == [0] * SLOTS


def count_shapes(yard: Yard, at_s: float) -> list[int]:
    """Return how many shapes there are in each lane at a time of the run, which took 500 s."""
    counts = yard.browser.run(
        "[...document.querySelectorAll('.charts svg.wide .lanes > g')].map(lane => {"
        " const track = lane.querySelector('.track').getBoundingClientRect();"
        f" const x = track.left + track.width * {at_s / 500}, y = track.top + 3;"
        " return [...lane.querySelectorAll('path')].filter(path => {"
        "  const point = path.ownerSVGElement.createSVGPoint(); point.x = x; point.y = y;"
        "  return path.isPointInFill(point.matrixTransform(path.getScreenCTM().inverse()));"
        " }).length; })"
    )
    assert isinstance(counts, list)
    return counts


def show_failures(yard: Yard, size: int) -> None:
    yard.show_run(yard.runs[size])
    if size == 1:
        assert (
            yard.browser.run("document.querySelectorAll('section:not([hidden]) article').length")
            == 0
        )
        return
    yard.browser.wait_for("document.querySelector('article pre span')")
    groups = yard.browser.run("[...document.querySelectorAll('article h3')].map(h => h.innerText)")
    assert groups[0] == f"{size // 97:,} children of work"
    assert "no space left on device" in yard.text("section article")


def show_log(yard: Yard, size: int) -> None:
    index = 0 if size == 1 else 96
    yard.show("log", yard.runs[size].run_id, "work", index)
    yard.browser.wait_for("document.querySelector('pre.log').innerText.includes('no space left')")
    assert f"simulate --seed {index}" in yard.text("pre.command")
    rows = yard.browser.wait_for("document.querySelectorAll('section table tbody tr').length")
    assert rows == (1 if size == 1 else 2)


def show_comparison(yard: Yard, size: int) -> None:
    yard.show("compare", yard.runs[size].run_id, yard.runs[1].run_id)
    yard.browser.wait_for("document.querySelectorAll('table.compare tbody tr').length === 3")
    cells = yard.text("table.compare tbody tr:nth-child(2)").split("\t")
    assert cells[0] == "work" and cells[2] == f"{size:,}" and cells[6] == "1"


VIEWS: dict[str, Callable[[Yard, int], None]] = {
    "runs": show_runs,
    "run": show_run,
    "timeline": show_timeline,
    "failures": show_failures,
    "log": show_log,
    "comparison": show_comparison,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_at_every_size(yard: Yard, view: str, size: int) -> None:
    VIEWS[view](yard, size)
    # The number of elements does not grow with the number of children.
    assert yard.browser.run("document.querySelectorAll('*').length") < 3000
    assert yard.browser.run("document.documentElement.scrollWidth") <= 1400
    assert find_violations(yard.browser) == []


@pytest.mark.parametrize("size", SIZES)
def test_what_a_tab_gets_is_small(yard: Yard, size: int) -> None:
    run = yard.runs[size].run_id
    charts = yard.page.get("/api/charts", run=run, state="FAILED" if size > 1 else "SUCCEEDED")
    assert len(charts.body) < 300_000
    with yard.page.events("/api/run", run=run, step="work") as events:
        children = next(value for name, value in events if name == "children")
    assert len(children["records"]) <= 16 * size + 4


def test_the_page_itself_is_small() -> None:
    assert sum(len(answer.body) for answer in load_page_files().values()) < 150_000  # type: ignore[arg-type]


def test_the_question_before_an_action(yard: Yard) -> None:
    browser = yard.browser
    with serve(yard.home, allows_actions=True) as page:
        try:
            ask_for_retry(yard, page)
        finally:  # also if there is no axe-core
            browser.open(yard.page.address)
            browser.wait_for("document.querySelectorAll('tbody tr').length === 4")
            own = page.address.partition("?")[0]
            browser.requests[:] = [url for url in browser.requests if not url.startswith(own)]


def ask_for_retry(yard: Yard, page: Page) -> None:
    """Ask for a retry on a page that allows it, and say no."""
    browser = yard.browser
    browser.open(page.address + f"#/run/{yard.runs[10_000].run_id}")
    browser.wait_for("document.querySelector('.legend li')")
    yard.click_button("Retry")
    browser.wait_for("document.querySelector('dialog').innerText.includes('Start a new run')")
    dialog = yard.text("dialog")
    assert f"{count_failed(10_000) + 1:,} children" in dialog and "work, collect" in dialog
    # No is chosen, so that Enter does nothing by mistake.
    assert browser.run("document.activeElement.innerText") == "No"
    assert find_violations(browser) == []
    browser.press("Enter")
    browser.wait_for("!document.querySelector('dialog')")
    assert len(list((yard.home / "runs").iterdir())) == 4
