"""The same from Python.

    from batchyard import Pipeline

    run = Pipeline.load("pipeline.yaml").run()
    run.wait()
    print(run.status()["state"])

A run executes in a process of its own, exactly as with ``batchyard run --detach``: it survives the end of the program
that began it, and the commands `status`, `logs` and `stop` see it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from batchyard import launch, runs, status
from batchyard import plan as planning
from batchyard.engines.base import LogChunk, RunState
from batchyard.errors import BadInput, Surroundings
from batchyard.launch import Offer
from batchyard.pipeline import Pipeline as Model
from batchyard.pipeline_file import reading

_POLL_S = 0.05


class Pipeline:
    """A pipeline file that has been read and found right."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    def load(cls, path: str | Path, params: Mapping[str, object] | None = None) -> Pipeline:
        """Reads a pipeline file, or a plain list of commands. Raises PipelineMistakes, with all mistakes at once."""
        path = Path(path)
        if reading.is_command_list(path):
            return cls(reading.load_list(path))
        return cls(reading.load(path, {name: str(value) for name, value in (params or {}).items()}))

    @property
    def name(self) -> str:
        return self.model.name

    def plan(self, *, only: str | None = None, start_from: str | None = None) -> dict[str, Any]:
        """What ``run`` would do, in the shape of `batchyard plan --json`."""
        return planning.shown(planning.make(self.model, only=only, start_from=start_from), "local")

    def run(
        self,
        *,
        only: str | None = None,
        start_from: str | None = None,
        offer: Offer | None = None,
        home: str | Path | None = None,
    ) -> Run:
        """Begins a run and returns at once. ``offer``: what of the machine it may use."""
        plan = planning.make(self.model, only=only, start_from=start_from)
        plan, setting, _ = launch.fit(plan, self.model, offer or Offer())
        where = runs.home_beside(self.model.folder, str(home) if home else None)
        record = runs.begin(where, plan, setting, file=self.model.path)
        launch.execute_detached(record)
        return Run(record)


class Run:
    """A run, wherever it executes."""

    def __init__(self, record: runs.Record) -> None:
        self._record = record

    @classmethod
    def find(cls, name: str = "last", home: str | Path | None = None) -> Run:
        """The run of that id, or beginning of one, or `last`, in the nearest `.batchyard`."""
        return cls(runs.load(runs.find_home(Path.cwd(), str(home) if home else None), name))

    @property
    def id(self) -> str:
        return self._record.run_id

    def status(self) -> dict[str, Any]:
        """In the shape of `batchyard status --json`."""
        return status.to_json(status.of_run(self._record))

    def wait(self, timeout_s: float | None = None) -> str:
        """Returns the run's final state. Raises TimeoutError, or Surroundings if the run's process died."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            now = status.of_run(self._record, max_failures=0)
            if now.state is not RunState.RUNNING:
                return now.state.value
            if now.is_interrupted:
                raise Surroundings(f"the process of run {self.id} died", hint="Run.resume() goes on with it")
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"run {self.id} was not over after {timeout_s} s")
            time.sleep(_POLL_S)

    def logs(self, step: str | None = None, index: int | None = None, *, failed: bool = False) -> Iterator[LogChunk]:
        """What the children have written so far."""
        steps = [job.step for job in self._record.plan.jobs]
        if step is not None and step not in steps:
            raise BadInput(f"the run has no step {step!r}", hint=f"its steps are: {', '.join(steps)}")
        engine = self._record.open_engine()
        try:
            yield from engine.logs(step, index, failed_only=failed)
        finally:
            engine.close()

    def stop(self, grace_s: float = 30.0) -> None:
        """Asks for the end of the run; ``wait`` returns when it has come."""
        engine = self._record.open_engine()
        try:
            engine.stop(engine.job_ids, "stopped by the user", grace_s)
        finally:
            engine.close()

    def resume(self) -> None:
        """Goes on with a run whose process died."""
        launch.require_resumable(self._record)
        launch.execute_detached(self._record)

    def retry(self) -> Run:
        """A new run of only what failed or never ran."""
        record = launch.begin_retry(self._record)
        launch.execute_detached(record)
        return Run(record)
