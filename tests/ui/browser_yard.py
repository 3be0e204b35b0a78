"""A browser that has opened the page of runs with 1, 10,000 and 100,000 children."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, Chromium
from large_runs import make_large_run
from small_runs import begin_run, execute, small_steps
from ui_client import Page, serve

from batchyard.embedded.store import Store
from batchyard.embedded.use_table import WHOLE_ATTEMPT, UseRow
from batchyard.engines.base import RunRecord
from batchyard.sampling.samples import SampledUse, Series

AXE = Path(__file__).parents[2] / ".cache/ui/node_modules/axe-core/axe.min.js"
IS_REQUIRED = bool(os.environ.get("BATCHYARD_REQUIRE_BROWSER"))
#: Marks of tests that need the browser.
BROWSER_MARKS = [
    pytest.mark.slow,
    pytest.mark.outside,
    pytest.mark.skipif(CHROMIUM is None and not IS_REQUIRED, reason="no Chromium is installed"),
]
SIZES = (1, 10_000, 100_000)


@dataclass
class Yard:
    """A browser that has opened the page, and the runs that the page shows."""

    browser: Chromium
    page: Page
    home: Path
    #: Size of the step `work` -> the run.
    runs: dict[int, RunRecord]
    small: RunRecord

    def show(self, *parts: object) -> None:
        self.browser.run(f"location.hash = '#/{'/'.join(map(str, parts))}'")

    def show_run(self, record: RunRecord, step: str = "work") -> None:
        self.show("run", record.run_id, step)
        self.browser.wait_for(
            f"document.querySelector('h1').textContent === '{record.run_id}'"
            " && document.querySelector('canvas') && document.querySelector('.legend li')"
        )

    def click_button(self, text: str) -> None:
        buttons = "[...document.querySelectorAll('button')]"
        self.browser.run(f"{buttons}.find(button => button.textContent === {text!r}).click()")

    def text(self, selector: str) -> str:
        value = self.browser.wait_for(f"document.querySelector({selector!r}).innerText")
        assert isinstance(value, str)
        return value

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Check that no view writes an error, or loads anything from elsewhere."""
        browser = self.browser
        browser.resize(1400)
        browser.errors.clear()
        browser.console.clear()
        yield
        assert browser.errors == [] and browser.console == []
        own = f"http://127.0.0.1:{self.page.port}/"
        assert [url for url in browser.requests if not url.startswith((own, "data:"))] == []


def add_samples(record: RunRecord) -> None:
    """Record what the failed child has used, as if it had run for longer."""
    series = Series((0.5, 1.5), (100, 300), (40, None), (1000, 9000))
    use = SampledUse(2, 4.0, 1.0, 1.5, 300 * 1024, 40.0, 80.0, 9000, 16384, series)
    with closing(Store.open(record.folder.database)) as store:
        store.commit(uses=[UseRow(1, 3, 1, WHOLE_ATTEMPT, use)])


@contextmanager
def open_yard(folder: Path) -> Iterator[Yard]:
    home = folder / ".batchyard"
    small = begin_run(home, *small_steps())
    execute(small)
    add_samples(small)
    records = {size: make_large_run(home, size) for size in SIZES}
    with serve(home) as page, Chromium(folder / "profile") as browser:
        browser.resize(1400)
        browser.open(page.address)
        browser.wait_for("document.querySelectorAll('tbody tr').length === 4")
        yield Yard(browser, page, home, records, small)


def find_violations(browser: Chromium) -> list[str]:
    """Return what axe-core finds in the page that is shown."""
    if not AXE.exists() and not IS_REQUIRED:
        pytest.skip("axe-core is not installed: .ci/ui-tools installs it")
    browser.run(AXE.read_text(encoding="utf-8") + "; true")
    results: Any = browser.run("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['html']} {node['failureSummary']}"
        for violation in results["violations"]
        for node in violation["nodes"]
    ]
