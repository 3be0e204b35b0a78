"""`make bench`, part about the page: what it costs to look at runs, and how quickly they are shown.

- the rate of a run of short children without the page, and with three tabs that follow it, in turn;
  CPU time and memory of the page's server meanwhile. A tab is a client that reads the events: the
  time that a browser needs to draw them is that of the machine with the browser;
- with Chromium: the time from opening the address of a run to its drawn children, and the longest
  pause while the mouse moves over them.

Prints Markdown tables to stdout, progress to stderr. See docs/performance.md.
"""

from __future__ import annotations

import argparse
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
from urllib.parse import parse_qs, urlsplit

import machine

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
sys.path.insert(0, str(ROOT / "tests/ui"))  # the browser, and runs without executing them
RATE_SHARE, CPU_SHARE, MEMORY_MIB, PAINT_MS, PAUSE_MS = 0.95, 0.10, 150, 1000, 100
TABS = 3

#: In the page: when the children were drawn first, and the longest pause between two frames.
_OBSERVE = """
const seen = setInterval(() => {
  if (!document.querySelector('.legend li')) return;
  window.drawnAt = performance.now();
  clearInterval(seen);
}, 5);
window.longest = 0;
new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
  window.longest = Math.max(window.longest, entry.duration);
})).observe({ type: 'longtask' });
"""


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


def measure_round(
    page: PageProcess, folder: Path, size: int, number: int
) -> tuple[float, float, float]:
    """Return the rate without tabs, the rate with tabs, and the CPU share of the server."""
    rates = {}
    share = 0.0
    for tabs in (0, TABS) if number % 2 else (TABS, 0):
        name = f"bench{'with' if tabs else 'without'}{number}"
        run, process, began_s = run_list(folder, size, name)
        cpu_s = page.cpu_s()
        with ExitStack() as stack:
            for _ in range(tabs):
                stack.enter_context(page.tab(run, name))
            process.wait()
            wall_s = time.monotonic() - began_s
        rates[tabs] = size / wall_s
        if tabs:
            share = (page.cpu_s() - cpu_s) / wall_s
    print(
        f"round {number + 1}: {rates[0]:,.0f}/s without, {rates[TABS]:,.0f}/s with tabs; "
        f"server {share:.1%} of a core, {page.peak_mib():.0f} MiB",
        file=sys.stderr,
    )
    return rates[0], rates[TABS], share


def measure_rates(folder: Path, size: int, rounds: int) -> Sequence[tuple[float, float, float]]:
    """Return for each round: rate without tabs, rate with tabs, CPU share of the server."""
    with PageProcess(folder / ".batchyard") as page:
        rows = [measure_round(page, folder, size, number) for number in range(rounds)]
        peak_mib = page.peak_mib()
    ratio = median(with_tabs / without for without, with_tabs, _ in rows)
    share = median(share for *_, share in rows)
    print(f"\n{size:,} children of `/bin/true`, {rounds} rounds in turn:\n")
    print("| what | measured | bar |\n|-|-|-|")
    print(f"| rate with {TABS} tabs / without | {ratio:.1%} | above {RATE_SHARE:.0%} |")
    print(f"| CPU of the server | {share:.1%} of a core | below {CPU_SHARE:.0%} |")
    print(f"| memory of the server | {peak_mib:.0f} MiB | below {MEMORY_MIB} MiB |")
    return rows


def measure_browser(folder: Path, sizes: Sequence[int]) -> None:
    """Print how long a browser needs to show a run, and to follow the mouse."""
    from chromium import CHROMIUM, Chromium
    from large_runs import make_large_run

    if CHROMIUM is None:
        print("\nNo Chromium is installed: .ci/ui-tools installs it.")
        return
    records = {size: make_large_run(folder / ".batchyard", size) for size in sizes}
    print("\n| children | opened to drawn | longest pause while hovering |\n|-|-|-|")
    with PageProcess(folder / ".batchyard") as page, Chromium(folder / "profile") as browser:
        browser.resize(1400)
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=_OBSERVE)
        browser.open(page.address)
        browser.wait_for("document.querySelector('tbody tr')")
        for size, record in records.items():
            times_ms = []
            for _ in range(5):
                browser.open("about:blank")
                browser.open(f"http://127.0.0.1:{page.port}/#/run/{record.run_id}/work")
                times_ms.append(browser.wait_for("window.drawnAt"))
            time.sleep(1)
            box = browser.run(
                "(() => { const b = document.querySelector('canvas.grid').getBoundingClientRect();"
                " return [b.left, b.top, b.width, b.height]; })()"
            )
            browser.run("window.longest = 0")
            for step in range(200):
                browser.move(box[0] + box[2] * (step % 20) / 20, box[1] + box[3] * step / 200)
            pause_ms = browser.run("window.longest")
            pause = f"{pause_ms:.0f} ms" if pause_ms else "below 50 ms"
            drawn = f"{median(times_ms):.0f} ms (bar {PAINT_MS})"
            print(f"| {size:,} | {drawn} | {pause} (bar {PAUSE_MS}) |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--children", type=int, default=100_000, help="0: only the browser")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(machine.describe(os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="batchyard-ui-") as folder:
        if options.children:
            measure_rates(Path(folder), options.children, options.rounds)
        measure_browser(Path(folder), (1, 10_000, 100_000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
