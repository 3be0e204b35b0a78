"""The page in a real browser: what it shows of 1, 10,000 and 100,000 children, by any means."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_yard import BROWSER_MARKS, SIZES, Yard, find_violations
from chromium import Chromium
from large_runs import write_large_log
from small_runs import SCRIPT, begin_run
from ui_client import serve

from batchyard import operations
from batchyard.pipeline import Step
from batchyard.ui.logs import MAX_PART

pytestmark = BROWSER_MARKS


@pytest.fixture(autouse=True)
def nothing_goes_wrong(yard: Yard) -> Iterator[None]:
    with yard.watch():
        yield


def test_the_token_does_not_stay_in_the_address(yard: Yard) -> None:
    assert "token" not in yard.browser.run("location.href")
    assert yard.browser.run("document.cookie") == ""


@pytest.mark.parametrize("size", SIZES)
def test_every_child_is_drawn(yard: Yard, size: int) -> None:
    yard.show_run(yard.runs[size])
    failed = size // 97 + size // 501 - size // (97 * 501)
    lead = yard.text(".lead")
    if size == 1:
        assert lead == "3 of 3 children succeeded."
    else:
        assert lead.startswith(f"{size - failed + 1:,} of {size + 2:,} children succeeded, ")
        assert f"failed: {failed:,}" in yard.text(".legend")
    pixels = yard.browser.run(
        "(() => { const c = document.querySelector('canvas.grid');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " let red = 0, all = 0;"
        " for (let i = 0; i < d.length; i += 4) {"
        " if (d[i + 3]) all++; if (d[i] > 150 && d[i + 1] < 80) red++; }"
        " return [red, all, c.width, c.height]; })()"
    )
    assert pixels[1] >= size and pixels[2] <= 1400 and pixels[3] <= 460
    assert pixels[0] == pytest.approx(pixels[1] * failed / size, rel=0.1)


@pytest.mark.parametrize("colour", ["attempts", "seconds", "exit code", "memory"])
def test_every_colour_has_a_legend(yard: Yard, colour: str) -> None:
    yard.show_run(yard.runs[100_000])
    yard.browser.run(
        "(() => { const s = document.getElementById('colour');"
        f" s.value = {colour!r}; s.dispatchEvent(new Event('change')); }})()"
    )
    legend = yard.text(".legend")
    expected = {"attempts": "2", "seconds": " ms", "exit code": "137:", "memory": "MiB"}
    assert expected[colour] in legend


def test_hovering_shows_the_command_and_a_click_opens_the_log(yard: Yard) -> None:
    browser = yard.browser
    yard.show_run(yard.runs[10_000])
    box = browser.run(
        "(() => { const b = document.querySelector('canvas.grid').getBoundingClientRect();"
        " return [b.left, b.top]; })()"
    )
    browser.move(box[0] + 2, box[1] + 2)
    browser.wait_for("document.querySelector('.child').innerText.includes('simulate --seed 0')")
    assert "work:0 · succeeded · 1 attempt" in yard.text(".child p")


def test_children_by_keyboard(yard: Yard) -> None:
    browser = yard.browser
    yard.show_run(yard.runs[10_000])
    browser.run("document.querySelector('canvas.grid').focus()")
    browser.press("End")
    assert "work:9999" in yard.text(".child p")
    browser.press("Home")
    browser.press("ArrowRight")
    assert "work:1 " in yard.text(".child p")
    browser.press("Enter")
    browser.wait_for("document.querySelector('h1').textContent === 'work:1'")


def test_filter_to_failed_and_jump_to_a_number(yard: Yard) -> None:
    browser = yard.browser
    yard.show_run(yard.runs[100_000])
    browser.run(
        "(() => { const s = document.getElementById('filter'); s.value = 'failed';"
        " s.dispatchEvent(new Event('change'));"
        " document.querySelector('canvas.grid').focus(); })()"
    )
    browser.press("Home")
    assert "work:96 · failed · 2 attempts" in yard.text(".child p")
    browser.run(
        "(() => { const j = document.getElementById('jump'); j.value = '77777';"
        " j.dispatchEvent(new Event('change')); })()"
    )
    browser.wait_for("document.querySelector('.child').innerText.includes('--seed 77777')")


def test_failures_are_grouped_with_an_example(yard: Yard) -> None:
    yard.show_run(yard.runs[10_000])
    yard.browser.wait_for("document.querySelector('article pre span')")
    articles = yard.text("section article")
    assert articles.startswith("103 children of work") and "exit code 3" in articles
    assert "no space left on device" in articles and "batchyard retry " in articles


def test_what_a_run_has_written_is_text(yard: Yard) -> None:
    yard.show("log", yard.small.run_id, "prepare", 0)
    yard.browser.wait_for("document.querySelector('pre.log').innerText.includes('red')")
    assert SCRIPT in yard.text("pre.log")
    assert yard.browser.run("document.querySelector('pre.log span.f1').textContent") == "red"
    assert yard.browser.run("document.querySelectorAll('pre script, pre img').length") == 0
    assert "\x1b" not in yard.text("pre.log")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain", [["plain", ""]]),
        ("\x1b[1;31mred\x1b[0m no", [["red", "b f1"], [" no", ""]]),
        ("\x1b[91;44mx\x1b[39my", [["x", "f9 g4"], ["y", "g4"]]),
        ("\x1b[38;5;9mx\x1b[38;5;196my", [["x", "f9"], ["y", "rgb(255, 0, 0)"]]),
        ("\x1b[38;2;1;2;3mx\x1b[mz", [["x", "rgb(1, 2, 3)"], ["z", ""]]),
        # A title, a link, cursor moves, a bell and a broken escape do nothing.
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", [["a", ""], ["b", ""]]),
        ("\x1b[2J\x1b[1;1Ha\x07\x1b[?25lb\x1b", [["a", ""], ["b", ""]]),
        ("10 %\r20 %\rdone\r\nnext", [["done\nnext", ""]]),
        ("\r", []),
        ("a\r\r\n\r\nb\r\rc\r", [["a\n\nc", ""]]),
        ("\x1b[38;5;999mx", [["x", ""]]),
        ("\x1b[31m<b>&amp;</b>", [["<b>&amp;</b>", "f1"]]),
    ],
)
def test_escape_codes(yard: Yard, written: str, shown: list[list[str]]) -> None:
    nodes = yard.browser.run(
        f"import('/page/ansi.js').then(m => m.readAnsi({json.dumps(written)}).map("
        "node => [node.textContent, node.className || (node.style ? node.style.color : '') || '']))"
    )
    assert nodes == shown


def test_a_long_line_after_a_carriage_return_is_shown(yard: Yard) -> None:
    """It took minutes when the time grew with the square of the length."""
    for line in (r"'\r' + 'x'.repeat(2e6)", r"'\r'.repeat(2e6) + 'x'.repeat(2e6)"):
        shown = yard.browser.run(
            f"import('/page/ansi.js').then(m => m.readAnsi({line})[0].textContent.length)"
        )
        assert shown == 2_000_000


def test_a_large_log(yard: Yard) -> None:
    browser = yard.browser
    path = write_large_log(yard.runs[1], "work", 0, 1 << 30)
    yard.show("log", yard.runs[1].run_id, "work", 0)
    browser.wait_for("document.querySelector('pre.log').innerText.includes('the needle is here')")
    assert "of 1.0 GiB" in yard.text("pre.log + .note")
    yard.click_button("To the start")
    browser.wait_for("document.querySelector('pre.log').scrollTop === 0")
    browser.wait_for("!document.querySelector('pre.log').innerText.includes('needle')")
    browser.run("document.getElementById('log-search').value = 'Needle'")
    browser.run("document.getElementById('log-search').focus()")
    browser.press("Enter")
    browser.wait_for("getSelection().toString() === 'needle'")
    assert browser.run("document.querySelector('pre.log').textContent.length") < 2_000_000
    yard.click_button("To the start")
    browser.wait_for("!document.querySelector('pre.log').innerText.includes('needle')")
    yard.click_button("To the end")
    browser.wait_for("document.querySelector('pre.log').innerText.includes('the needle is here')")
    # A part at a time, whatever is asked for.
    child = {"run": yard.runs[1].run_id, "step": "work", "index": 0, "attempt": 1}
    assert len(yard.page.get("/api/log", **child, begin=0).body) == MAX_PART
    path.write_text("no space left on device\n")


def test_what_is_asked_for_while_a_log_is_read_is_done_after_it(yard: Yard) -> None:
    browser = yard.browser
    path = write_large_log(yard.runs[1], "work", 0, 1 << 20)
    try:
        yard.show("log", yard.runs[1].run_id, "work", 0)
        log = "document.querySelector('pre.log').innerText"
        browser.wait_for(f"{log}.includes('the needle is here')")
        browser.run(
            "window.delay = 0; window.lastRead = performance.now(); window.reads = 0;"
            "const fetchAtOnce = window.fetch;"
            "window.fetch = async (...request) => {"
            " window.reads++; window.lastRead = performance.now();"
            " await new Promise((done) => setTimeout(done, window.delay));"
            " return fetchAtOnce(...request); }; true"
        )
        # The run is over: after a few looks the page reads no more by itself.
        browser.wait_for("performance.now() - window.lastRead > 2500")
        browser.run("window.delay = 500; window.reads = 0")
        yard.click_button("To the start")
        yard.click_button("To the end")
        browser.wait_for(f"window.reads >= 2 && {log}.includes('the needle is here')")
    finally:
        path.write_text("no space left on device\n")
        browser.open(yard.page.address)
        browser.wait_for("document.querySelectorAll('tbody tr').length === 4")


def test_a_running_run_is_live_and_a_dead_server_is_said(yard: Yard, tmp_path: Path) -> None:
    browser = yard.browser
    wait = "until test -e go; do sleep 0.05; done"
    home = tmp_path / ".batchyard"
    record = begin_run(home, Step("work", command=f"echo started; {wait}; echo done", array=2))
    operations.start(record)
    try:
        with serve(home) as page:
            port = page.port
            browser.open(page.address + f"#/run/{record.run_id}")
            browser.wait_for("document.querySelector('.legend').innerText === 'running: 2'")
            (tmp_path / "go").touch()
            browser.wait_for("document.querySelector('.badge').innerText === 'SUCCEEDED'")
            browser.wait_for("document.querySelector('.legend').innerText === 'succeeded: 2'")
        browser.wait_for(
            "document.getElementById('connection').innerText.includes('does not answer')"
        )
        # Another server at the same address has another token.
        with serve(home, port=port):
            connection = "document.getElementById('connection').innerText"
            browser.wait_for(f"{connection}.includes('was started anew')")
        own = page.address.partition("?")[0]
        browser.requests[:] = [url for url in browser.requests if not url.startswith(own)]
    finally:
        (tmp_path / "go").touch()
        browser.open(yard.page.address)
        browser.wait_for("document.querySelectorAll('tbody tr').length === 4")
        # The browser writes each failed connection to the dead server.
        noise = ("net::ERR_", "status of 403")
        browser.errors[:] = [
            text for text in browser.errors if not any(word in text for word in noise)
        ]


def test_the_last_output_is_shown_after_the_end_of_the_run(yard: Yard, tmp_path: Path) -> None:
    """The run ends while the tab is hidden: the tab reads nothing until it is visible again."""
    browser = yard.browser
    home = tmp_path / ".batchyard"
    wait = "until test -e go; do sleep 0.05; done"
    record = begin_run(home, Step("work", command=f"echo started; {wait}; echo the end"))
    operations.start(record)
    log = "document.querySelector('pre.log').innerText"
    try:
        with serve(home) as page:
            browser.open(page.address + f"#/log/{record.run_id}/work/0")
            browser.wait_for(f"{log}.includes('started')")
            set_visibility(browser, is_hidden=True)
            (tmp_path / "go").touch()
            with page.events("/api/run", run=record.run_id) as events:
                while next(events)[1]["state"] == "RUNNING":
                    pass
            set_visibility(browser, is_hidden=False)
            browser.wait_for(f"{log}.includes('the end')")
            browser.open(yard.page.address)
            browser.wait_for("document.querySelectorAll('tbody tr').length === 4")
        own = page.address.partition("?")[0]
        browser.requests[:] = [url for url in browser.requests if not url.startswith(own)]
    finally:
        (tmp_path / "go").touch()


def test_a_lost_connection_is_opened_again(yard: Yard, tmp_path: Path) -> None:
    """The stream breaks off while the run goes on: the page says so, and gets what it missed."""
    browser = yard.browser
    home = tmp_path / ".batchyard"
    wait = "until test -e go; do sleep 0.05; done"
    record = begin_run(home, Step("work", command=wait, array=2))
    operations.start(record)
    said = "document.getElementById('connection').innerText"
    try:
        with serve(home) as page:
            browser.open(page.address + f"#/run/{record.run_id}")
            browser.wait_for("document.querySelector('.legend').innerText === 'running: 2'")
            browser.wait_for(f"{said} === 'live'")
            browser.run(
                "window.said = []; new MutationObserver(() => window.said.push("
                f"{said})).observe(document.getElementById('connection'), {{childList: true}})"
            )
            page.server.drop_connections()
            (tmp_path / "go").touch()
            browser.wait_for("document.querySelector('.badge').innerText === 'SUCCEEDED'")
            assert "The connection was lost. Trying again." in browser.run("window.said")
            assert browser.run(said) == "live"
            own = page.address.partition("?")[0]
            browser.open(yard.page.address)
            browser.wait_for("document.querySelectorAll('tbody tr').length === 4")
            browser.requests[:] = [url for url in browser.requests if not url.startswith(own)]
    finally:
        (tmp_path / "go").touch()
    browser.errors[:] = [text for text in browser.errors if "net::ERR_" not in text]


def test_charts_that_could_not_be_loaded_are_loaded_later(yard: Yard) -> None:
    """The run is over: without a change of its state, its charts are asked for only once."""
    browser = yard.browser
    yard.show()
    browser.wait_for("document.querySelectorAll('table.runs tbody tr').length === 4")
    browser.call("Network.setBlockedURLs", urls=["*/api/charts*"])
    try:
        asked = len(browser.requests)
        yard.show_run(yard.small)
        while not any("/api/charts" in url for url in browser.requests[asked:]):
            time.sleep(0.05)
    finally:
        browser.call("Network.setBlockedURLs", urls=[])
    yard.page.server.drop_connections()
    browser.wait_for("document.querySelector('.charts svg.wide')")
    browser.errors[:] = [text for text in browser.errors if "net::ERR_" not in text]


def test_runs_are_found_by_name_and_state(yard: Yard) -> None:
    browser = yard.browser
    yard.show()
    rows = "document.querySelectorAll('table.runs tbody tr').length"
    browser.wait_for(f"{rows} === 4")
    set_value(browser, "search", "LARGE")
    browser.wait_for(f"{rows} === 3")
    set_value(browser, "state", "SUCCEEDED")
    browser.wait_for(f"{rows} === 1")
    assert yard.runs[1].run_id in yard.text("table.runs") and "100 %" in yard.text("table.runs")
    assert yard.text("[role=status].note") == "1 of 4 runs"
    set_value(browser, "search", "nothing of this name")
    browser.wait_for("document.querySelector('.note').innerText === 'No run matches.'")
    set_value(browser, "search", "")
    set_value(browser, "state", "all")
    browser.wait_for(f"{rows} === 4")


def set_value(browser: Chromium, name: str, value: str) -> None:
    browser.run(
        f"(() => {{ const field = document.getElementById({name!r}); field.value = {value!r};"
        " field.dispatchEvent(new Event('input')); field.dispatchEvent(new Event('change')); })()"
    )


def set_visibility(browser: Chromium, *, is_hidden: bool) -> None:
    """Let the tab believe that another one covers it, or no longer."""
    value = json.dumps(is_hidden)
    browser.run(
        f"Object.defineProperty(document, 'hidden', {{value: {value}, configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_two_runs_side_by_side(yard: Yard) -> None:
    browser = yard.browser
    yard.show()
    browser.wait_for("document.querySelectorAll('tbody tr').length === 4")
    browser.run(
        "[...document.querySelectorAll('input[type=checkbox]')].slice(0, 2).forEach(b => b.click())"
    )
    browser.run("document.querySelector('a.button').click()")
    browser.wait_for("document.querySelectorAll('table.compare tbody tr').length === 3")
    assert re.search(r"work\s+8m 20s\s+100,000", yard.text("table.compare"))


def show_samples(yard: Yard, *parts: object) -> None:
    """Show a view with the charts of what a child has used."""
    yard.show(*parts)
    yard.browser.wait_for("document.querySelector('#view figure svg')")


VIEWS = {
    "runs": lambda yard: yard.show(),
    "run": lambda yard: yard.show_run(yard.runs[10_000]),
    "small run": lambda yard: show_samples(yard, "run", yard.small.run_id, "work"),
    "log": lambda yard: show_samples(yard, "log", yard.small.run_id, "work", 3),
    "comparison": lambda yard: yard.show("compare", yard.small.run_id, yard.runs[1].run_id),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible_and_fits(yard: Yard, view: str, width: int, scheme: str) -> None:
    yard.browser.resize(width, dark=scheme == "dark")
    VIEWS[view](yard)
    time.sleep(0.7)
    sizes = yard.browser.run("[document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1] == width
    assert find_violations(yard.browser) == []
