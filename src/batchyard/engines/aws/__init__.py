"""The engine of AWS Batch: a plan becomes jobs of an environment's queues, chained by dependsOn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard import plan as planning
from batchyard import s3_layout
from batchyard.aws.environment_lookup import find_environment
from batchyard.aws.s3 import S3
from batchyard.aws.session import AwsSession
from batchyard.engines.aws import inputs, preparing, render, target, workspace_files
from batchyard.engines.aws.input_files import InputFiles
from batchyard.engines.aws.run import AwsRun
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
from batchyard.engines.repetition import nothing_to_retry, select_jobs
from batchyard.environments import Environment
from batchyard.errors import InputError, RunNotFoundError
from batchyard.folder import write_synced
from batchyard.plan import RunPart


class AwsEngine:
    name = "aws"
    is_recorded = True
    claims_commands = True
    cap_keeper = (
        "it is kept by commands that watch the run: `run`, `retry`, `resume` and `status --watch`. "
        "While none of them watches, only the stack `caps` of the environment keeps it, if it is "
        "deployed"
    )

    def prepare(self, request: RunRequest) -> PreparedRun:
        return preparing.prepare(request)

    def list_requests(self, prepared: PreparedRun) -> list[ServiceRequest]:
        return preparing.list_requests(prepared)

    def prepare_retry(self, old: RunRecord, request: RetryRequest, say: Say) -> PreparedRun:
        _refuse_local_settings(old, request)
        run = self.open(old)
        state = _require_over(old, run)
        unfinished = run.unfinished()
        if request.fallback is not None:
            unfinished = replace(unfinished, children=request.fallback.children)
        if run.answer_source:
            say(run.answer_source)
        repetition = select_jobs(
            run.load_lists(), unfinished, request.part, claims=self.claims_commands
        )
        plan = repetition.plan
        if not plan.jobs:
            raise _nothing_to_retry(old.run_id, state, request.part)
        if repetition.note:
            say(repetition.note)
        settings = replace(
            old.settings,
            run_id=new_run_id(plan),
            on_demand=request.on_demand or old.settings.on_demand,
            is_sampled=request.choose_sampling(old.settings.is_sampled),
            earlier_runs=(old.run_id, *old.settings.earlier_runs),
            # A retry by the user is on spot again, unless it is asked for otherwise.
            on_demand_steps=frozenset(request.fallback.on_demand_steps if request.fallback else ()),
        )
        settings = preparing.check_queues(settings, plan)
        # Refuses steps that AWS Batch cannot run, before anything is recorded.
        render.render(plan, settings)
        workspace = Path(old.workspace) if old.workspace else None
        if workspace is not None and workspace.is_dir():
            # Refuses files that cannot be uploaded, before anything is recorded.
            _check_files(plan, workspace, run.inputs.load())
        return PreparedRun(
            plan,
            settings,
            settings.run_id,
            workspace=workspace,
            commands_done=repetition.commands_done,
            environment=settings.environment,
            hosts=preparing.hosts_by_step(plan, settings),
        )

    def prepare_resume(
        self, record: RunRecord, request: RetryRequest, *, detached: bool
    ) -> RunRecord:
        _refuse_local_settings(record, request)
        preparing.refuse_sampling_change(record, request)
        return record

    def create(self, record: RunRecord, commands_done: Mapping[str, Sequence[int]]) -> None:
        skipped = {step: list(numbers) for step, numbers in commands_done.items()}
        write_synced(record.folder.skip, json.dumps(skipped))

    def open(self, record: RunRecord) -> AwsRun:
        return AwsRun(record)

    def settings_to_json(self, settings: Any) -> dict[str, Any]:
        return {"target": target.to_json(settings)}

    def settings_from_json(self, document: Mapping[str, Any]) -> target.Target:
        return target.from_json(document["target"])

    def download_record(self, home: Path, environment: str, run_id: str) -> str | None:
        if run_id == "last":
            raise InputError(
                "`last` is about this machine's runs",
                hint=f"`batchyard runs --env {environment}` lists those in S3",
            )
        named = find_environment(home, environment)
        address = named.run_address(run_id) + s3_layout.RUN_RECORD
        text = _s3(named).get(address)
        if text is None:
            raise RunNotFoundError(
                f"there is no run {run_id} in {_runs_address(named)}",
                hint=f"`batchyard runs --env {environment}` lists them",
            )
        document = json.loads(text)
        if not Path(document.get("workspace", "")).is_dir():
            document["workspace"] = ""  # a folder of the other machine
        return json.dumps(document, indent=1)

    def adopt(self, record: RunRecord) -> None:
        self.open(record).expect_jobs_of_others()

    def list_runs(self, home: Path, environment: str) -> list[str] | None:
        named = find_environment(home, environment)
        return sorted(filter(s3_layout.is_run, _s3(named).folders(_runs_address(named))))


def _check_files(plan: planning.Plan, workspace: Path, retried: InputFiles | None) -> None:
    """Raise InputError where the inputs of a retry match files that cannot go to S3."""
    by_step = retried.by_step if retried else {}
    selected = inputs.select_inputs(
        plan,
        workspace_files.list_names(workspace),
        {step: set(paths) for step, paths in by_step.items()},
    )
    names = {name for step in selected.values() for name in step.names}
    workspace_files.check_files(workspace, names)


def _s3(environment: Environment) -> S3:
    return S3(AwsSession(environment.region, environment.profile))


def _runs_address(environment: Environment) -> str:
    return s3_layout.runs_address(environment.bucket, environment.prefix)


def _refuse_local_settings(record: RunRecord, request: RetryRequest) -> None:
    if request.cpus or request.memory_mib:
        raise InputError(
            "--limit-cpus and --limit-memory are about this machine",
            hint=f"run {record.run_id} is on AWS",
        )
    if request.workspace is not None:
        raise InputError(
            "--workspace is about runs on this machine",
            hint=f"run {record.run_id} has its workspace in S3; "
            f"`batchyard fetch {record.run_id} --to DIR` downloads its results",
        )


def _require_over(record: RunRecord, run: AwsRun) -> RunState:
    """Return the state of a run that is over. Raises InputError where it is not."""
    overview = run.overview()
    run_id = record.run_id
    if overview.is_interrupted:
        raise InputError(
            f"run {run_id} was not submitted whole", hint=f"`batchyard resume {run_id}` first"
        )
    if overview.state is RunState.RUNNING:
        raise InputError(f"run {run_id} is still running", hint=f"`batchyard stop {run_id}` first")
    return overview.state


def _nothing_to_retry(run_id: str, state: RunState, part: RunPart | None) -> InputError:
    """Return the refusal of a retry where no child is left."""
    if state is RunState.SUCCEEDED or part is not None:
        return nothing_to_retry(run_id, part)
    # The worker records a success before it exits, so a kill or a stop can come in between.
    return InputError(
        f"run {run_id} has nothing to retry: all its commands succeeded, although it is {state}: "
        "a job was ended after its last command and before its exit",
        hint=f"`batchyard fetch {run_id}` downloads the output files",
    )


ENGINE: Engine = AwsEngine()
