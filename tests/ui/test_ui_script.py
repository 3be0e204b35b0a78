"""Script in every text that a run can bring into the page: it must be shown, and never executed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser_yard import BROWSER_MARKS
from chromium import Chromium
from small_runs import begin_run, execute
from ui_client import serve

from batchyard import report, runs
from batchyard.embedded.store import Store
from batchyard.engines.base import RunRecord
from batchyard.pipeline import Need, Step
from batchyard.ui.application import Settings

pytestmark = BROWSER_MARKS

#: Every document of the browser has a function `hack`, and counts its calls and what the policy of
#: the page has blocked.
TRAPS = """
window.hacks = 0;
window.hack = () => { window.hacks++; };
window.alert = window.confirm = window.prompt = window.hack;
window.blocked = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.blocked.push(`${event.violatedDirective} ${event.sourceFile} ${event.sample}`);
});
"""
#: For names, which cannot contain a slash.
NAME = "<img src=x onerror=hack()><svg onload=hack()>\"'`${hack()}"
TEXT = f"{NAME}<script>hack()</script></pre></style><iframe srcdoc='<script>hack()</script>'>"
LINKS = "\x1b]8;;javascript:hack()\x07link\x1b]8;;\x07 \x1b]0;" + TEXT + "\x07javascript:hack()"


@dataclass
class Trap:
    browser: Chromium
    address: str
    hostile: RunRecord
    plain: RunRecord

    def show(self, *parts: object) -> None:
        path = "/".join(f"' + encodeURIComponent({json.dumps(str(part))}) + '" for part in parts)
        self.browser.run(f"location.hash = '#/{path}'")

    def wait_for_text(self, selector: str, text: str) -> None:
        self.browser.wait_for(
            f"document.querySelector({json.dumps(selector)}).textContent.includes({json.dumps(text)})"
        )

    def check(self) -> None:
        """Assert that nothing was executed, or only stopped by the policy of the page."""
        browser = self.browser
        assert browser.run("window.hacks") == 0
        assert browser.run("window.blocked") == []
        strange = "img, iframe, object, embed, script:not([src='/page/main.js']), svg[onload]"
        assert browser.run(f"document.querySelectorAll({json.dumps(strange)}).length") == 0
        names = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
        assert browser.run(f"{names}.filter(name => name.startsWith('on')).length") == 0
        assert browser.run("[...document.links].every(link => ['http:'].includes(link.protocol))")
        assert browser.errors == [] and browser.console == []


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trap]:
    folder = tmp_path_factory.mktemp("script")
    home = folder / NAME / ".batchyard"
    home.parent.mkdir()
    (home.parent / "log.txt").write_text(f"{TEXT}\n{LINKS}\n")
    plain = begin_run(home, Step("work", command="true"), name="plain")
    execute(plain)
    hostile = begin_run(
        home,
        Step(NAME, command=f"cat log.txt # {TEXT}"),
        Step("work", commands=(f"cat log.txt; exit 3 # {TEXT}",), needs=(Need(NAME),)),
        Step("collect", command="true", needs=(Need("work"),)),
        name="hostile",
    )
    execute(hostile)
    plant_reasons(hostile)
    plant_names(hostile)
    broken = home / "runs" / "broken-20250101-000000"
    shutil.copytree(plain.folder.path, broken)
    (broken / "run.json").write_text(json.dumps({"format": TEXT, "plan": TEXT}))
    (home / "runs" / NAME).mkdir()
    with (
        serve(home, environment=NAME) as page,
        Chromium(folder / "profile") as browser,
    ):
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=TRAPS)
        browser.resize(1400)
        browser.open(page.address)
        browser.wait_for("document.querySelectorAll('tbody tr').length >= 3")
        yield Trap(browser, page.address, hostile, plain)


def plant_reasons(record: RunRecord) -> None:
    """Write reasons into the store, as a service could return them."""
    with closing(Store.open(record.folder.database)) as store:
        jobs = store.jobs()
        attempts = [
            row._replace(reason=TEXT, status_reason=TEXT)
            for job in jobs
            for row in store.attempts(job.number)
        ]
        jobs = [job._replace(status_reason=TEXT) for job in jobs]
        store.commit(jobs=jobs, attempts=attempts)


def plant_names(record: RunRecord) -> None:
    """Write the file and the retried run into the record, as another program could."""
    path = record.folder.path / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "file": f"/x/{NAME}.yaml", "retry_of": NAME}))


def test_the_traps_work(trap: Trap) -> None:
    """A page without our policy would execute it, and with it the policy would say so."""
    browser = trap.browser
    browser.open("data:text/html," + "<img src=x onerror=hack()>")
    browser.wait_for("window.hacks > 0")
    browser.open(trap.address)
    browser.wait_for("document.querySelectorAll('tbody tr').length >= 3")
    browser.run("(() => { try { document.body.setAttribute('onclick', 'hack()'); } catch { } })()")
    browser.wait_for("window.blocked.length > 0")
    browser.open("about:blank")
    browser.open(trap.address)
    browser.wait_for("document.querySelectorAll('tbody tr').length >= 3")
    browser.errors.clear()


def test_names_of_folders_environments_and_broken_runs(trap: Trap) -> None:
    trap.show()
    trap.wait_for_text(".lead", f"environment {NAME}")
    trap.wait_for_text("p.warn", NAME)
    trap.wait_for_text(".lead", f"/{NAME}/")
    trap.browser.wait_for(
        "[...document.querySelectorAll('.badge')].some(badge => badge.innerText === 'UNREADABLE')"
    )
    trap.check()


@pytest.mark.parametrize("step", [NAME, "work"])
def test_steps_commands_files_and_reasons(trap: Trap, step: str) -> None:
    browser = trap.browser
    trap.show("run", trap.hostile.run_id, step)
    heading = json.dumps(f"Children of {step}")
    browser.wait_for(f"[...document.querySelectorAll('h2')].some(h => h.textContent === {heading})")
    browser.wait_for(
        "document.querySelector('canvas.grid') && document.querySelector('.legend li')"
    )
    trap.wait_for_text("dl.facts", f"{NAME}.yaml")
    trap.wait_for_text("table.steps", NAME)
    trap.wait_for_text("section article p", TEXT)
    trap.wait_for_text("section article pre", "link")
    browser.wait_for("document.querySelector('.charts svg.wide')")
    browser.run("document.querySelector('canvas.grid').focus()")
    browser.press("Home")
    trap.wait_for_text(".child pre", f"# {TEXT}")
    trap.check()


@pytest.mark.parametrize("step", [NAME, "work"])
def test_lines_of_logs(trap: Trap, step: str) -> None:
    trap.show("log", trap.hostile.run_id, step, 0)
    trap.wait_for_text("pre.log", f"{TEXT}\nlink javascript:hack()")
    trap.wait_for_text("pre.command", f"# {TEXT}")
    if step == "work":
        trap.wait_for_text("section table", TEXT)
    trap.check()


def test_the_comparison(trap: Trap) -> None:
    trap.show("compare", trap.hostile.run_id, trap.plain.run_id)
    trap.wait_for_text("table.compare", NAME)
    trap.check()


@pytest.mark.parametrize(
    "parts",
    [
        ("run", NAME),
        ("run", "../../etc/passwd", "x"),
        ("log", NAME, NAME, NAME, NAME),
        ("compare", NAME, NAME),
        ("constructor", "__proto__"),
    ],
)
def test_addresses_with_script(trap: Trap, parts: tuple[str, ...]) -> None:
    trap.show(*parts)
    trap.browser.wait_for("document.querySelector('h1')")
    if parts[0] == "run":
        trap.wait_for_text(".lead", "This run cannot be shown: there is no such run.")
    trap.browser.run("new Promise(done => setTimeout(done, 300))")
    # The browser writes each refused request.
    trap.browser.errors[:] = [text for text in trap.browser.errors if "status of 40" not in text]
    trap.check()
    trap.show()


def test_an_address_that_cannot_be_decoded(trap: Trap) -> None:
    trap.browser.run("location.hash = '#/run/%E0%A4%A'")
    trap.browser.wait_for("document.querySelector('h1').textContent === 'Runs'")
    trap.check()


def test_the_report_of_the_same_run(trap: Trap, tmp_path: Path) -> None:
    record = runs.read(trap.hostile.folder)
    path = tmp_path / "report.html"
    path.write_text(report.of_run(record, record.created_ms + 1000))
    trap.browser.open(path.as_uri())
    trap.wait_for_text("main", TEXT.partition("<script>")[0])
    browser = trap.browser
    assert browser.run("window.hacks") == 0 and browser.run("window.blocked") == []
    assert browser.run("document.querySelectorAll('img, script, iframe').length") == 0
    browser.open(trap.address)
    browser.wait_for("document.querySelectorAll('tbody tr').length >= 3")


def test_settings_have_nothing_else_that_is_shown() -> None:
    """A new setting that the page shows needs a text with script above."""
    assert set(Settings.__dataclass_fields__) == {"home", "environment", "allows_actions"}
