"""Small runs of the local engine, with texts that a careless page would execute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from batchyard import engines, operations
from batchyard import plan as planning
from batchyard.engines.base import AttemptDetail, JobDetail, Offer, RunRecord, RunRequest
from batchyard.pipeline import Need, Pipeline, Step

#: What a browser would execute if the page wrote it as markup.
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


class SilentWatcher:
    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None: ...

    def attempt_failed(self, attempt: AttemptDetail) -> None: ...

    def note(self, text: str) -> None: ...


def begin_run(home: Path, *steps: Step, name: str = "demo") -> RunRecord:
    """Record a run of the local engine."""
    pipeline = Pipeline(name, steps)
    offer = Offer(cpus=2, memory_mib=4096, workspace=str(home.parent))
    request = RunRequest(planning.make(pipeline), pipeline, home, offer)
    return operations.begin(engines.load("local"), request)[0]


def execute(record: RunRecord) -> None:
    run = record.open()
    try:
        run.execute(SilentWatcher())
    finally:
        run.close()


def small_steps() -> tuple[Step, ...]:
    return (
        Step("prepare", command=f"echo '{SCRIPT}'; printf '\\033[31mred\\033[0m\\n'"),
        Step(
            "work",
            commands=tuple(f"echo line {n}; test {n} != 3 || exit 7 # {SCRIPT}" for n in range(6)),
            array=6,
            needs=(Need("prepare"),),
        ),
        Step("collect", command="echo never", needs=(Need("work"),)),
    )
