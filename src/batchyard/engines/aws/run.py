"""One run of the AWS engine, over AWS Batch, S3 and CloudWatch Logs.

The whole plan is submitted at once, chained by dependsOn; after that no process of ours is needed.
What was submitted is in the run's folder (``journal``) and, for other machines, in S3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from batchyard import s3_layout
from batchyard.aws.batch import Batch
from batchyard.aws.logs import Logs
from batchyard.aws.s3 import S3
from batchyard.aws.session import AwsSession
from batchyard.aws.submit_job import JobSubmitter
from batchyard.batch.jobs import JobState
from batchyard.embedded.lock import RunLock
from batchyard.engines.aws import from_aws, spot_fallback, staging
from batchyard.engines.aws.changed_children import ChangedChildren, number_of
from batchyard.engines.aws.failed_attempts import FailedAttempts
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.input_files import RunInputs
from batchyard.engines.aws.job_ids import JobIds
from batchyard.engines.aws.log_reader import LogReader
from batchyard.engines.aws.log_streams import BatchStreams
from batchyard.engines.aws.render import Part, find_ready_times
from batchyard.engines.aws.repeated_jobs import RepeatedJobs
from batchyard.engines.aws.results import RunResults
from batchyard.engines.aws.run_commands import RunCommands
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.aws.run_status import RunStatusReader
from batchyard.engines.aws.scaling import Scaling
from batchyard.engines.aws.spot_fallback import SpotMoves
from batchyard.engines.aws.step_scales import StepScales
from batchyard.engines.aws.submission import RunStoppedError, Submission
from batchyard.engines.aws.success_records import SuccessRecords
from batchyard.engines.aws.target import Target
from batchyard.engines.aws.usage_records import UsageRecords
from batchyard.engines.base import (
    DEFAULT_GRACE_S,
    AttemptDetail,
    Backoff,
    CommandDetail,
    Fallback,
    FallbackRun,
    JobDetail,
    LogChunk,
    Overview,
    Polling,
    RunRecord,
    RunSetup,
    RunState,
    Say,
    Supervise,
    Unfinished,
    Wait,
    Watcher,
    say_nothing,
    supervise_nothing,
)
from batchyard.engines.busy_service import PatientCaller
from batchyard.engines.ec2_hosts import HostFinder
from batchyard.engines.usage import Usage
from batchyard.errors import BatchyardError, InputError, RunLockedError
from batchyard.plan import Plan
from batchyard.sampling.samples import AttemptUse, SampledStep
from batchyard.units import pluralize

#: AWS Batch has one grace, and takes a while to end the containers after it.
_STOP_WAIT_S = 60.0
#: Seconds after SubmitJob in which a job that AWS does not show is not a forgotten one.
_NEW_S = 3600.0


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
        self._session = session
        self.batch = Batch(session)
        self.s3 = S3(session)
        self._logs = Logs(session)
        self._clock, self._sleep = clock, sleep
        self._files = RunFiles(record.folder.path, target.address, self.s3)
        self.inputs = RunInputs(record, self.s3, self._files)
        self._records = SuccessRecords(plan, self.s3, self._files, target.address)
        self._commands = RunCommands(plan, self.s3, self._records, target.address)
        self._results = RunResults(record, self.s3)
        self._scales = scales = StepScales(plan, target.address, self.s3, self._files)
        self._job_ids = JobIds(plan, target, record.folder.journal, self._files, scales, clock)
        self._status = RunStatusReader(
            plan, self.batch, self._job_ids, self._files, self._records, clock
        )
        self._failed_attempts = FailedAttempts(
            plan, self.batch, self._files, self._parts_known_to_aws, self._status.end_states
        )
        self._usage = UsageRecords(
            plan,
            self.batch,
            HostFinder(session),
            self._files,
            self._job_ids.parts_with_ids,
            self.commands,
            environment.region,
            clock,
        )
        self._moves = SpotMoves(plan, target, self._files)
        self._repeated_jobs = RepeatedJobs(self.batch, self._job_ids, clock)
        self._submission = Submission(
            target.run_id,
            self.batch,
            JobSubmitter(session, sleep),
            self._job_ids,
            self._files,
            clock,
            sleep,
        )
        self._scaling = Scaling(
            plan, self.batch, self._job_ids, scales, self._submission, self._records
        )
        self._reader: LogReader | None = None

    def close(self) -> None:
        """Do nothing: no connection is held."""

    # -- doing ---------------------------------------------------------------------------------

    def submit(self, plan: Plan) -> list[str]:
        if not self.is_submitted:
            staging.upload_orders(
                self.s3, plan, self._target, self.skipped_commands, self.inputs.load()
            )
            self._submission.submit_all()
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
        self._submission.require_not_stopped()
        if self.is_submitted:
            return
        plan = self.load_lists()
        self.inputs.store(plan, say)
        text = self._record.folder.record.read_bytes()
        self.s3.put(self._target.address + s3_layout.RUN_RECORD, text, "application/json")
        if self.skipped_commands:
            self._files.write(s3_layout.SKIPPED_COMMANDS, self.skipped_commands)
        if self._record.cap is not None:
            staging.upload_cap(self.s3, self._record.cap, plan, self._target, self._clock())
        self.submit(plan)

    def execute(
        self,
        watcher: Watcher,
        *,
        carry_out_old_stops: bool = False,
        supervise: Supervise = supervise_nothing,
    ) -> None:
        self.start(watcher.note)
        run_id = self._record.run_id
        try:
            overview = self._follow(watcher, supervise)
        except (KeyboardInterrupt, BatchyardError):
            watcher.note(
                f"the run goes on without this command: `batchyard status {run_id} --watch` "
                f"follows it, `batchyard stop {run_id}` ends it"
            )
            raise
        if overview.state is RunState.RUNNING:
            return
        try:
            self._results.fetch_at_end(watcher.note)
        except (KeyboardInterrupt, BatchyardError):
            watcher.note(
                f"the run is {overview.state}: `batchyard fetch {run_id}` downloads its results"
            )
            raise

    def _follow(self, watcher: Watcher, supervise: Supervise) -> Overview:
        """Return the overview at the run's end, or once the run turns out to be interrupted."""
        backoff = Backoff(self.status_polling)
        waiting_steps: set[str] = set()
        caller = PatientCaller(watcher.note, self._sleep, was_answered=True)
        while True:
            overview = caller.call(self.overview)
            self.record_usage(overview)
            if overview.state is not RunState.RUNNING or overview.is_interrupted:
                return overview
            watcher.jobs_changed(overview.jobs)
            for job in overview.jobs:
                if job.count(JobState.RUNNABLE) == job.size and job.step not in waiting_steps:
                    waiting_steps.add(job.step)
                    children = pluralize(job.size, "child", "children")
                    watcher.note(f"{job.step}: RUNNABLE, {children} waiting for a host")
            delay_s = backoff.next_delay_s([job.counts for job in overview.jobs])
            self._sleep(min(delay_s, caller.call(partial(supervise, overview))))

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = DEFAULT_GRACE_S) -> float:
        """See the contract. AWS Batch has one grace: 30 s."""
        steps = {
            part.step
            for part in self._job_ids.rendered.parts
            if self._job_ids.id_of(part) in job_ids
        }
        return _STOP_WAIT_S if self._submission.stop(steps, reason) else 0.0

    def hold(self, reason: str) -> None:
        if self._status.held_reason is None:
            # First the record: it explains children that end before their commands are done.
            self._files.write(s3_layout.HELD, {"reason": reason})
        self._scales.dismiss_children()
        self._submission.cancel_waiting(reason)

    def leave_spot(self, step: str, reason: str) -> bool:
        if not spot_fallback.can_move(self._plan, self._target, step):
            return False
        # First the record: without it, the end of these jobs would be a failure like any other.
        self._moves.record_waiting(step)
        self._submission.end_waiting({step}, reason)
        return True

    def find_fallback(self) -> Fallback | None:
        if self._plan.spot is None or self.overview().state is not RunState.FAILED:
            return None
        if self._moves.read_run() is not None:
            return None
        return spot_fallback.find_fallback(
            self._plan,
            self._target,
            self.attempts(self.job_ids, failed_only=True),
            self._moves.read_waited_steps(),
            self.unfinished(),
        )

    def record_fallback(self, fallback: FallbackRun) -> bool:
        return self._moves.record_run(fallback)

    def scale(self, step: str, children: int) -> int:
        if not self.is_submitted:
            raise InputError(
                f"not all of run {self._record.run_id} is submitted",
                hint=f"`batchyard resume {self._record.run_id}` submits the rest",
            )
        lock = RunLock(self._record.folder.lock)  # two processes would add the children twice
        try:
            return self._scaling.scale(step, children)
        finally:
            lock.release()

    def fetch(self, folder: Path | None = None) -> tuple[int, Path]:
        return self._results.fetch(folder)

    # -- looking -------------------------------------------------------------------------------

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        by_id = {detail.id: detail for detail in self._status.describe_jobs()}
        return [by_id[job_id] for job_id in job_ids if job_id in by_id]

    def attempts(
        self,
        job_ids: Sequence[str],
        *,
        failed_only: bool = False,
        index: int | None = None,
        since_ms: int | None = None,
    ) -> Iterator[AttemptDetail]:
        attempts = (
            self._failed_attempts.find(job_ids)
            if failed_only
            else self._ended_attempts(job_ids, index)
        )
        for attempt in attempts:
            is_new = since_ms is None or attempt.ended_ms >= since_ms
            if is_new and index in (None, attempt.index):
                yield attempt

    def _ended_attempts(self, job_ids: Sequence[str], index: int | None) -> Iterator[AttemptDetail]:
        host_ids = self._usage.read_host_ids()
        for part, children in self._describe_children(job_ids, index):
            if not any(job.get("attempts") for job in children):
                continue  # nothing of it ever started: the job's own status says why
            planned = self._plan.job(part.step)
            for job in children:
                yield from from_aws.make_attempts(part, planned, job, host_ids)

    def running_children(self, jobs: Sequence[JobDetail]) -> list[tuple[str, int]]:
        running = {job.id for job in jobs if job.count(JobState.RUNNING)}
        children = []
        for part, job_id in self._parts_known_to_aws():
            if job_id in running:
                planned = self._plan.job(part.step)
                numbers = [0]
                if part.size > 1:
                    ids = self.batch.children(job_id, JobState.RUNNING)
                    numbers = sorted(map(number_of, ids))
                children += [
                    (part.step, planned.index_in_step(part.offset + number)) for number in numbers
                ]
        return children

    def running_uses(self) -> Sequence[AttemptUse]:
        return ()

    def step_uses(self, *, asks: bool = True) -> Mapping[str, SampledStep]:
        return self._commands.step_uses() if asks else {}

    def commands(
        self, step: str | None = None, number: int | None = None, *, failed_only: bool = False
    ) -> Iterator[CommandDetail]:
        attempts = self.attempts(self.job_ids, failed_only=failed_only)
        return self._commands.find(attempts, step, number, failed_only=failed_only)

    def durations(self, step: str) -> Iterator[tuple[int, float]]:
        # Lengths are no reason to wait long: a new run goes on without them.
        with self._session.giving_up_early():
            return self._commands.durations(step)

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        return self.log_reader.read(step, index, failed_only=failed_only)

    @property
    def log_reader(self) -> LogReader:
        if self._reader is None:
            group = self._target.environment.log_group
            streams = BatchStreams(
                self._plan,
                ChangedChildren(self.batch, self._is_new),
                self._job_ids.parts_with_ids,
                self._status.describe_jobs,
            )
            self._reader = LogReader(
                self._logs, group, self._plan, streams, self._clock, self._sleep
            )
        return self._reader

    def _is_new(self, part: Part) -> bool:
        submitted_at_s = self._job_ids.journal.submitted_at.get(part.name, 0.0)
        return self._clock() - submitted_at_s < _NEW_S

    @property
    def job_ids(self) -> list[str]:
        return self._job_ids.ids

    @property
    def is_submitted(self) -> bool:
        return self._job_ids.is_complete

    def overview(self) -> Overview:
        # Those who watch the run say that AWS does not answer, and ask again.
        with self._session.giving_up_early():
            was_over = self.is_over_by_record
            if not was_over:
                self._job_ids.refresh()
            self._repeated_jobs.terminate(is_run_over=was_over)
            # Those who watch a run record its hosts: that needs no call of its own.
            overview = self._status.overview(self._usage.next_ids)
            if overview.state is not RunState.RUNNING and not was_over:
                self._submission.delete_counters()
            held = self._status.held_reason if self._record.cap else None
            return self._moves.add_to(replace(overview, held=held or ""))

    def unfinished(self) -> Unfinished:
        return self._status.unfinished()

    def waits(self, jobs: Sequence[JobDetail]) -> list[Wait]:
        """See the contract. One call for each array with children that wait.

        AWS does not say since when a job is RUNNABLE: since it was created, or since the jobs that
        it depends on ended.
        """
        names = {job_id: part.name for part, job_id in self._job_ids.parts_with_ids()}
        ready_ms = find_ready_times(
            self._job_ids.rendered.parts,
            {names[detail.id]: detail.ended_ms or 0 for detail in jobs if detail.id in names},
        )
        waits = []
        for detail in jobs:
            count = detail.count(JobState.RUNNABLE)
            if not count:
                continue
            child_id = detail.id
            if detail.size > 1:
                child_id = next(self.batch.children(detail.id, JobState.RUNNABLE), detail.id)
            since_ms = max(detail.created_ms, ready_ms.get(names.get(detail.id, ""), 0))
            diagnosis = f"doctor job {child_id} --env {self._target.environment.name}"
            waits.append(Wait(detail.step, count, child_id, since_ms, diagnosis))
        return waits

    def setup(self) -> RunSetup:
        return RunSetup(
            "aws",
            self._record.workspace,
            workspace_address=self._target.workspace,
            environment=self._target.environment,
            on_demand=self._target.on_demand,
        )

    def usage(self, *, asks: bool = True) -> Usage | None:
        stored = self._usage.read_local()
        if not asks or (stored is not None and stored.is_final):
            return stored
        return self._usage.refresh(self.overview())

    def record_usage(self, overview: Overview) -> None:
        # A run goes on without its bill.
        with suppress(BatchyardError), self._session.giving_up_early():
            self._usage.record(overview, self._status.described_children)

    def store_prices(self, prices: Mapping[str, Any]) -> None:
        self._usage.store_prices(prices)

    @property
    def answer_source(self) -> str:
        sentences = (self._status.answer_source, self._repeated_jobs.sentence)
        return "; ".join(filter(None, sentences))

    @property
    def is_over_by_record(self) -> bool:
        final = self._status.end_states()
        return final is not None and final.was_stopped is not None

    @property
    def is_deletable(self) -> bool:
        if self.overview().state is not RunState.RUNNING:
            return True
        # Nothing of the run was ever submitted, and its bucket is gone.
        journal = self._job_ids.journal
        return not (journal.ids or journal.intended_at) and self._files.is_bucket_gone

    def load_lists(self) -> Plan:
        """Return the plan with its lists, from the run's folder, or from S3 on another machine."""
        return staging.load_lists(self.s3, self._record)

    @property
    def skipped_commands(self) -> dict[str, list[int]]:
        """Step -> commands that an earlier run has finished."""
        return {step: sorted(numbers) for step, numbers in self._records.skipped.items()}

    def expect_jobs_of_others(self) -> None:
        """Mark all parts as intended: another machine may have submitted them.

        Before such a part is submitted here, its job is looked for by its name.
        """
        for part in self._job_ids.rendered.parts:
            if part.name not in self._job_ids.journal.ids:
                self._job_ids.journal.intend(part.name, self._clock())

    def _describe_children(
        self, job_ids: Sequence[str], index: int | None = None
    ) -> Iterator[tuple[Part, list[Any]]]:
        """Return the children as AWS describes them, or the jobs that are not arrays.

        ``index``: only the children with this number in their step.
        """
        for part, job_id in self._parts_known_to_aws():
            if job_id in job_ids:
                is_array = part.size > 1
                planned = self._plan.job(part.step)
                children = [
                    f"{job_id}:{child}"
                    for child in range(part.size)
                    if index in (None, planned.index_in_step(part.offset + child))
                ]
                answers = self.batch.describe(children if is_array else [job_id])
                yield part, [answers[child_id] for child_id in sorted(answers, key=number_of)]

    def _parts_known_to_aws(self) -> list[tuple[Part, str]]:
        """Return the parts, with their job ids, that are submitted and that AWS remembers."""
        return [
            (part, job_id)
            for part, job_id in self._job_ids.parts_with_ids()
            if not job_id.startswith(UNSUBMITTED) and job_id not in self._status.forgotten
        ]
