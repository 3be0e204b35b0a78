"""Runs of any size without executing them: their rows are written into the store directly."""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import closing
from pathlib import Path

from batchyard import engines, operations
from batchyard import plan as planning
from batchyard.batch.jobs import JobState, StatusReason
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.engines.base import Offer, RunRecord, RunRequest
from batchyard.pipeline import Need, Pipeline, Step

#: Every so many-th child has failed, with this exit code.
FAILING = {97: 3, 501: 137}
SLOTS = 4
#: From when to when after the start nothing runs, in milliseconds.
GAP_MS = (200_000, 230_000)


def make_large_run(home: Path, size: int, *, name: str = "large") -> RunRecord:
    """Record a run that is over: `prepare`, `work` with ``size`` children, and `collect`."""
    steps = (
        Step("prepare", command="prepare --all"),
        Step(
            "work",
            commands=tuple(f"simulate --seed {number}" for number in range(size)),
            array=size,
            needs=(Need("prepare"),),
            retries=1,
        ),
        Step("collect", command="collect", needs=(Need("work"),)),
    )
    pipeline = Pipeline(name, steps)
    offer = Offer(cpus=4, memory_mib=8192, workspace=str(home.parent))
    request = RunRequest(planning.make(pipeline), pipeline, home, offer)
    record, _ = operations.begin(engines.load("local"), request)
    now_ms = int(time.time() * 1000) - 600_000
    attempts = list(make_attempts(size, now_ms))
    with closing(Store.open(record.folder.database)) as store:
        rows = store.jobs()
        failed = sum(row.state == JobState.FAILED for row in attempts)
        jobs = [
            end(rows[0], now_ms, 1, 0),
            end(rows[1], now_ms, size - failed, failed, attempts=len(attempts)),
            end(rows[2], now_ms, int(not failed), int(bool(failed)), attempts=int(not failed)),
        ]
        first = AttemptRow(0, 0, 1, *succeeded(now_ms, 900), 0.3, 0.1, 20_000)
        store.commit(
            jobs=jobs,
            attempts=[first, *attempts],
            values=[
                ("state", "FAILED" if failed else "SUCCEEDED"),
                ("started_ms", str(now_ms)),
                ("ended_ms", str(now_ms + 500_000)),
            ],
        )
    os.makedirs(record.folder.logs / "work", exist_ok=True)
    failing = next((row.child for row in attempts if row.state == JobState.FAILED), 0)
    path = record.folder.log_of("work", failing, 1 if not failed else 2)
    path.write_text("reading\n\x1b[31mno space left on device\x1b[0m\n")
    return record


def make_attempts(size: int, now_ms: int) -> list[AttemptRow]:
    """Return attempts of children that share SLOTS slots, with a gap in all of them."""
    chance = random.Random(1)
    # All slots together are busy for 360 of 400 seconds.
    scale = min(1.0, SLOTS * 360_000 / size / 3570)
    free_ms = [now_ms + 1000] * SLOTS
    rows = []
    for child in range(size):
        length_ms = max(2, int(scale * chance.lognormvariate(8, 0.6)))
        memory_kib = int(chance.lognormvariate(11, 0.5))
        slot = free_ms.index(min(free_ms))
        started_ms = free_ms[slot]
        if started_ms < now_ms + GAP_MS[1] and started_ms + length_ms > now_ms + GAP_MS[0]:
            started_ms = now_ms + GAP_MS[1]
        free_ms[slot] = started_ms + length_ms
        code = next((code for step, code in FAILING.items() if child % step == step - 1), 0)
        measured = (length_ms / 1200, length_ms / 9000, memory_kib)
        if code:
            middle_ms = started_ms + length_ms // 2
            again = (None, code, "", StatusReason.EXITED, started_ms, middle_ms)
            rows.append(AttemptRow(1, child, 1, *again, *measured, place=str(slot)))
            started_ms, length_ms = middle_ms, length_ms - length_ms // 2
        state = JobState.FAILED if code else JobState.SUCCEEDED
        ended = (state.value, code, "", StatusReason.EXITED, started_ms, started_ms + length_ms)
        rows.append(AttemptRow(1, child, 2 if code else 1, *ended, *measured, place=str(slot)))
    return rows


def succeeded(now_ms: int, length_ms: int) -> tuple[str, int, str, str, int, int]:
    return (JobState.SUCCEEDED.value, 0, "", StatusReason.EXITED, now_ms, now_ms + length_ms)


def end(row: JobRow, now_ms: int, good: int, bad: int, attempts: int = 1) -> JobRow:
    state = JobState.FAILED if bad else JobState.SUCCEEDED
    counts = tuple({JobState.SUCCEEDED: good, JobState.FAILED: bad}.get(s, 0) for s in JobState)
    return row._replace(
        state=state.value,
        status_reason="Array Child Job failed" if bad else "",
        counts=counts,
        attempts=attempts,
        started_ms=now_ms if attempts else None,
        ended_ms=now_ms + 500_000,
    )


def write_large_log(record: RunRecord, step: str, index: int, size: int) -> Path:
    """Write the log of a child, with the word `needle` near its end."""
    path = record.folder.log_of(step, index, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"loss": 0.123, "text": "x" * 80}).encode() + b"\n"
    with path.open("wb") as file:
        block = line * (1 << 12)
        while file.tell() < size:
            file.write(block)
        file.write(b"the needle is here\n" + line * 100)
    return path
