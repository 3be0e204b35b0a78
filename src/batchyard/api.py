"""The same from Python.

    from batchyard import Pipeline

    run = Pipeline.load("pipeline.yaml").run()
    run.wait()
    print(run.status()["state"])

A run on this machine executes in a process of its own, exactly as with ``batchyard run --detach``: it survives the end
of the program that began it. One on AWS (``run(engine="aws", environment="lab")``) needs no process here once it is
submitted. The commands `status`, `logs` and `stop` see both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from batchyard import launch, runs, status
from batchyard import plan as planning
from batchyard.engines.base import LogChunk, RunState
from batchyard.errors import InputError, OperationalError, RunNotFoundError
from batchyard.launch import Offer
from batchyard.pipeline import Pipeline as Model
from batchyard.pipeline_file import reading
from batchyard.plan import Plan
from batchyard.status import RunStatus

_POLL_S = 0.05


class Pipeline:
    """A pipeline file that has been read and found right."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    def load(cls, path: str | Path, params: Mapping[str, object] | None = None) -> Pipeline:
        """Reads a pipeline file, or a plain list of commands, which has no params. Raises PipelineFileError, with all
        mistakes at once."""
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
        """What ``run`` would do, in the shape of `batchyard plan --json`."""
        return planning.shown(planning.make(self.model, only=only, start_from=start_from), "local")

    def run(
        self,
        *,
        engine: str = "local",
        environment: str | None = None,
        on_demand: bool = False,
        only: str | None = None,
        start_from: str | None = None,
        offer: Offer | None = None,
        home: str | Path | None = None,
    ) -> Run:
        """Begins a run and returns at once, or with ``engine="aws"``, once it is submitted to that environment.
        ``offer``: what of the machine it may use; of a run on AWS, only `use_gpus` and `workspace` can be said."""
        plan = planning.make(self.model, only=only, start_from=start_from)
        where = runs.home_beside(self.model.folder, str(home) if home else None)
        if engine == "aws":
            return self._run_on_aws(plan, where, environment, on_demand, offer or Offer())
        if engine != "local":
            raise InputError(
                f"there is no engine {engine!r}", hint='the engines are "local" and "aws"'
            )
        if environment or on_demand:
            raise InputError("environment and on_demand are about AWS", hint='add engine="aws"')
        plan, setting, _ = launch.fit(plan, self.model, offer or Offer())
        record = runs.begin(where, plan, setting, file=self.model.path)
        launch.execute_detached(record)
        return Run(record)

    def _run_on_aws(
        self, plan: Plan, home: Path, environment: str | None, on_demand: bool, offer: Offer
    ) -> Run:
        from batchyard import cloud
        from batchyard.images import registry

        if environment is None:
            raise InputError(
                "a run on AWS needs an environment", hint='name it with environment="NAME"'
            )
        if offer != Offer(use_gpus=offer.use_gpus, workspace=offer.workspace):
            raise InputError(
                "cpus, memory_mib, gpus and runner are about this machine; on AWS the environment's queues say how "
                "much there is, and every child is a container",
                hint="leave them out of the Offer",
            )
        record, _ = cloud.begin(
            home,
            plan,
            self.model,
            environment,
            on_demand=on_demand,
            use_gpus=offer.use_gpus,
            workspace=offer.workspace,
            pinned=registry.pinned(home, environment),
            file=self.model.path,
        )
        cloud.submit(record)
        return Run(record)


