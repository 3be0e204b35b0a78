"""Measure what the samples of running children cost: CPU time of the sampler's thread.

Each child is a shell with two processes below it. A look is taken as often as a run takes it, and
as many times as asked for; the part of a core is the CPU time of a look divided by the interval.
Prints a Markdown table to stdout.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, cast

import machine
from batchyard.embedded.attempts import Attempt
from batchyard.embedded.sampled_attempts import AttemptSampler, RunningAttempt
from batchyard.sampling import processes
from batchyard.sampling.sampler import INTERVAL_S

_COUNTS = (2, 16, 64)
_CHILD = "sleep 600 & sleep 600 & wait"


class _Task:
    """What the sampler needs of a task."""

    def __init__(self, index: int) -> None:
        self.step, self.index_in_step, self.attempt = "work", index, 1
        self.has_several_commands = False
        self.gpus: tuple[int, ...] = ()
        self.environ: dict[bytes, bytes] = {}


class _Runner:
    def __init__(self, children: list[subprocess.Popen[bytes]]) -> None:
        self.lock = threading.Lock()
        self._running = []
        for index, child in enumerate(children):
            attempt = Attempt(cast(Any, _Task(index)), cast(Any, None))
            attempt.started_ms = int(time.time() * 1000) - 60_000
            self._running.append(RunningAttempt(attempt, child.pid))

    def list_running(self) -> list[RunningAttempt]:
        return self._running


def measure(count: int, looks: int, folder: Path) -> list[float]:
    """Return the CPU time of looks at ``count`` children."""
    children = [
        subprocess.Popen(["sh", "-c", _CHILD], start_new_session=True) for _ in range(count)
    ]
    try:
        sampler = AttemptSampler(_Runner(children), folder / "running.json")
        times_s = []
        for _ in range(looks):
            began_s = time.thread_time()
            sampler.take_samples()
            times_s.append(time.thread_time() - began_s)
            time.sleep(0.1)
        return times_s
    finally:
        for child in children:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=60)
    arguments = parser.parse_args()
    print(f"{machine.describe(len(os.sched_getaffinity(0)))}\n")
    print("| running children | processes of the machine | CPU time of a look | part of a core |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for count in _COUNTS:
            times_s = measure(count, arguments.looks, Path(folder))
            pids = [name for name in processes.list_names("/proc") if name.isdigit()]
            look_s = statistics.mean(times_s)
            total = len(pids) + 3 * count
            print(f"| {count} | {total} | {look_s * 1000:.1f} ms | {look_s / INTERVAL_S:.2%} |")


if __name__ == "__main__":
    main()
