"""What disturbs a soak: an endpoint that is killed and started again, and killed processes."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import statistics
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloud_lab
from emulator_endpoint import Endpoint

#: The environment variable by which the processes of a soak's commands are known.
MARK = "SOAK_MARK"
_MAX_CUT_ANSWERS = 3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class MortalEndpoint:
    """An endpoint that can be killed and comes back at the same address, with the same folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = ("--port", str(free_port()), *arguments)
        self._lock = threading.Lock()
        #: (from, to) in seconds since 1970: when it did not answer.
        self.absences: list[tuple[float, float]] = []
        self.calls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        #: Megabytes, one list for each life.
        self.memory_mb: list[list[float]] = []
        self.current = self._start()

    def _start(self) -> Endpoint:
        endpoint = Endpoint(self._folder, *self._arguments, environ={"PATH": cloud_lab.PATH})
        self.memory_mb.append([])
        return endpoint

    @property
    def url(self) -> str:
        return str(self.current.url)

    def kill(self) -> float:
        """Kill the endpoint and start it again. Returns the time of the kill."""
        with self._lock:
            self._collect_counts()
            killed_s = time.time()
            # Until it is back, it may be gone at any time.
            self.absences.append((killed_s, float("inf")))
            self.current.stop(signal.SIGKILL)
            self.current = self._start()
            self.absences[-1] = (killed_s, time.time())
            return killed_s

    def was_absent(self, from_s: float, to_s: float) -> bool:
        return any(gone_s <= to_s and from_s <= back_s for gone_s, back_s in self.absences)

    def sample_memory(self) -> None:
        with self._lock:
            self.memory_mb[-1].append(read_memory_mb(self.current.process.pid))

    def stop(self) -> None:
        with self._lock:
            self._collect_counts()
            self.current.stop()

    def _collect_counts(self) -> None:
        for verb, counts in (("calls", self.calls), ("faults", self.faults)):
            with urllib.request.urlopen(f"{self.current.url}/_batchyard/{verb}") as answer:
                counts.update(json.load(answer))


def read_memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def summarize_memory(lives_mb: list[list[float]]) -> tuple[float, float, float, float]:
    """Return first, median, last and highest of the longest life.

    The first tenth of the samples is left out: by then all modules are loaded.
    """
    samples = max(lives_mb, key=len)
    samples = samples[len(samples) // 10 :] or [0.0]
    return samples[0], statistics.median(samples), samples[-1], max(samples)


# -- processes of commands ------------------------------------------------------------------------


def find_processes(mark: str) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    """Yield the process id, arguments and environment of the soak's workers and commands."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        folder = Path(entry.path)
        try:
            environ = _split(folder / "environ")
            if f"{MARK}={mark}" in environ:
                variables = dict(text.partition("=")[::2] for text in environ)
                yield int(entry.name), _split(folder / "cmdline"), variables
        except OSError:  # It has ended, or belongs to another user.
            continue


def _split(file: Path) -> list[str]:
    return file.read_text(errors="replace").split("\0")


def kill_worker(mark: str, dice: random.Random, share: float) -> tuple[str, int] | None:
    """Kill one of the workers and commands, each with the probability ``share``.

    Returns the id of its job and its attempt, or None if chance spares all.
    """
    processes = {
        pid: (arguments, variables)
        for pid, arguments, variables in find_processes(mark)
        if any("batchyard-worker" in word or word.endswith("/task.sh") for word in arguments)
        and "AWS_BATCH_JOB_ID" in variables
    }
    # A fork has the arguments of its parent until it becomes another program. Its kill is none of
    # the worker or command, which goes on.
    victims = [
        (pid, variables)
        for pid, (arguments, variables) in processes.items()
        if processes.get(_read_parent(pid), (None,))[0] != arguments
    ]
    if dice.random() >= share * len(victims):
        return None
    pid, variables = dice.choice(victims)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return variables["AWS_BATCH_JOB_ID"], int(variables["AWS_BATCH_JOB_ATTEMPT"])


def _read_parent(pid: int) -> int:
    """Return the id of a process's parent; 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("PPid:"):
                return int(line.split()[1])
    return 0


def read_jobs(batch: Any, run: str) -> list[dict[str, Any]]:
    """Return what AWS Batch tells about the jobs of a run, with the children of arrays."""
    for _ in range(_MAX_CUT_ANSWERS):
        # An endpoint that is killed in the middle of an answer leaves a part without members.
        with suppress(KeyError):
            return _read_jobs(batch, run)
    return _read_jobs(batch, run)


def _read_jobs(batch: Any, run: str) -> list[dict[str, Any]]:
    summaries = []
    for queue in ("spot", "steady"):
        pages = batch.get_paginator("list_jobs").paginate(
            jobQueue=queue, filters=[{"name": "JOB_NAME", "values": [f"{run}-*"]}]
        )
        summaries += [job for page in pages for job in page["jobSummaryList"]]
    ids = []
    for summary in summaries:
        ids.append(summary["jobId"])
        size = summary.get("arrayProperties", {}).get("size", 0)
        ids += [f"{summary['jobId']}:{index}" for index in range(size)]
    jobs: list[dict[str, Any]] = []
    for start in range(0, len(ids), 100):
        jobs += batch.describe_jobs(jobs=ids[start : start + 100])["jobs"]
    return jobs