class Run:
    """A run, wherever it executes."""

    def __init__(self, record: runs.Record) -> None:
        self._record = record

    @classmethod
    def find(
        cls, name: str = "last", home: str | Path | None = None, *, environment: str | None = None
    ) -> Run:
        """The run of that id, or beginning of one, or `last`, in the nearest `.batchyard`. With ``environment``, the
        id may be that of a run which another machine began there."""
        where = runs.find_home(Path.cwd(), str(home) if home else None)
        try:
            return cls(runs.load(where, name))
        except RunNotFoundError:
            if environment is None:
                raise
        from batchyard import cloud

        return cls(cloud.take_over(where, cloud.environment(where, environment), name))

    @property
    def id(self) -> str:
        return self._record.run_id

    def status(self) -> dict[str, Any]:
        """In the shape of `batchyard status --json`."""
        return status.to_json(status.of_run(self._record))

    def wait(self, timeout_s: float | None = None) -> str:
        """Returns the run's final state. Raises TimeoutError, or OperationalError where nobody is at it: its process died,
        or it was not submitted whole."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        looks = self._looks()
        while True:
            now, delay_s = next(looks)
            if now.state is not RunState.RUNNING:
                return now.state.value
            if now.is_interrupted:
                what = (
                    "the process of run {} died"
                    if self._record.is_local
                    else "run {} was not submitted whole"
                )
                raise OperationalError(what.format(self.id), hint="Run.resume() goes on with it")
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"run {self.id} was not over after {timeout_s} s")
            left_s = delay_s if deadline is None else max(0.0, deadline - time.monotonic())
            time.sleep(min(delay_s, left_s))

    def _looks(self) -> Iterator[tuple[RunStatus, float]]:
        """How the run is, again and again, and how long to wait until the next look."""
        if self._record.is_local:
            while True:
                yield status.of_run(self._record, max_failures=0), _POLL_S
        from batchyard import cloud

        engine, patience = self._record.open_aws(), cloud.Patience()
        while True:
            now = status.of_engine(self._record, engine, max_failures=0)
            yield now, patience.after(now.steps)

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed: bool = False
    ) -> Iterator[LogChunk]:
        """What the children have written so far: all of them, a step's, or one child's."""
        plan = self._record.plan
        if step is not None:
            plan.require_child(step, index)
        elif index is not None:
            steps = ", ".join(job.step for job in plan.jobs)
            raise InputError(
                f"of which step is child {index!r} meant?", hint=f"its steps are: {steps}"
            )
        return self._chunks(step, index, failed)

    def _chunks(self, step: str | None, index: int | None, failed: bool) -> Iterator[LogChunk]:
        engine = self._record.open_engine()
        try:
            yield from engine.logs(step, index, failed_only=failed)
        finally:
            engine.close()

    def stop(self, grace_s: float = 30.0) -> None:
        """Asks for the end of the run; ``wait`` returns when it has come. On AWS the grace is always 30 s."""
        engine = self._record.open_engine()
        try:
            engine.stop(engine.job_ids, "stopped by the user", grace_s)
        finally:
            engine.close()

    def resume(self) -> None:
        """Goes on with a run whose process died, or which was not submitted whole; what is submitted is not again."""
        if self._record.is_local:
            launch.require_resumable(self._record)
            launch.execute_detached(self._record)
            return
        from batchyard import cloud

        cloud.submit(self._record)

    def retry(self, *, on_demand: bool = False) -> Run:
        """A new run of only what failed or never ran; ``on_demand``: on AWS, not on spot instances."""
        if self._record.is_local:
            if on_demand:
                raise InputError(
                    "on_demand goes with a run on AWS", hint=f"run {self.id} is on this machine"
                )
            record = launch.begin_retry(self._record)
            launch.execute_detached(record)
            return Run(record)
        from batchyard import cloud

        record = cloud.begin_retry(self._record, on_demand=on_demand)
        cloud.submit(record)
        return Run(record)

    def fetch(self, to: str | Path | None = None) -> int:
        """Downloads what the steps of a run on AWS have given back, into its workspace or the folder ``to``; files
        that are here already are left. Returns how many came."""
        if self._record.is_local:
            raise InputError(
                f"run {self.id} is on this machine: its files are in {self._record.setting.workspace}"
            )
        folder = to or self._record.workspace_here
        if not folder:
            raise InputError(
                "the run's workspace is not on this machine", hint="say where to: fetch(to=...)"
            )
        from batchyard import cloud

        return cloud.fetch(self._record, Path(folder).absolute())
