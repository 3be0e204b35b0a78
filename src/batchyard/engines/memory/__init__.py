"""An engine without processes or files: the outcome of every command is scripted.

For tests of pipelines and of batchyard itself. Jobs, arrays, dependencies, retries and timeouts
follow the same rules as on the other engines, on a clock that only moves when commands "run":

    from batchyard import Pipeline
    from batchyard.engines.memory import MemoryEngine, Result

    engine = MemoryEngine({"train:3": Result(exit_code=1, output=b"out of data\\n")})
    run = Pipeline.load("pipeline.yaml").run(engine=engine)
    assert run.status()["state"] == "FAILED"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from batchyard import plan as planning
from batchyard.batch.jobs import Resources
from batchyard.engines.base import (
    Engine,
    PreparedRun,
    RetryRequest,
    RunRecord,
    RunRequest,
    RunState,
    Say,
    ServiceRequest,
    new_run_id,
)
from batchyard.engines.memory.run import MemoryRun
from batchyard.engines.memory.script import HOLD, Call, Result, Script, check_script
from batchyard.engines.memory.simulation import MemorySettings, Simulation
from batchyard.engines.repetition import nothing_to_retry, select_jobs
from batchyard.errors import InputError, OperationalError
from batchyard.folder import DRAFT_PREFIX
from batchyard.pipeline import Pipeline
from batchyard.plan import Plan

__all__ = ["ENGINE", "HOLD", "Call", "MemoryEngine", "MemoryRun", "Result", "Script"]

#: More GPUs than a test needs, and few enough to count.
_MAX_GPUS = 10_000
_S3 = "s3://"


class MemoryEngine:
    """See the module. One object knows the runs that were begun with it, and no others."""

    name = "memory"

    claims_commands = False
    cap_keeper = ""

    def __init__(self, script: Script | None = None, *, is_recorded: bool = False) -> None:
        """``is_recorded``: also write run.json to a `.batchyard` folder, as other engines do."""
        self.script: Script = script if script is not None else {}
        self.is_recorded = is_recorded
        self._runs: dict[str, Simulation] = {}

    def release(self, run_id: str, step: str, index: int = 0, result: Result | None = None) -> None:
        """End a held command of this child, and go on with the run.

        Raises InputError if the child holds no command.
        """
        self.simulation_of(run_id).release(step, index, result or Result())

    # -- the contract --------------------------------------------------------------------------

    def prepare(self, request: RunRequest) -> PreparedRun:
        if request.environment is not None or request.on_demand or request.spot:
            raise InputError(
                "an environment, on-demand and spot instances are for runs on AWS",
                hint="leave them out: a rehearsal needs none",
            )
        if request.detached and not self.is_recorded:
            raise InputError(
                "a rehearsal lives in the process that begins it, so it cannot be detached",
                hint="leave --detach out: a rehearsal takes no time",
            )
        check_script(self.script, request.pipeline)
        offer = request.offer
        plan = planning.with_child_per_command(request.plan)
        plan = plan if offer.use_gpus else planning.without_gpus(plan)
        settings = MemorySettings(
            _find_workspace(request.pipeline, offer.workspace),
            _limit(_enough_for(plan), plan, offer.cpus, offer.memory_mib, offer.gpus),
        )
        notes = ("this is a rehearsal: no command is executed",)
        return PreparedRun(plan, settings, new_run_id(plan), notes)

    def list_requests(self, prepared: PreparedRun) -> Sequence[ServiceRequest]:
        return ()

    def prepare_retry(self, old: RunRecord, request: RetryRequest, say: Say) -> PreparedRun:
        if request.on_demand:
            raise InputError(
                "on-demand instances are for runs on AWS", hint="leave them out of a rehearsal"
            )
        run = self.open(old)
        if run.overview().state is RunState.RUNNING:
            raise InputError(f"run {old.run_id} is still running", hint="stop it first")
        unfinished = run.unfinished()
        repetition = select_jobs(run.plan, unfinished, request.part)
        plan = repetition.plan
        if not plan.jobs:
            raise nothing_to_retry(old.run_id, request.part)
        if repetition.note:
            say(repetition.note)
        capacity = _limit(old.settings.capacity, plan, request.cpus, request.memory_mib)
        settings = replace(old.settings, capacity=capacity)
        return PreparedRun(plan, settings, new_run_id(plan), commands_done=repetition.commands_done)

    def prepare_resume(
        self, record: RunRecord, request: RetryRequest, *, detached: bool
    ) -> RunRecord:
        state = self.open(record).overview().state
        if state is not RunState.RUNNING:
            raise InputError(f"run {record.run_id} is over: {state.value}")
        if request.cpus or request.memory_mib:
            raise InputError(
                "--limit-cpus and --limit-memory cannot change while a rehearsal runs",
                hint="stop the run, and retry it with them",
            )
        return record

    def create(self, record: RunRecord, commands_done: Mapping[str, Sequence[int]]) -> None:
        run_id = record.run_id.removeprefix(DRAFT_PREFIX)
        self._runs[run_id] = Simulation(run_id, record, commands_done, lambda: self.script)

    def open(self, record: RunRecord) -> MemoryRun:
        return MemoryRun(record, self)

    def settings_to_json(self, settings: Any) -> dict[str, Any]:
        return {"setting": asdict(settings)}

    def settings_from_json(self, document: Mapping[str, Any]) -> MemorySettings:
        members = document["setting"]
        return MemorySettings(members["workspace"], Resources(**members["capacity"]))

    def download_record(self, home: Path, environment: str, run_id: str) -> str | None:
        return None

    def adopt(self, record: RunRecord) -> None:
        """Do nothing: no other process has runs of this engine."""

    def list_runs(self, home: Path, environment: str) -> list[str] | None:
        return None

    def has_run(self, run_id: str) -> bool:
        """Return whether the run was begun with this object."""
        return run_id in self._runs

    def simulation_of(self, run_id: str) -> Simulation:
        """Return the state of a run. Raises OperationalError for a run of another object."""
        if run_id not in self._runs:
            raise OperationalError(
                f"run {run_id} was a rehearsal in the memory of another process",
                hint="run it again, or delete its folder",
            )
        return self._runs[run_id]


def _find_workspace(pipeline: Pipeline, override: str | None) -> str:
    """Return the workspace that commands are told: a folder, or an s3:// prefix."""
    address = override or pipeline.workspace or ""
    if not address.startswith(_S3):
        folder = Path.cwd() if override else pipeline.folder
        return str((folder / address).absolute())
    if not address.removeprefix(_S3).partition("/")[0]:
        raise InputError(f"{address!r} names no bucket", hint="write s3://bucket/prefix/")
    return address


def _limit(
    capacity: Resources,
    plan: Plan,
    cpus: int | None,
    memory_mib: int | None,
    gpus: int | None = None,
) -> Resources:
    """Return the capacity with other amounts. Raises InputError if a child does not fit."""
    limited = Resources(
        cpus or capacity.vcpus,
        memory_mib or capacity.memory_mib,
        capacity.gpus if gpus is None else gpus,
    )
    misfits = planning.find_misfits(plan, limited)
    if misfits:
        raise InputError(
            f"the pipeline can never run with {limited}:\n  " + "\n  ".join(misfits),
            hint="ask for less for a child, or let the run use more",
        )
    return limited


def _enough_for(plan: Plan) -> Resources:
    """Return a capacity with room for all children at once, but for GPUs beyond a limit."""
    return Resources(
        sum(job.size * job.resources.vcpus for job in plan.jobs),
        sum(job.size * job.resources.memory_mib for job in plan.jobs),
        min(_MAX_GPUS, sum(job.size * job.resources.gpus for job in plan.jobs)),
    )


#: The engine of `batchyard run --engine memory`: a rehearsal, of which nothing is kept.
ENGINE = MemoryEngine()
_CONTRACT: Engine = ENGINE  # mypy compares the class with the contract here
