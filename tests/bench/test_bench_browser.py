"""The page in a real browser: charts in their frames, marks where the times are, text not on text, light and dark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "bench"))

from bench_values import measurement, on_gpu
from bench_values import results as made

from batchyard.bench.page import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]

#: what the browser made of the page, as JSON in an attribute of the body
_LOOK = """
<script>
const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const charts = [...document.querySelectorAll('svg.chart')].map(svg => ({
  name: svg.querySelector('title').textContent,
  frame: box(svg),
  texts: [...svg.querySelectorAll('text')].filter(t => t.textContent).map(t => [t.textContent, ...box(t)]),
  marks: [...svg.querySelectorAll('[class^=mark], .bar, .letter')].map(m => [
    (m.querySelector('title') || m.parentNode.querySelector('title') || {}).textContent || '', ...box(m),
    getComputedStyle(m).fill]),
}));
const body = getComputedStyle(document.body);
document.body.setAttribute('data-seen', JSON.stringify({
  charts, paper: body.backgroundColor, ink: body.color, wide: document.documentElement.scrollWidth,
}));
</script>
"""


def results_of_both() -> list[Any]:
    ours = [measurement(size=size, seconds=(size / 1000) ** 3) for size in (500, 1000, 5000)]
    ours += [measurement("blur", 2048, 0.03, title="Gaussian blur, sigma 5", label="2048 x 2048 x 3")]
    theirs = [on_gpu(one, (one.median_s or 1) / 25, (one.median_s or 1) / 25 + 0.2) for one in ours]
    return [
        made("cpu", *ours, instance_type="c7i.4xlarge"),
        made("gpu", *theirs, instance_type="g5.xlarge"),
    ]


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    assert CHROMIUM is not None
    folder = tmp_path_factory.mktemp("browser")
    text = page(results_of_both(), 1_700_000_000_000)
    assert "<script" not in text
    # The page forbids scripts; the copy that is looked at has one, and no rule against it.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", f"{_LOOK}</body>")
    (folder / "page.html").write_text(text, encoding="utf-8")
    scheme = "0" if request.param == "dark" else "1"
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1240,2000"),
            *(f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={scheme}"),
            *("--dump-dom", f"file://{folder / 'page.html'}"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    match = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert match, done.stderr[-2000:]
    value = json.loads(match[1].replace("&quot;", '"').replace("&amp;", "&"))
    return {**value, "scheme": request.param}


def test_all_charts_are_there(seen: Any) -> None:
    names = [chart["name"] for chart in seen["charts"]]
    assert names == ["Speed-up of GPU over CPU", "Time of one operation", "Roofline", "Candidates on the CPU"]
    assert seen["wide"] <= 1240


def test_everything_is_inside_its_chart(seen: Any) -> None:
    for chart in seen["charts"]:
        left, top, right, bottom = chart["frame"]
        assert right - left > 900 and bottom - top > 100
        for what, x0, y0, x1, y1, *_ in (*chart["texts"], *chart["marks"]):
            inside = x0 >= left - 1 and x1 <= right + 1 and y0 >= top - 1 and y1 <= bottom + 1
            assert inside, f"{chart['name']}: {what} is outside"


def test_no_text_lies_on_another(seen: Any) -> None:
    for chart in seen["charts"]:
        texts = chart["texts"]
        for n, (one, a0, b0, a1, b1) in enumerate(texts):
            for other, c0, d0, c1, d1 in texts[n + 1 :]:
                apart = a1 <= c0 + 1 or c1 <= a0 + 1 or b1 <= d0 + 4 or d1 <= b0 + 4
                assert apart, f"{chart['name']}: {one!r} and {other!r} overlap"


def test_longer_times_are_further_to_the_right(seen: Any) -> None:
    chart = next(chart for chart in seen["charts"] if chart["name"] == "Time of one operation")
    places = {name.partition(" (")[0]: (x0 + x1) / 2 for name, x0, _, x1, *_ in chart["marks"]}
    cpu = [
        places[f"Matmul, {n} x {n}, CPU: c7i.4xlarge: {t}"]
        for n, t in ((500, "125 ms"), (1000, "1.00 s"), (5000, "125 s"))
    ]
    # A factor of 8, and one of 125: on a logarithmic axis their distances are as 1 to log 125 / log 8.
    assert (cpu[2] - cpu[1]) / (cpu[1] - cpu[0]) == pytest.approx(2.32, abs=0.05)


def test_light_and_dark(seen: Any) -> None:
    paper, ink = (sum(map(int, re.findall(r"\d+", seen[name])[:3])) for name in ("paper", "ink"))
    assert (paper < 150 < 600 < ink) if seen["scheme"] == "dark" else (ink < 150 < 600 < paper)
