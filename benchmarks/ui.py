"""`make bench`, part about the page: what it costs to look at runs, and how quickly they are shown.

- the rate of a run of short children without the page, and with three tabs that follow it, in
  turn. A tab is a client that reads the events, and asks for the charts as a browser does: the time
  that a browser needs to draw them is that of the machine with the browser;
- CPU time and memory of the page's server while three tabs follow a run of 100,000 children;
- with Chromium, of each view with 1, 10,000 and 100,000 children: the first paint, the time until
  what the view is about is drawn, and the longest pause while the mouse moves and the page scrolls.

Prints Markdown tables with the bars to stdout, progress to stderr; takes less than five minutes.
See docs/performance.md and docs/ui.md.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import machine

if TYPE_CHECKING:
    from chromium import Chromium

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
sys.path.insert(0, str(ROOT / "tests/ui"))  # the browser, and runs without executing them
RATE_SHARE, CPU_SHARE, MEMORY_MIB, PAINT_MS, PAUSE_MS = 0.95, 0.10, 150, 1000, 100
TABS = 3
#: Seconds between two drawings of the charts of a running run, as in the page.
CHARTS_S = 5.0
MIN_ROUNDS, OPENINGS = 3, 3

#: In the page: the longest task of its thread since `longest` was set to 0.
_OBSERVE = """
window.longest = 0;
new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
  window.longest = Math.max(window.longest, entry.duration);
})).observe({ type: 'longtask' });
"""
#: In the page: when an expression became true, in milliseconds since the address was opened.
_WAIT = """
new Promise((done) => {
  const look = () => {
    let isThere = false;
    try { isThere = Boolean(%s); } catch { }
    if (isThere) done(performance.now()); else setTimeout(look, 5);
  };
  look();
})
"""
#: View -> the address behind #, and what is there when it is drawn.
VIEWS = {
    "runs": ("/", "document.querySelectorAll('table.runs tbody tr').length > 2"),
    "run": (
        "/run/{run}/work",
        "document.querySelector('canvas.grid').width > 1 && document.querySelector('.legend li')",
    ),
    "failures": ("/run/{run}/work", "document.querySelector('{failure}')"),
    "timeline": ("/run/{run}/work", "document.querySelector('.charts svg.wide')"),
    "log": ("/log/{run}/work/{failed}", "document.querySelector('pre.log').textContent"),
    "comparison": ("/compare/{run}/{other}", "document.querySelector('table.compare tbody tr')"),
}
SIZES = (1, 10_000, 100_000)


class PageProcess:
    """`batchyard ui` as a process of its own."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [BIN / "batchyard", "ui", "--no-browser", "--home", home],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        parts = urlsplit(self.address)
        self.port = parts.port or 0
        token = parse_qs(parts.query)["token"][0]
        head = self._send(f"GET /?token={token} HTTP/1.1", "").recv(65536).decode()
        cookie = head.partition("Set-Cookie: ")[2].partition(";")[0]
        self._cookie = f"Cookie: {cookie}\r\n"

    def _send(self, request: str, cookie: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        host = f"Host: 127.0.0.1:{self.port}\r\n"
        connection.sendall(f"{request}\r\n{host}{cookie}\r\n".encode())
        return connection

    @contextmanager
    def tab(self, run: str, step: str) -> Iterator[list[int]]:
        """Follow a run as a tab does; the list gets the number of bytes of each push."""
        pushes: list[int] = []
        connection = self._send(f"GET /api/run?run={run}&step={step} HTTP/1.1", self._cookie)

        def read() -> None:
            while data := connection.recv(1 << 20):
                pushes.append(len(data))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield pushes
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            thread.join()
            connection.close()

    def draw_charts(self, run: str) -> None:
        connection = self._send(f"GET /api/charts?run={run}&state=RUNNING HTTP/1.1", self._cookie)
        with connection:
            while connection.recv(1 << 20):
                pass

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def __enter__(self) -> PageProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()


def run_list(folder: Path, size: int, name: str) -> tuple[str, subprocess.Popen[bytes], float]:
    """Start a run of a list of short commands; return its id, process and start."""
    file = folder / f"{name}.txt"
    file.write_text("/bin/true\n" * size)
    began_s = time.monotonic()
    process = subprocess.Popen(
        [BIN / "batchyard", "run", file, "--home", folder / ".batchyard"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    runs = folder / ".batchyard/runs"
    while True:
        names = [path.name for path in runs.glob(f"{name}-*")] if runs.is_dir() else []
        if names:
            return names[0], process, began_s
        time.sleep(0.005)


def look_until_end(
    page: PageProcess, run: str, name: str, process: subprocess.Popen[bytes]
) -> None:
    """Follow a run with three tabs until its process ends."""
    with ExitStack() as stack:
        for _ in range(TABS):
            stack.enter_context(page.tab(run, name))
        while True:
            try:
                process.wait(CHARTS_S)
                return
            except subprocess.TimeoutExpired:
                # All tabs ask at about the same time, and get the same drawing.
                page.draw_charts(run)


def measure_round(page: PageProcess, folder: Path, size: int, number: int) -> tuple[float, float]:
    """Return the rate without tabs, and the rate with tabs."""
    rates = {}
    for tabs in (0, TABS) if number % 2 else (TABS, 0):
        name = f"bench{'with' if tabs else 'without'}{number}"
        run, process, began_s = run_list(folder, size, name)
        if tabs:
            look_until_end(page, run, name, process)
        else:
            process.wait()
        rates[tabs] = size / (time.monotonic() - began_s)
    print(
        f"round {number + 1}: {rates[0]:,.0f}/s without, {rates[TABS]:,.0f}/s with tabs",
        file=sys.stderr,
    )
    return rates[0], rates[TABS]


def verdict(is_reached: bool) -> str:
    return "pass" if is_reached else "MISSED"


def measure_rates(folder: Path, size: int, seconds: float) -> None:
    """Print the rates with and without tabs, in rounds that take so many seconds together."""
    began_s = time.monotonic()
    rows: list[tuple[float, float]] = []
    with PageProcess(folder / ".batchyard") as page:
        while len(rows) < MIN_ROUNDS or time.monotonic() - began_s < seconds:
            rows.append(measure_round(page, folder, size, len(rows)))
    ratios = sorted(with_tabs / without for without, with_tabs in rows)
    ratio = median(ratios)
    print(f"\n{len(rows)} rounds of {size:,} children of `/bin/true`, with tabs and without:\n")
    print("| what | measured | bar | |\n|-|-|-|-|")
    print(
        f"| rate with {TABS} tabs / without | {ratio:.1%} ({ratios[0]:.0%} to {ratios[-1]:.0%}) "
        f"| above {RATE_SHARE:.0%} | {verdict(ratio > RATE_SHARE)} |"
    )


def measure_server(folder: Path, size: int) -> None:
    """Print what the server needs while three tabs follow a long run of short children."""
    with PageProcess(folder / ".batchyard") as page:
        run, process, began_s = run_list(folder, size, "long")
        before_s = page.cpu_s()
        look_until_end(page, run, "long", process)
        wall_s = time.monotonic() - began_s
        share, peak_mib = (page.cpu_s() - before_s) / wall_s, page.peak_mib()
    rate = size / wall_s
    print(
        f"| CPU of the server, {size:,} children at {rate:,.0f}/s | {share:.1%} of a core "
        f"| below {CPU_SHARE:.0%} | {verdict(share < CPU_SHARE)} |"
    )
    print(
        f"| memory of the server | {peak_mib:.0f} MiB | below {MEMORY_MIB} MiB "
        f"| {verdict(peak_mib < MEMORY_MIB)} |"
    )


def measure_browser(folder: Path, sizes: Sequence[int]) -> None:
    """Print how long a browser needs to show each view, and to follow the mouse in it."""
    from chromium import CHROMIUM, Chromium
    from large_runs import make_large_run

    if CHROMIUM is None:
        print("\nNo Chromium is installed: .ci/ui-tools installs it.")
        return
    records = {size: make_large_run(folder / ".batchyard", size).run_id for size in sizes}
    print(
        f"\n| view | children | first paint (bar {PAINT_MS} ms) | drawn first, and again "
        f"| longest pause, hovering and scrolling (bar {PAUSE_MS} ms) | |\n|-|-|-|-|-|-|"
    )
    with PageProcess(folder / ".batchyard") as page, Chromium(folder / "profile") as browser:
        browser.resize(1400)
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=_OBSERVE)
        browser.open(page.address)
        browser.wait_for("document.querySelector('tbody tr')")
        for view, size in itertools.product(VIEWS, sizes):
            if view == "failures" and size == 1:
                continue  # its only child succeeds
            words = {
                "run": records[size],
                "other": records[sizes[0]],
                "failed": 0 if size == 1 else 96,
                "failure": "article pre span",
            }
            address, is_drawn = (text.format(**words) for text in VIEWS[view])
            times = [
                measure_opening(browser, page.port, address, is_drawn) for _ in range(OPENINGS)
            ]
            paint_ms = median(paint_ms for paint_ms, _ in times)
            first_ms, *later_ms = (drawn_ms for _, drawn_ms in times)
            pause_ms = measure_pause(browser)
            pause = f"{pause_ms:.0f} ms" if pause_ms else "below 50 ms"
            is_reached = paint_ms < PAINT_MS and pause_ms < PAUSE_MS
            drawn = f"{first_ms:.0f}, {median(later_ms):.0f} ms"
            print(
                f"| {view} | {size:,} | {paint_ms:.0f} ms | {drawn} | {pause} "
                f"| {verdict(is_reached)} |"
            )


def measure_opening(
    browser: Chromium, port: int, address: str, is_drawn: str
) -> tuple[float, float]:
    """Return the milliseconds from opening an address to its first paint, and to the drawn view."""
    browser.open("about:blank")
    browser.open(f"http://127.0.0.1:{port}/#{address}")
    browser.wait_for("document.getElementById('view')")
    drawn_ms = browser.run(_WAIT % is_drawn)
    paint_ms = browser.wait_for(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    return paint_ms, drawn_ms


def measure_pause(browser: Chromium) -> float:
    """Return the longest task while the mouse moves over the view and scrolls; 0 below 50 ms."""
    browser.run("new Promise(done => setTimeout(done, 1000))")  # what comes after the drawing
    browser.run("window.longest = 0")
    for step in range(60):
        browser.move(100 + 1200 * (step % 20) / 20, 200 + 10 * step)
    for step in range(20):
        browser.scroll(600, 400, 200 if step < 10 else -200)
    browser.run("new Promise(done => setTimeout(done, 200))")
    pause_ms = browser.run("window.longest")
    assert isinstance(pause_ms, int | float)
    return pause_ms


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--children", type=int, default=100_000, help="0: only the browser")
    parser.add_argument("--seconds", type=float, default=100, help="for the rates, at least")
    options = parser.parse_args()
    print(machine.describe(os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="batchyard-ui-") as folder:
        if options.children:
            measure_rates(Path(folder), max(1, options.children // 8), options.seconds)
            measure_server(Path(folder), options.children)
        measure_browser(Path(folder), SIZES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
