"""The Python interface.

    from batchyard import Pipeline

    run = Pipeline.load("pipeline.yaml").run()
    run.wait()
    print(run.status()["state"])

A run on this machine executes in a process of its own, exactly as with ``batchyard run --detach``:
it survives the end of the program that began it. One on AWS (``run(engine="aws",
environment="lab")``) needs no process here once it is submitted. The commands `status`, `logs` and
`stop` see both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from batchyard import engines, operations, status
from batchyard import plan as planning
from batchyard.engines.base import (
    DEFAULT_GRACE_S,
    Backoff,
    Engine,
    LogChunk,
    Offer,
    RetryRequest,
    RunRecord,
    RunRequest,
    RunState,
)
from batchyard.errors import InputError, OperationalError
from batchyard.folder import find_home, home_beside
from batchyard.pipeline import Pipeline as Model
from batchyard.pipeline_file import reading


class Pipeline:
    """A pipeline file that has been read and found right."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    def load(cls, path: str | Path, params: Mapping[str, object] | None = None) -> Pipeline:
        """Read a pipeline file, or a plain list of commands, which has no params.

        Raises PipelineFileError, which lists all mistakes of the file.
        """
        path = Path(path)
        if reading.is_command_list(path):
            if params:
                raise InputError(
                    f"params go with a pipeline; {path} is a list of commands",
                    hint="a list has no params",
                )
            return cls(reading.load_list(path))
        return cls(reading.load(path, {name: str(value) for name, value in (params or {}).items()}))

    @property
    def name(self) -> str:
        return self.model.name

    def plan(self, *, only: str | None = None, start_from: str | None = None) -> dict[str, Any]:
        """Return what ``run`` would do, in the shape of `batchyard plan --json`."""
        plan = planning.make(self.model, only=only, start_from=start_from)
        return planning.describe(plan, engines.DEFAULT)

    def run(
        self,
        *,
        engine: str | Engine = engines.DEFAULT,
        environment: str | None = None,
        on_demand: bool = False,
        only: str | None = None,
        start_from: str | None = None,
        offer: Offer | None = None,
        home: str | Path | None = None,
    ) -> Run:
        """Begin a run, and return once it goes on by itself.

        ``engine``: a name, or an engine object such as ``batchyard.engines.memory.MemoryEngine``.
        ``environment`` and ``on_demand`` are for engines on AWS. ``offer``: what the run may use of
        this machine; of a run on AWS, only `use_gpus` and `workspace`.
        """
        request = RunRequest(
            plan=planning.make(self.model, only=only, start_from=start_from),
            pipeline=self.model,
            home=home_beside(self.model.folder, str(home) if home else None),
            offer=offer or Offer(),
            environment=environment,
            on_demand=on_demand,
        )
        chosen = engines.load(engine) if isinstance(engine, str) else engine
        record, _ = operations.begin(chosen, request)
        operations.start(record)
        return Run(record)


class Run:
    """A run, wherever it executes."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    @classmethod
    def find(
        cls,
        name: str = "last",
        home: str | Path | None = None,
        *,
        environment: str | None = None,
    ) -> Run:
        """Return the run of that id, or beginning of one, or `last`, in the nearest `.batchyard`.

        With ``environment``, the id may be that of a run which another machine began there.
        """
        folder = find_home(Path.cwd(), str(home) if home else None)
        return cls(operations.find_run(folder, name, environment))

    @property
    def id(self) -> str:
        return self._record.run_id

    def status(self) -> dict[str, Any]:
        """Return the state of the run, in the shape of `batchyard status --json`."""
        return status.to_json(status.of_run(self._record))

    def wait(self, timeout_s: float | None = None) -> str:
        """Wait for the end of the run, and return its final state.

        Raises TimeoutError, or OperationalError where the run is interrupted.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        engine = self._record.open()
        backoff = Backoff(engine.status_polling)
        while True:
            current = status.of_engine(self._record, engine, max_failures=0)
            if current.state is not RunState.RUNNING:
                return current.state.value
            if current.is_interrupted:
                raise OperationalError(
                    f"run {self.id} is interrupted: {current.interruption}",
                    hint="Run.resume() continues it",
                )
            delay_s = backoff.next_delay_s(current.steps)
            if deadline is not None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"run {self.id} was not over after {timeout_s} s")
                delay_s = min(delay_s, max(0.0, deadline - time.monotonic()))
            time.sleep(delay_s)

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed: bool = False
    ) -> Iterator[LogChunk]:
        """Return what the children have written so far: all of them, a step's, or one child's."""
        plan = self._record.plan
        if step is not None:
            plan.require_child(step, index)
        elif index is not None:
            steps = ", ".join(job.step for job in plan.jobs)
            raise InputError(
                f"of which step is child {index!r} meant?", hint=f"its steps are: {steps}"
            )
        return self._read_logs(step, index, failed)

    def _read_logs(self, step: str | None, index: int | None, failed: bool) -> Iterator[LogChunk]:
        engine = self._record.open()
        try:
            yield from engine.logs(step, index, failed_only=failed)
        finally:
            engine.close()

    def stop(self, grace_s: float = DEFAULT_GRACE_S) -> None:
        """Ask for the end of the run, also of one whose process died; ``wait`` waits for it.

        On AWS the grace is always 30 s.
        """
        operations.stop(self._record, grace_s=grace_s, wait=False)

    def resume(self) -> None:
        """Continue an interrupted run. What is done or submitted already is not repeated."""
        operations.start(operations.prepare_resume(self._record, detached=True))

    def retry(self, *, on_demand: bool = False) -> Run:
        """Begin a new run of only what failed or never ran; ``on_demand``: not on spot."""
        record = operations.begin_retry(self._record, RetryRequest(on_demand=on_demand))
        operations.start(record)
        return Run(record)

    def fetch(self, to: str | Path | None = None) -> int:
        """Download the results of a run on AWS, and return how many files came.

        ``to``: a folder instead of the run's workspace. Files that are here already are left.
        """
        return operations.fetch(self._record, Path(to) if to else None)[0]
