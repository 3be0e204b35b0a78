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
from batchyard.engines.aws import preparing, render, staging, target
from batchyard.engines.aws.run import AwsRun
from batchyard.engines.base import (
    Engine,
    PreparedRun,
    RetryRequest,
    RunRecord,
    RunRequest,
    RunState,
    Say,
    new_run_id,
)
from batchyard.environments import Environment
from batchyard.errors import InputError, RunNotFoundError
from batchyard.folder import write_synced


class AwsEngine:
    name = "aws"
    is_recorded = True

    def prepare(self, request: RunRequest) -> PreparedRun:
        return preparing.prepare(request)

    def prepare_retry(self, old: RunRecord, request: RetryRequest, say: Say) -> PreparedRun:
        _refuse_capacity(old, request)
        run = self.open(old)
        _require_over(old, run)
        unfinished = run.unfinished()
        if run.answer_source:
            say(run.answer_source)
        if not any(unfinished.children.values()):
            raise InputError(f"run {old.run_id} has nothing to retry: everything in it succeeded")
        plan = planning.select_unfinished(run.load_lists(), unfinished.children)
        settings = replace(
            old.settings,
            run_id=new_run_id(plan),
            on_demand=request.on_demand or old.settings.on_demand,
        )
        settings = preparing.check_queues(settings, plan)
        # Refuses steps that AWS Batch cannot run, before anything is recorded.
        render.render(plan, settings)
        workspace = Path(old.workspace) if old.workspace else None
        if workspace is not None and workspace.is_dir():
            # Refuses files that cannot be uploaded, before anything is recorded.
            staging.match_files(workspace, (glob for job in plan.jobs for glob in job.inputs))
        return PreparedRun(
            plan,
            settings,
            settings.run_id,
            workspace=workspace,
            commands_done=unfinished.commands_done,
        )

    def prepare_resume(
        self, record: RunRecord, request: RetryRequest, *, detached: bool
    ) -> RunRecord:
        _refuse_capacity(record, request)
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
        return sorted(_s3(named).folders(_runs_address(named)))


def _s3(environment: Environment) -> S3:
    return S3(AwsSession(environment.region, environment.profile))


def _runs_address(environment: Environment) -> str:
    return s3_layout.runs_address(environment.bucket, environment.prefix)


def _refuse_capacity(record: RunRecord, request: RetryRequest) -> None:
    if request.cpus or request.memory_mib:
        raise InputError(
            "--cpus and --memory are about this machine", hint=f"run {record.run_id} is on AWS"
        )


def _require_over(record: RunRecord, run: AwsRun) -> None:
    """Raise InputError where the run is not over."""
    overview = run.overview()
    run_id = record.run_id
    if overview.is_interrupted:
        raise InputError(
            f"run {run_id} was not submitted whole", hint=f"`batchyard resume {run_id}` first"
        )
    if overview.state is RunState.RUNNING:
        raise InputError(f"run {run_id} is still running", hint=f"`batchyard stop {run_id}` first")


ENGINE: Engine = AwsEngine()
