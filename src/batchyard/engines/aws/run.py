"""One run of the AWS engine, over AWS Batch, S3 and CloudWatch Logs.

The whole plan is submitted at once, chained by dependsOn; after that no process of ours is needed.
What was submitted is in the run's folder (``journal``) and, for other machines, in S3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard import s3_layout
from batchyard.aws.batch import Batch
from batchyard.aws.logs import Logs
from batchyard.aws.s3 import S3
from batchyard.aws.session import AwsRefusedError, AwsSession
from batchyard.batch.jobs import JobState
from batchyard.embedded.lock import RunLock
from batchyard.engines.aws import details, staging
from batchyard.engines.aws.children import Children, number_of
from batchyard.engines.aws.details import UNSUBMITTED
from batchyard.engines.aws.kept import Kept
from batchyard.engines.aws.log_reader import LogReader
from batchyard.engines.aws.records import Ledger
from batchyard.engines.aws.render import Part, Target
from batchyard.engines.aws.standing import Standing
from batchyard.engines.aws.submitted import Submitted
from batchyard.engines.base import (
    DEFAULT_GRACE_S,
    AttemptDetail,
    Backoff,
    JobDetail,
    LogChunk,
    Overview,
    Polling,
    RunRecord,
    RunSetup,
    RunState,
    Say,
    Unfinished,
    Wait,
    Watcher,
    say_nothing,
)
from batchyard.errors import BatchyardError, InputError, OperationalError, RunLockedError
from batchyard.folder import home_flag
from batchyard.plan import Plan
from batchyard.units import pluralize

#: Failed children that are described in one call.
_FAILED_AT_ONCE = 100
#: Seconds after which a request of a process that died is done, and visible to ListJobs.
_SETTLING_S = 5.0
#: AWS Batch has one grace, and takes a while to end the containers after it.
_STOP_WAIT_S = 60.0


class RunStoppedError(InputError):
    """The run was stopped before all of it was submitted."""


class AwsRun:
    """A run on AWS Batch, opened by any process on any machine. See RunEngine for the contract."""

    status_polling = Polling(1.0, 30.0)
    #: Each look at the logs is several calls of the API.
    log_polling = Polling(1.0, 10.0)

    def __init__(
        self,
        record: RunRecord,
        session: AwsSession | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._record = record
        self._plan = plan = record.plan
        self._target: Target = record.settings
        target, environment = self._target, self._target.environment
        session = session or AwsSession(environment.region, environment.profile)
        self.batch = Batch(session)
        self.s3 = S3(session)
        self._logs = Logs(session)
        self._clock, self._sleep = clock, sleep
        self._kept = Kept(record.folder.path, target.address, self.s3)
        self._ledger = Ledger(plan, self.s3, self._kept, target.address)
        self._submitted = Submitted(plan, target, record.folder.journal, self._kept, clock)
        self._standing = Standing(
            plan, self.batch, self._submitted, self._kept, self._ledger, clock
        )
        self._reader: LogReader | None = None

    def close(self) -> None:
        """Do nothing: no connection is held."""

    # -- doing ---------------------------------------------------------------------------------

    def submit(self, plan: Plan) -> list[str]:
        if not self.is_submitted:
            staging.stage(self.s3, plan, self._target, plan.lists, self.skipped_commands)
            revisions = self._definitions()
            for name, quantity in self._submitted.rendered.counters.items():
                tags = {"batchyard:run": self._target.run_id}
                self.batch.make_consumable(name, quantity, tags)
            for part in self._submitted.rendered.parts:
                self._heed_stop()
                self._submit(part, revisions[part.definition])
            # Whoever stops the run may not have seen the job that was on its way just then.
            self._heed_stop()
            self._submitted.keep()
        return self.job_ids

    def start(self, say: Say = say_nothing) -> None:
        """Upload files and lists, and submit the jobs. What is there already is not repeated."""
        try:
            lock = RunLock(self._record.folder.lock)  # two processes would submit everything twice
            try:
                self._upload_and_submit(say)
            finally:
                lock.release()
        except (RunLockedError, RunStoppedError):
            raise
        except (KeyboardInterrupt, BatchyardError):
            say(
                f"not all jobs are submitted: `batchyard resume {self._record.run_id}` submits the "
                f"rest, `batchyard stop {self._record.run_id}` ends the run"
            )
            raise

    def _upload_and_submit(self, say: Say) -> None:
        self._require_not_stopped()
        if self.is_submitted:
            return
        if self._record.workspace:
            count = staging.send_inputs(
                self.s3,
                self._plan.jobs,
                Path(self._record.workspace),
                self._target.workspace,
            )
            if count:
                say(f"uploaded {pluralize(count, 'input file')} to {self._target.workspace}")
        text = self._record.folder.record.read_bytes()
        self.s3.put(self._target.address + s3_layout.RUN_RECORD, text, "application/json")
        if self.skipped_commands:
            self._kept.put(s3_layout.SKIPPED_COMMANDS, self.skipped_commands)
        self.submit(self.load_lists())

    def execute(self, watcher: Watcher, *, carry_out_old_stops: bool = False) -> None:
        self.start(watcher.note)
        run_id = self._record.run_id
        try:
            overview = self._follow(watcher)
        except KeyboardInterrupt:
            watcher.note(
                f"the run goes on without this command: `batchyard status {run_id} --watch` "
                f"follows it, `batchyard stop {run_id}` ends it"
            )
            raise
        if overview.state is not RunState.RUNNING:
            self._fetch_results(watcher.note)

    def _follow(self, watcher: Watcher) -> Overview:
        """Return the overview at the run's end, or once the run turns out to be interrupted."""
        backoff = Backoff(self.status_polling)
        while True:
            overview = self.overview()
            if overview.state is not RunState.RUNNING or overview.is_interrupted:
                return overview
            watcher.jobs_changed(overview.jobs)
            self._sleep(backoff.next_delay_s([job.counts for job in overview.jobs]))

    def _fetch_results(self, say: Say) -> None:
        """Download the results to the folder that the input files came from."""
        if self._workspace_folder is not None:
            count, folder = self.fetch()
            if count:
                say(f"fetched {pluralize(count, 'output file')} into {folder}")
        elif self._is_from_elsewhere and any(job.outputs for job in self._plan.jobs):
            flags = home_flag(self._record.folder, Path.cwd())
            say(
                "the run's workspace is not on this machine: "
                f"`batchyard fetch {self._record.run_id}{flags} --to DIR` downloads its results"
            )

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = DEFAULT_GRACE_S) -> float:
        """See the contract. AWS Batch has one grace: 30 s."""
        parts = self._submitted.rendered.parts
        steps = {part.step for part in parts if self._submitted.id_of(part) in job_ids}
        stopped_parts = [part for part in parts if part.step in steps]
        is_all = len(stopped_parts) == len(parts)
        if is_all:
            # First, so that whoever is submitting the run, on any machine, submits no more.
            self._kept.put(s3_layout.STOP_REQUEST, {"reason": reason})
        problems = self._look_for(stopped_parts)
        if is_all and not self.is_submitted:
            self._submitted.keep()
        _require_none([*problems, *self._terminate(stopped_parts, reason)])
        if is_all:
            return _STOP_WAIT_S
        missing = [
            p.step for p in stopped_parts if self._submitted.id_of(p).startswith(UNSUBMITTED)
        ]
        if missing:
            run_id = self._record.run_id
            raise InputError(
                f"not all jobs of {missing[0]} are submitted, and the others cannot be stopped yet",
                hint=f"`batchyard stop {run_id}` stops the whole run, and submits no more of it",
            )
        return 0.0

    def fetch(self, folder: Path | None = None) -> tuple[int, Path]:
        destination = folder or self._workspace_folder
        if destination is None:
            raise InputError(
                self._why_no_workspace(),
                hint="name a folder: --to DIR, or fetch(to=...) in Python",
            )
        count = staging.fetch_outputs(self.s3, self._plan.jobs, destination, self._target.workspace)
        return count, destination

    @property
    def _workspace_folder(self) -> Path | None:
        """The folder on this machine that the run's files came from, and go back to."""
        folder = Path(self._record.workspace) if self._record.workspace else None
        return folder if folder is not None and folder.is_dir() else None

    @property
    def _is_from_elsewhere(self) -> bool:
        """Whether the run's files came from a folder, and that folder is not on this machine."""
        environment = self._target.environment
        runs = s3_layout.runs_address(environment.bucket, environment.prefix)
        return self._target.workspace.startswith(runs) and self._workspace_folder is None

    def _why_no_workspace(self) -> str:
        run_id, folder = self._record.run_id, self._record.workspace
        if not self._is_from_elsewhere:
            return f"the workspace of run {run_id} is in S3"
        if folder:
            return f"the workspace of run {run_id} is not here: there is no folder {folder}"
        return f"run {run_id} was begun on another machine, and its workspace is there"

    # -- looking -------------------------------------------------------------------------------

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        by_id = {detail.id: detail for detail in self._standing.details()}
        return [by_id[job_id] for job_id in job_ids if job_id in by_id]

    def attempts(
        self, job_ids: Sequence[str], *, failed_only: bool = False
    ) -> Iterator[AttemptDetail]:
        for part, children in self._children(job_ids, failed_only):
            if not any(job.get("attempts") for job in children):
                continue  # nothing of it ever started: the job's own status says why
            planned = self._plan.job(part.step)
            for job in children:
                ended = list(details.attempts(part, planned, job))
                yield from [last for last in ended[-1:] if last.attempt] if failed_only else ended

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        return self.log_reader.read(step, index, failed_only=failed_only)

    @property
    def log_reader(self) -> LogReader:
        if self._reader is None:
            group = self._target.environment.log_group
            children, parts = Children(self.batch), self._submitted.parts_with_ids
            self._reader = LogReader(
                self._logs, group, self._plan, children, parts, self._standing.details
            )
        return self._reader

    @property
    def job_ids(self) -> list[str]:
        return self._submitted.ids

    @property
    def is_submitted(self) -> bool:
        return self._submitted.is_whole

    def overview(self) -> Overview:
        was_over = self.is_over_by_record
        overview = self._standing.overview()
        if overview.state is not RunState.RUNNING and not was_over:
            self._tidy()
        return overview

    def unfinished(self) -> Unfinished:
        return Unfinished(*self._standing.unfinished())

    def waits(self, jobs: Sequence[JobDetail]) -> list[Wait]:
        """See the contract. One call for each array with children that wait.

        AWS does not say since when a job is RUNNABLE: since it was created, or since the jobs that
        it depends on ended.
        """
        ended_ms = {detail.step: detail.ended_ms or 0 for detail in jobs}
        waits = []
        for detail in jobs:
            count = detail.count(JobState.RUNNABLE)
            if not count:
                continue
            child_id = detail.id
            if detail.size > 1:
                child_id = next(self.batch.children(detail.id, JobState.RUNNABLE), detail.id)
            needs = self._plan.job(detail.step).needs
            ready_ms = max((ended_ms.get(need.step, 0) for need in needs), default=0)
            since_ms = max(detail.created_ms, ready_ms)
            name = self._target.environment.name
            waits.append(Wait(detail.step, count, child_id, since_ms, name))
        return waits

    def setup(self) -> RunSetup:
        return RunSetup(
            "aws",
            self._record.workspace,
            workspace_address=self._target.workspace,
            environment=self._target.environment,
        )

    @property
    def answer_source(self) -> str:
        return self._standing.source

    @property
    def is_over_by_record(self) -> bool:
        final = self._standing.final()
        return final is not None and final.was_stopped is not None

    @property
    def is_deletable(self) -> bool:
        if self.overview().state is not RunState.RUNNING:
            return True
        # Nothing of the run was ever submitted, and its bucket is gone.
        journal = self._submitted.journal
        return not (journal.ids or journal.intended) and self._kept.is_bucket_gone

    def load_lists(self) -> Plan:
        """Return the plan with its lists, from the run's folder, or from S3 on another machine."""
        lists = dict(self._plan.lists)
        for job in self._plan.jobs:
            if job.has_list and job.step not in lists:
                lists[job.step] = self._load_list(job.step)
        return replace(self._plan, lists=lists)

    def _load_list(self, step: str) -> Sequence[str]:
        if self._record.folder.list_of(step).exists():
            return self._record.folder.load_list(step)
        address = s3_layout.list_address(self._target.address, step)
        text = self.s3.get(address)
        if text is None:
            raise InputError(
                f"the list of {step} is not at {address}",
                hint="start the run anew from its file",
            )
        return text.decode().removesuffix("\n").split("\n")

    def _require_not_stopped(self) -> None:
        """Raise RunStoppedError where jobs are missing that will never be submitted."""
        if not self.is_submitted and self._standing.was_stopped:
            run_id = self._target.run_id
            raise RunStoppedError(
                f"run {run_id} was stopped before all of it was submitted",
                hint=f"`batchyard retry {run_id}` runs what is left",
            )

    @property
    def skipped_commands(self) -> dict[str, list[int]]:
        """Step -> commands that an earlier run has finished."""
        return {step: sorted(numbers) for step, numbers in self._ledger.skipped.items()}

    def expect_jobs_of_others(self) -> None:
        """Mark all parts as intended: another machine may have submitted them.

        Before such a part is submitted here, its job is looked for by its name.
        """
        for part in self._submitted.rendered.parts:
            if part.name not in self._submitted.journal.ids:
                self._submitted.journal.intend(part.name)

    def _tidy(self) -> None:
        """Delete the counters of a run that is over, if this user may."""
        for name in self._submitted.rendered.counters:
            with suppress(BatchyardError):
                self.batch.delete_consumable(name)

    # -- submitting -------------------------------------------------------------------------------------------

    def _definitions(self) -> dict[str, str]:
        """name -> `name:revision`; what is not there yet is registered."""
        wanted = self._submitted.rendered.definitions
        there = self.batch.active_definitions(wanted)
        return {
            name: there.get(name) or self.batch.register(request)
            for name, request in wanted.items()
        }

    def _submit(self, part: Part, definition: str) -> None:
        journal = self._submitted.journal
        if part.name in journal.ids:
            return
        there = self._find(part) if part.name in journal.intended else None
        if there is None:
            journal.intend(part.name)
            depends_on = [
                {"jobId": journal.ids[name], **({"type": "N_TO_N"} if is_each else {})}
                for name, is_each in part.needs
            ]
            request = {**part.request, "jobDefinition": definition, "dependsOn": depends_on}
            there = self.batch.submit(request)
        self._submitted.note(part, there)

    def _heed_stop(self) -> None:
        """Where somebody has stopped the run in the meantime, here or on another machine: so is what was submitted."""
        stopped = self._kept.get(s3_layout.STOP_REQUEST)
        if stopped is None:
            return
        self._kept.put(s3_layout.STOP_REQUEST, stopped)
        if not self.is_submitted:
            self._submitted.keep()
        _require_none(self._terminate(self._submitted.rendered.parts, stopped["reason"]))
        self._require_not_stopped()

    def _find(self, part: Part) -> str | None:
        """The part's job, if a process that died had submitted it. What it sent last may still be on its way."""
        queue = str(part.request["jobQueue"])
        there = self.batch.find(queue, part.name)
        left_s = self._submitted.found_at + _SETTLING_S - self._clock()
        if there is None and left_s > 0:
            self._sleep(min(left_s, _SETTLING_S))
            there = self.batch.find(queue, part.name)
        return there

    # -- stopping ---------------------------------------------------------------------------------------------

    def _look_for(self, parts: Iterable[Part]) -> list[str]:
        """What of these another machine has submitted, or a process that died, whose ids have not come here. Returns
        what could not be looked for."""
        problems = []
        for part in parts:
            if part.name in self._submitted.journal.ids:
                continue
            try:
                there = self._find(part)
            except AwsRefusedError:
                continue  # there is no such queue any more, and so no job in it
            except OperationalError as exc:
                problems.append(f"{part.name}: {exc.message}")
                continue
            if there is not None:
                self._submitted.note(part, there)
        return problems

    def _terminate(self, parts: Iterable[Part], reason: str) -> list[str]:
        """Returns what could not be stopped."""
        ids = self._submitted.journal.ids
        wanted = {part.name: ids[part.name] for part in parts if part.name in ids}
        now = self.batch.describe(list(wanted.values()))
        problems = []
        # Last first: what depends on another stopped job then fails for this reason, and not for that one's failure.
        for name, job_id in reversed(wanted.items()):
            if job_id in now and JobState(now[job_id]["status"]).is_terminal:
                continue
            try:
                self.batch.terminate(job_id, reason)
            except (AwsRefusedError, OperationalError) as exc:
                problems.append(f"{name} ({job_id}): {exc.message}")
        return problems

    # -- asking -----------------------------------------------------------------------------------------------

    def _children(
        self, job_ids: Sequence[str], failed_only: bool
    ) -> Iterator[tuple[Part, list[Any]]]:
        """The jobs' children as AWS describes them, or the jobs themselves where they have none; a hundred failed ones
        at a time, since some readers need only the first."""
        for part, job_id in self._submitted.parts_with_ids():
            if (
                job_id not in job_ids
                or job_id.startswith(UNSUBMITTED)
                or job_id in self._standing.forgotten
            ):
                continue
            if part.size == 1:
                ids = [job_id]
            elif failed_only:
                ids = sorted(self.batch.children(job_id, JobState.FAILED), key=number_of)
            else:
                ids = [f"{job_id}:{child}" for child in range(part.size)]
            at_once = _FAILED_AT_ONCE if failed_only else len(ids)
            for first in range(0, len(ids), at_once or 1):
                known = self.batch.describe(ids[first : first + at_once])
                found = [known[one] for one in sorted(known, key=number_of)]
                yield (
                    part,
                    [job for job in found if not failed_only or job["status"] == JobState.FAILED],
                )


def _require_none(problems: Sequence[str]) -> None:
    if problems:
        raise OperationalError(
            "could not stop all of it:\n  " + "\n  ".join(problems), hint="stop it again"
        )
