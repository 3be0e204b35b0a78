"""The HTML page in a real browser: positions of charts, marks and texts; light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "bench"))

from bench_values import measurement, on_gpu
from bench_values import results as made

from batchyard.bench.page import page
from batchyard.bench.results import Peak
from batchyard.ec2_prices import load_prices

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.outside,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

#: what the browser made of the page, as JSON in an attribute of the body
_LOOK = """
<script>
const box = e => {
  const r = e.getBoundingClientRect();
  return [r.left, r.top, r.right, r.bottom];
};
const charts = [...document.querySelectorAll('svg.chart')].map(svg => ({
  name: svg.querySelector('title').textContent,
  frame: box(svg),
  texts: [...svg.querySelectorAll('text')].filter(t => t.textContent).map(
    t => [t.lastChild.textContent, ...box(t)]),
  marks: [...svg.querySelectorAll('[class^=mark], .bar, .letter')].map(m => [
    (m.querySelector('title') || m.parentNode.querySelector('title') || {}).textContent || '',
    ...box(m),
    getComputedStyle(m).fill]),
}));
const body = getComputedStyle(document.body);
document.body.setAttribute('data-seen', JSON.stringify({
  charts, paper: body.backgroundColor, ink: body.color, wide: document.documentElement.scrollWidth,
  room: document.documentElement.clientWidth,
}));
</script>
"""


#: as a workload of somebody's own may have it
LONG = "512 x 512 pixels, 180 angles, 367 detector elements, single precision, unfiltered"


def results_of_both() -> list[Any]:
    ours = [measurement(size=size, seconds=(size / 1000) ** 3) for size in (500, 1000, 5000)]
    ours += [
        measurement("blur", 2048, 0.03, title="Gaussian blur, sigma 5", label="2048 x 2048 x 3")
    ]
    theirs = [on_gpu(one, (one.median_s or 1) / 25, (one.median_s or 1) / 25 + 0.2) for one in ours]
    return [
        made("cpu", *ours, instance_type="c7i.4xlarge"),
        made("gpu", *theirs, instance_type="g5.xlarge"),
    ]


def results_of_three() -> list[Any]:
    """Return results of similar devices, whose marks and texts are near to one another."""
    cpu = results_of_both()[0]
    long = measurement(
        "mine",
        512,
        0.5,
        title="My own reconstruction of a volume from projections " * 4,
        label=LONG,
    )
    ours = (
        *cpu.measurements,
        long,
        measurement("wide", 8, 0.2, label="八枚の画像を縮小して灰色にする", flops=None),
    )
    near = [replace(one, warm_s=tuple(s * 1.04 for s in one.warm_s)) for one in ours]
    return [
        replace(cpu, measurements=ours, peak=Peak(24.0, 20.0)),
        replace(cpu, measurements=tuple(near), instance_type="c7i.8xlarge", peak=Peak(30.0, 17.0)),
        replace(
            cpu, measurements=ours, instance_type=None, stands_for="gpu", peak=Peak(31.5, 20.0)
        ),
    ]


RESULTS = {"two": results_of_both, "three": results_of_three}
#: results, light or dark, and how wide the window is
VIEWS = [
    ("two", "light", 1240),
    ("two", "dark", 1240),
    ("three", "light", 1240),
    ("three", "dark", 480),
]


@pytest.fixture(scope="module", params=VIEWS, ids=lambda view: "-".join(map(str, view)))
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    assert CHROMIUM is not None
    which, scheme, width = request.param
    folder = tmp_path_factory.mktemp("browser")
    text = page(RESULTS[which](), 1_700_000_000_000, load_prices())
    assert "<script" not in text
    # The page forbids scripts; the copy that is looked at has one, and no rule against it.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace(
        "</body>", f"{_LOOK}</body>"
    )
    (folder / "page.html").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            *(
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--window-size={width},2000",
            ),
            f"--user-data-dir={folder / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            *("--dump-dom", f"file://{folder / 'page.html'}"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    match = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert match, done.stderr[-2000:]
    value = json.loads(html.unescape(match[1]))
    return {**value, "results": which, "scheme": scheme, "width": width}


def test_all_charts_are_there(seen: Any) -> None:
    names = [chart["name"] for chart in seen["charts"]]
    ups, candidates = {
        "two": (["Speed-up of GPU over CPU"], ["Candidates on the CPU"]),
        # A stand-in has no speed-up.
        "three": (
            [],
            ["Candidates on the CPU"] * 2 + ["Candidates on the CPU standing in for a GPU"],
        ),
    }[seen["results"]]
    assert names == [*ups, "Time of one operation", "Roofline", *candidates]
    # Charts and tables scroll by themselves; the page never sideways.
    assert seen["wide"] <= seen["room"] <= max(seen["width"], 500)


def test_everything_is_inside_its_chart(seen: Any) -> None:
    for chart in seen["charts"]:
        left, top, right, bottom = chart["frame"]
        assert right - left > (900 if seen["width"] > 1000 else 700) and bottom - top > 100
        for what, x0, y0, x1, y1, *_ in (*chart["texts"], *chart["marks"]):
            inside = x0 >= left - 1 and x1 <= right + 1 and y0 >= top - 1 and y1 <= bottom + 1
            assert inside, f"{chart['name']}: {what} is outside"


def test_no_text_lies_on_another(seen: Any) -> None:
    for chart in seen["charts"]:
        # A letter's box is higher than the letter, by about a quarter above and below.
        scale = (chart["frame"][2] - chart["frame"][0]) / 1080
        texts = chart["texts"]
        for n, (one, a0, b0, a1, b1) in enumerate(texts):
            for other, c0, d0, c1, d1 in texts[n + 1 :]:
                apart = a1 <= c0 + 1 or c1 <= a0 + 1 or b1 <= d0 + 4 * scale or d1 <= b0 + 4 * scale
                assert apart, f"{chart['name']}: {one!r} and {other!r} overlap"


def test_no_number_of_the_roofline_lies_on_a_mark(seen: Any) -> None:
    chart = next(chart for chart in seen["charts"] if chart["name"] == "Roofline")
    numbers = [text for text in chart["texts"] if text[0] in ("1", "2", "3", "4", "5", "6")]
    assert len(chart["marks"]) >= 8
    for name, a0, b0, a1, b1 in numbers:
        for mark, c0, d0, c1, d1, _ in chart["marks"]:
            x, y = (c0 + c1) / 2, (d0 + d1) / 2
            assert not (a0 < x < a1 and b0 < y < b1), f"{name} lies on {mark}"


def test_a_long_size_is_shown_as_far_as_there_is_room(seen: Any) -> None:
    chart = next(chart for chart in seen["charts"] if chart["name"] == "Time of one operation")
    shown = [text[0] for text in chart["texts"] if text[0].startswith(LONG[:20])]
    # Only the third result has such a size. The chart shows all of it as a tooltip.
    assert len(shown) == (seen["results"] != "two")
    assert all("…" in one or one == LONG for one in shown)


def test_longer_times_are_further_to_the_right(seen: Any) -> None:
    chart = next(chart for chart in seen["charts"] if chart["name"] == "Time of one operation")
    places = {name.partition(" (")[0]: (x0 + x1) / 2 for name, x0, _, x1, *_ in chart["marks"]}
    cpu = [
        places[f"Matmul, {n} x {n}, CPU: c7i.4xlarge: {t}"]
        for n, t in ((500, "125 ms"), (1000, "1.00 s"), (5000, "125 s"))
    ]
    # On a logarithmic axis, the distances of factors 8 and 125 are as 1 to log 125 / log 8.
    assert (cpu[2] - cpu[1]) / (cpu[1] - cpu[0]) == pytest.approx(2.32, abs=0.05)


def test_light_and_dark(seen: Any) -> None:
    paper, ink = (sum(map(int, re.findall(r"\d+", seen[name])[:3])) for name in ("paper", "ink"))
    assert (paper < 150 < 600 < ink) if seen["scheme"] == "dark" else (ink < 150 < 600 < paper)
