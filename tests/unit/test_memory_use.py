"""Children that use more memory than they requested: which ones are reported."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from batchyard.batch.jobs import Resources
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.memory_use import Excess, MemoryUse, from_text
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.runner import Ended, Task
from batchyard.embedded.spawner import Spawner
from batchyard.folder import RunFolder
from batchyard.shard import Turn

OWN_PEAK_KIB = 60 * 1024


def task(index: int = 0, command: tuple[str, ...] = (), requested_mib: int = 256) -> Task:
    return Task(
        job_number=0,
        job_id="id",
        step="work",
        child=index,
        index_in_step=index,
        attempt=1,
        turn=Turn(range(1)),
        command=lambda number: command,
        environ={b"PATH": os.environb[b"PATH"], b"BATCHYARD_TOKEN": b"memory.%d." % index},
        engine_variables=(),
        resources=Resources(1, requested_mib),
        mark=b"memory.%d." % index,
    )


@pytest.mark.parametrize(
    ("requested_mib", "max_rss_mib", "anonymous_mib", "peak_mib"),
    [
        (256, 256, None, None),
        (256, 257, None, 257),
        # No larger than the engine, whose size the kernel may have given to the child.
        (4, 60, None, None),
        (4, 119, None, None),
        (4, 121, None, 121),
        # Files that it maps are most of it.
        (256, 900, 100, None),
        (256, 900, 300, 300),
        (4, 60, 5, 5),
    ],
)
def test_only_a_certain_excess_counts(
    requested_mib: int, max_rss_mib: int, anonymous_mib: int | None, peak_mib: int | None
) -> None:
    use = MemoryUse(own_peak_kib=lambda: OWN_PEAK_KIB)
    anonymous_kib = None if anonymous_mib is None else anonymous_mib * 1024
    use.add(task(requested_mib=requested_mib), max_rss_mib * 1024, anonymous_kib)
    peaks_mib = [excess.peak_kib // 1024 for excess in from_text(use.to_text())]
    assert peaks_mib == ([] if peak_mib is None else [peak_mib])
    assert use.has_changed == bool(peaks_mib)


def test_a_step_has_the_number_of_its_children_and_the_largest() -> None:
    use = MemoryUse(own_peak_kib=lambda: OWN_PEAK_KIB)
    for index, peak_mib in enumerate((300, 500)):
        use.add(task(index), peak_mib * 1024, None)
    # Another process resumes the run.
    use = MemoryUse(use.to_text(), own_peak_kib=lambda: OWN_PEAK_KIB)
    use.add(task(2), 400 * 1024, None)
    assert from_text(use.to_text()) == [Excess("work", 3, 1, 500 * 1024, 256)]


HOLD = """
import mmap, pathlib, sys, time
if sys.argv[1] == "allocate":
    block = bytearray(100 << 20)
else:
    file = open("large", "rb")
    block = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sum(block[i] for i in range(0, len(block), 4096))
pathlib.Path("ready").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.01)
"""


@pytest.mark.parametrize(("kind", "count"), [("allocate", 1), ("map", 0)])
def test_a_long_child_is_measured_without_the_files_that_it_maps(
    kind: str, count: int, tmp_path: Path
) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(100 << 20)
    use = MemoryUse()
    runner = ProcessRunner(Spawner(LogBook(RunFolder(tmp_path))), memory_use=use)
    script = f"import os; os.chdir({str(tmp_path)!r}){HOLD}"
    deadline = time.monotonic() + 300
    try:
        with runner.lock:
            runner.start(task(command=(sys.executable, "-c", script, kind), requested_mib=64))
            while not (tmp_path / "ready").exists():
                assert time.monotonic() < deadline
                assert not any(isinstance(event, Ended) for event in runner.take_events())
                runner.wait(0.01)
            for _ in range(10):
                runner.tick()
            (tmp_path / "go").touch()
            while not any(isinstance(event, Ended) for event in runner.take_events()):
                assert time.monotonic() < deadline
                runner.wait(0.01)
    finally:
        runner.close()
    excesses = from_text(use.to_text())
    assert [excess.children for excess in excesses] == [1] * count
    assert all(excess.peak_kib >= 100 << 10 for excess in excesses)
