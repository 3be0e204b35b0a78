"""The charts of the report in a real browser, on a desk and on a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_report import START_MS, about, attempt, failed_attempt, run, step

from batchyard.batch.jobs import JobState
from batchyard.engines.base import RunState
from batchyard.report.page import make_page

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.outside,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

#: A window of Chromium has at least 500 pixels, so the page is in a frame.
_FRAME = """<!doctype html><body>
<iframe width="WIDTH" height="3000" style="border: 0" srcdoc="PAGE"></iframe>
<script>
document.querySelector('iframe').onload = event => {
  const page = event.target.contentDocument;
  const box = e => {
    const r = e.getBoundingClientRect();
    return [r.left, r.top, r.right, r.bottom];
  };
  const charts = [...page.querySelectorAll('svg.chart')]
    .filter(svg => svg.getBoundingClientRect().width)
    .map(svg => ({
      name: svg.querySelector('title').textContent,
      frame: box(svg),
      scrolls: svg.parentNode.scrollWidth > svg.parentNode.clientWidth,
      texts: [...svg.querySelectorAll('text')].map(t => [t.textContent, ...box(t)]),
    }));
  document.body.setAttribute('data-seen', JSON.stringify({
    charts, width: page.documentElement.scrollWidth,
  }));
};
</script></body>"""


def report_page() -> str:
    long_name = "a-step-with-quite-a-long-name"
    steps = (
        step(long_name, size=1, succeeded=1),
        step("work", state=JobState.FAILED, size=60, succeeded=59, failed=1),
        step("after", state=JobState.FAILED, size=1, succeeded=0, failed=1, started_ms=None),
    )
    attempts = [
        attempt(0, step=long_name, ended_ms=START_MS + 2),
        *(attempt(index, ended_ms=START_MS + 102 * index + 150) for index in range(59)),
        failed_attempt(59, ended_ms=START_MS + 7_500),
    ]
    status = run(*steps, state=RunState.FAILED, ended_ms=START_MS + 8_000)
    return make_page(status, attempts, about(*steps))


def look_at(text: str, width: int, folder: Path) -> Any:
    """Return what the browser made of the charts of a page with that width."""
    assert CHROMIUM is not None
    # The page forbids scripts, and the frame inherits that.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    frame = _FRAME.replace("WIDTH", str(width)).replace("PAGE", html.escape(text))
    (folder / "frame.html").write_text(frame, encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,3100"),
            f"--user-data-dir={folder / 'profile'}",
            *("--dump-dom", f"file://{folder / 'frame.html'}"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    match = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert match, done.stderr[-2000:]
    return json.loads(html.unescape(match[1]))


@pytest.mark.parametrize("width", [400, 700, 1240])
def test_the_charts_fit_the_page_and_can_be_read(width: int, tmp_path: Path) -> None:
    seen = look_at(report_page(), width, tmp_path)
    assert seen["width"] <= width
    names = [chart["name"] for chart in seen["charts"]]
    assert names == ["Timeline of the children", "Durations of the children"]
    for chart in seen["charts"]:
        assert not chart["scrolls"]
        left, top, right, bottom = chart["frame"]
        assert 0 <= left and right <= width
        for text, x0, y0, x1, y1 in chart["texts"]:
            assert x0 >= left - 1 and x1 <= right + 1, f"{chart['name']}: {text} is cut"
            assert y0 >= top - 1 and y1 <= bottom + 1, f"{chart['name']}: {text} is cut"
            # Letters of 11 pixels; those of a scaled chart would have 4.
            assert y1 - y0 >= 11, f"{chart['name']}: {text} is too small"
