"""The engine of ECS: the embedded scheduler, with children as tasks of a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard.engines.aws import target
from batchyard.engines.aws.preparing import refuse_sampling_change
from batchyard.engines.base import (
    Engine,
    PreparedRun,
    RetryRequest,
    RunRecord,
    RunRequest,
    Say,
    ServiceRequest,
    new_run_id,
)
from batchyard.engines.ecs import preparing
from batchyard.engines.ecs.run import EcsRun
from batchyard.engines.repetition import nothing_to_retry, select_jobs
from batchyard.errors import InputError
from batchyard.folder import write_synced


class EcsEngine:
    name = "ecs"
    is_recorded = True
    claims_commands = True
    cap_keeper = (
        "it is kept by the process that executes the run, also with --detach. Nothing starts "
        "without that process; tasks that run go on, and are paid for"
    )

    def prepare(self, request: RunRequest) -> PreparedRun:
        return preparing.prepare(request)

    def list_requests(self, prepared: PreparedRun) -> list[ServiceRequest]:
        return list(preparing.list_requests(prepared))

    def prepare_retry(self, old: RunRecord, request: RetryRequest, say: Say) -> PreparedRun:
        _refuse_local_settings(old, request)
        run = self.open(old)
        try:
            run.require_over()
            unfinished = run.unfinished()
            plan = run.load_lists()
        finally:
            run.close()
        repetition = select_jobs(plan, unfinished, request.part, claims=self.claims_commands)
        plan = repetition.plan
        if not plan.jobs:
            raise nothing_to_retry(old.run_id, request.part)
        if repetition.note:
            say(repetition.note)
        settings = replace(
            old.settings,
            run_id=new_run_id(plan),
            is_sampled=request.choose_sampling(old.settings.is_sampled),
            earlier_runs=(old.run_id, *old.settings.earlier_runs),
        )
        preparing.check_plan(plan, settings)
        environment = settings.environment
        cluster = preparing.require_cluster(environment)
        hosts, problem = preparing.find_hosts_by_step(plan, environment, cluster)
        if problem:
            say(problem)
        workspace = Path(old.workspace) if old.workspace else None
        return PreparedRun(
            plan,
            settings,
            settings.run_id,
            workspace=workspace,
            commands_done=repetition.commands_done,
            environment=environment,
            hosts=hosts,
        )

    def prepare_resume(
        self, record: RunRecord, request: RetryRequest, *, detached: bool
    ) -> RunRecord:
        _refuse_local_settings(record, request)
        refuse_sampling_change(record, request)
        run = self.open(record)
        try:
            run.require_resumable()
        finally:
            run.close()
        return record

    def create(self, record: RunRecord, commands_done: Mapping[str, Sequence[int]]) -> None:
        skipped = {step: list(numbers) for step, numbers in commands_done.items()}
        write_synced(record.folder.skip, json.dumps(skipped))
        run = self.open(record)
        run.submit(record.plan)
        run.close()

    def open(self, record: RunRecord) -> EcsRun:
        return EcsRun(record)

    def settings_to_json(self, settings: Any) -> dict[str, Any]:
        return {"target": target.to_json(settings)}

    def settings_from_json(self, document: Mapping[str, Any]) -> target.Target:
        return target.from_json(document["target"])

    def download_record(self, home: Path, environment: str, run_id: str) -> str | None:
        return None

    def adopt(self, record: RunRecord) -> None:
        """Do nothing: no other machine has runs of this engine."""

    def list_runs(self, home: Path, environment: str) -> list[str] | None:
        return None


def _refuse_local_settings(record: RunRecord, request: RetryRequest) -> None:
    preparing.refuse_instance_kinds(on_demand=request.on_demand)
    if request.cpus or request.memory_mib or request.workspace is not None:
        raise InputError(
            "--limit-cpus, --limit-memory and --workspace are about runs on this machine",
            hint=f"run {record.run_id} is on a cluster",
        )


ENGINE: Engine = EcsEngine()
