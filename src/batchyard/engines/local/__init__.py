"""The engine of this machine: the embedded scheduler, with children as processes or containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from batchyard.engines.local import settings
from batchyard.engines.local.run import LocalRun
from batchyard.errors import InputError


class LocalEngine:
    name = "local"
    is_recorded = True
    claims_commands = False
    cap_keeper = ""

    def prepare(self, request: RunRequest) -> PreparedRun:
        from batchyard.engines.local import preparing

        return preparing.prepare(request)

    def list_requests(self, prepared: PreparedRun) -> Sequence[ServiceRequest]:
        return ()

    def prepare_retry(self, old: RunRecord, request: RetryRequest, say: Say) -> PreparedRun:
        from batchyard.engines.local import preparing
        from batchyard.engines.repetition import nothing_to_retry, select_jobs

        if request.on_demand:
            raise InputError(
                "on-demand instances are for runs on AWS",
                hint=f"run {old.run_id} is on this machine",
            )
        run = self.open(old)
        try:
            run.require_over()
            unfinished = run.unfinished()
        finally:
            run.close()
        repetition = select_jobs(old.plan, unfinished, request.part)
        plan = repetition.plan
        if not plan.jobs:
            raise nothing_to_retry(old.run_id, request.part)
        if repetition.note:
            say(repetition.note)
        lists = {job.step: old.folder.load_list(job.step) for job in plan.jobs if job.has_list}
        plan = replace(plan, lists=lists)
        changed = preparing.change_settings(
            replace(old.settings, token=settings.new_token()), plan, request
        )
        return PreparedRun(plan, changed, new_run_id(plan), commands_done=repetition.commands_done)

    def prepare_resume(
        self, record: RunRecord, request: RetryRequest, *, detached: bool
    ) -> RunRecord:
        from batchyard.engines.local import preparing

        run = self.open(record)
        try:
            run.require_resumable()
        finally:
            run.close()
        changed = preparing.change_settings(record.settings, record.plan, request)
        if detached and changed != record.settings:
            # A detached process reads its settings from the record, which never changes.
            raise InputError(
                "--limit-cpus, --limit-memory, --workspace and --no-sampling are only for a resume "
                "without --detach",
                hint="leave --detach out",
            )
        return replace(record, settings=changed)

    def create(self, record: RunRecord, commands_done: Mapping[str, Sequence[int]]) -> None:
        run = self.open(record)
        run.submit(record.plan, commands_done)
        run.close()

    def open(self, record: RunRecord) -> LocalRun:
        return LocalRun(record)

    def settings_to_json(self, run_settings: Any) -> dict[str, Any]:
        return settings.to_json(run_settings)

    def settings_from_json(self, document: Mapping[str, Any]) -> settings.LocalSettings:
        return settings.from_json(document)

    def download_record(self, home: Path, environment: str, run_id: str) -> str | None:
        return None

    def adopt(self, record: RunRecord) -> None:
        """Do nothing: no other machine has runs of this engine."""

    def list_runs(self, home: Path, environment: str) -> list[str] | None:
        return None


ENGINE: Engine = LocalEngine()
