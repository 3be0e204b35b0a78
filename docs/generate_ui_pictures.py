"""Make the pictures of docs/ui.md from a real run in a real browser: docs/images/ui-*.png.

    python docs/generate_ui_pictures.py    needs Chromium, which .ci/ui-tools installs

The run takes half a minute. Some of its children fail, as in life.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chromium import Chromium

ROOT = Path(__file__).parents[1]

IMAGES = ROOT / "docs/images"
PIPELINE = """\
name: phantom
steps:
  - name: prepare
    command: sleep 0.5; echo 256 slices prepared
  - name: reconstruct
    needs: [prepare]
    command: python3 reconstruct.py $AWS_BATCH_JOB_ARRAY_INDEX
    array: 256
    memory: 256MiB
    retries: 1
  - name: denoise
    needs: [prepare]
    command: sleep 0.2; echo filter $AWS_BATCH_JOB_ARRAY_INDEX is ready
    array: 16
  - name: merge
    needs: [reconstruct, denoise]
    command: echo merged
"""
RECONSTRUCT = """\
import random, sys, time
slice_ = int(sys.argv[1])
chance = random.Random(slice_)
print(f"slice {slice_}: 180 projections, filter \\033[36mramp\\033[0m")
time.sleep(chance.lognormvariate(-2.2, 0.7))
for turn in range(1, 4):
    print(f"  iteration {turn}: residual {chance.random() / turn:.4f}")
if slice_ % 61 == 17:
    sys.exit("\\033[31mthe detector row 211 has no signal\\033[0m: cannot normalise")
print("\\033[32mdone\\033[0m")
"""


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests/ui"))
    from chromium import Chromium
    from ui_client import serve

    from batchyard import runs

    with tempfile.TemporaryDirectory(prefix="batchyard-pictures-") as name:
        folder = Path(name)
        (folder / "pipeline.yaml").write_text(PIPELINE)
        (folder / "reconstruct.py").write_text(RECONSTRUCT)
        command = [Path(sys.executable).parent / "batchyard", "run", "pipeline.yaml"]
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        home = folder / ".batchyard"
        while not runs.names(home):
            time.sleep(0.1)
        run = runs.names(home)[0]
        with serve(home) as page, Chromium(folder / "profile") as browser:
            take_pictures(browser, page.address, run, process)


def take_pictures(
    browser: Chromium, address: str, run: str, process: subprocess.Popen[bytes]
) -> None:
    browser.resize(1200, 1040)
    browser.open(f"{address}#/run/{run}/reconstruct")
    browser.wait_for("Number(document.querySelector('.lead').innerText.split(' ')[0]) > 150", 600)
    browser.run("document.querySelector('canvas').focus({preventScroll: true})")
    for _ in range(20):
        browser.press("ArrowRight")
    browser.wait_for("document.querySelector('.child pre').innerText.includes('reconstruct.py')")
    browser.picture(IMAGES / "ui-run.png", whole=False)
    process.wait()
    browser.wait_for("document.querySelector('.badge').innerText === 'FAILED'")
    browser.wait_for("document.querySelector('.charts svg.chart')")
    browser.resize(1200, 860, dark=True)
    browser.run(
        "(() => { const s = document.getElementById('colour'); s.value = 'seconds';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    browser.run("document.querySelector('canvas').scrollIntoView({block: 'start'})")
    browser.run("scrollBy(0, -110)")
    time.sleep(1)
    browser.picture(IMAGES / "ui-failures.png", whole=False)
    browser.resize(1200, 760)
    browser.run(f"location.hash = '#/log/{run}/reconstruct/17/2'")
    browser.wait_for("document.querySelector('pre.log').innerText.includes('no signal')")
    time.sleep(0.5)
    browser.picture(IMAGES / "ui-log.png", whole=False)


if __name__ == "__main__":
    main()
