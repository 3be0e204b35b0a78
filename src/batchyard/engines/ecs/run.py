"""One run of the ECS engine: its tasks, its files in S3, its output in CloudWatch Logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard import s3_layout
from batchyard.aws.ecs import MAX_DESCRIBED_TASKS, Ecs
from batchyard.aws.logs import Logs
from batchyard.aws.s3 import S3
from batchyard.aws.session import AwsSession
from batchyard.embedded.lock import RunLock
from batchyard.engines.aws import from_aws, staging
from batchyard.engines.aws.definitions import needs_worker
from batchyard.engines.aws.input_files import RunInputs
from batchyard.engines.aws.log_reader import LogReader
from batchyard.engines.aws.results import RunResults
from batchyard.engines.aws.run_commands import RunCommands
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.aws.step_scales import StepScales
from batchyard.engines.aws.success_records import SuccessRecords
from batchyard.engines.aws.target import Target
from batchyard.engines.base import (
    AttemptDetail,
    CommandDetail,
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
    Watcher,
    say_nothing,
)
from batchyard.engines.ec2_hosts import HostFinder
from batchyard.engines.ecs import requests
from batchyard.engines.ecs.cost_watch import CostWatch
from batchyard.engines.ecs.launches import AttemptKey, Launches
from batchyard.engines.ecs.task_logs import TaskStreams
from batchyard.engines.ecs.usage_records import (
    EcsUsage,
    TaskAttempt,
    instance_arn,
    read_ended_attempt,
    read_running_attempt,
)
from batchyard.engines.scheduled.run import ScheduledRun
from batchyard.engines.usage import Usage
from batchyard.errors import BatchyardError, InputError
from batchyard.plan import Plan, PlannedJob
from batchyard.sampling.samples import SampledStep
from batchyard.worker.leases import Owner

#: Keys of the store: whether everything that the tasks need is in S3; why no further child starts.
_STAGED, _HELD = "staged", "held"


class EcsRun(ScheduledRun):
    """A run on an ECS cluster, executed by a process of this machine. See RunEngine."""

    status_polling = Polling(0.2, 1.0)
    #: Each look at the logs is a call for a hundred tasks.
    log_polling = Polling(1.0, 5.0)
    records_commands = False

    def __init__(
        self,
        record: RunRecord,
        session: AwsSession | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(record, clock)
        self._target: Target = record.settings
        target, environment = self._target, self._target.environment
        session = session or AwsSession(environment.region, environment.profile)
        self._session = session
        self.s3 = S3(session)
        self._ecs = Ecs(session)
        self._sleep = sleep
        self._files = RunFiles(record.folder.path, target.address, self.s3)
        self.inputs = RunInputs(record, self.s3, self._files)
        self._records = SuccessRecords(record.plan, self.s3, self._files, target.address)
        self._commands = RunCommands(
            record.plan, self.s3, self._records, target.address, self._find_attempt
        )
        self._results = RunResults(record, self.s3)
        self._scales = StepScales(record.plan, target.address, self.s3, self._files)
        self._launches = Launches(record.folder.journal, clock)
        self._usage = EcsUsage(
            HostFinder(session),
            self._files,
            record.plan,
            self._list_task_attempts,
            self.commands,
            environment.region,
            clock,
        )
        #: Step -> ARN of its task definition.
        self._definitions: dict[str, str] = {}
        self._reader: LogReader | None = None

    # -- actions ---------------------------------------------------------------------------------

    def start(self, say: Say = say_nothing) -> None:
        """Upload files and lists, and start the process that executes the run."""
        lock = RunLock(self._folder.lock)
        try:
            self._stage(say)
        finally:
            lock.release()
        super().start(say)

    def _stage(self, say: Say) -> None:
        """Upload what the tasks need; what is there already is not repeated."""
        if self._store.value(_STAGED) is not None:
            return
        plan = self.load_lists()
        self.inputs.store(plan, say)
        if self.skipped_commands:
            self._files.write(s3_layout.SKIPPED_COMMANDS, self.skipped_commands)
        staging.upload_orders(
            self.s3, plan, self._target, self.skipped_commands, self.inputs.load()
        )
        for job in plan.jobs:
            self._find_definition(job)
        self._store.commit(values=[(_STAGED, "yes")])

    def _find_definition(self, job: PlannedJob) -> str:
        """Return the ARN of the step's task definition, which is registered if it is new."""
        if job.step not in self._definitions:
            request = requests.make_definition(job, self._target)
            arn = self._ecs.find_definition(request["family"])
            self._definitions[job.step] = arn or self._ecs.register_definition(request)
        return self._definitions[job.step]

    def _execute(
        self, watcher: Watcher, last_request: int, *, only_stops: bool, supervise: Supervise
    ) -> None:
        # Others only read the run, and need no scheduler.
        from batchyard.engines.ecs.site import EcsSite
        from batchyard.engines.scheduled.execution import Execution, HoldRule

        if not only_stops:
            self._stage(watcher.note)
        site = EcsSite(
            self._record,
            self._store,
            self._ecs,
            self._launches,
            self._find_definition,
            watcher,
            self._clock,
        )
        hold = None
        if self._record.cap is not None:
            hold = HoldRule(
                self._find_held, site.runner.list_waiting, self._has_unfinished_commands
            )
        watch = CostWatch(
            self._look_at_hosts, supervise, self._separate_store, watcher.note
        ).watch()
        try:
            with watch:
                Execution(self._record, self._store, site, self._clock, hold).run(
                    watcher, last_request
                )
        except BatchyardError:
            run_id = self._record.run_id
            watcher.note(
                f"the tasks of the run go on: `batchyard resume {run_id}` continues it, "
                f"`batchyard stop {run_id}` ends it"
            )
            raise
        finally:
            site.close()
        self.record_usage(self.overview())
        if not only_stops:
            self._fetch_results(watcher.note)

    def _fetch_results(self, say: Say) -> None:
        try:
            self._results.fetch_at_end(say)
        except (KeyboardInterrupt, BatchyardError):
            run_id = self._record.run_id
            say(f"the run is {self.run_state}: `batchyard fetch {run_id}` downloads its results")
            raise

    def hold(self, reason: str) -> None:
        if not self._find_held():
            self._store.commit(values=[(_HELD, reason)])
        self._scales.dismiss_children()

    def _find_held(self) -> str:
        return self._store.value(_HELD) or ""

    def _has_unfinished_commands(self) -> bool:
        """Return whether workers were dismissed before the commands of their step were done."""
        return any(map(from_aws.has_unfinished_commands, self.describe(self.job_ids)))

    def scale(self, step: str, children: int) -> int:
        raise InputError(
            f"run {self._record.run_id} is on a cluster, where the children of a step are fixed",
            hint="`scale` is for runs on this machine",
        )

    def fetch(self, folder: Path | None = None) -> tuple[int, Path]:
        return self._results.fetch(folder)

    # -- state -----------------------------------------------------------------------------------

    def overview(self) -> Overview:
        overview = super().overview()
        held = self._find_held() if self._record.cap is not None else ""
        jobs = overview.jobs
        if held and overview.state is not RunState.RUNNING:
            jobs = tuple(from_aws.hold_back(job, held) for job in jobs)
        return replace(overview, jobs=jobs, held=held)

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        return [self._add_command_counts(job) for job in super().describe(job_ids)]

    def _add_command_counts(self, job: JobDetail) -> JobDetail:
        """Return the job with the numbers of its commands, where workers record them in blocks."""
        if not self._plan.job(job.step).is_dynamic or job.started_ms is None:
            return job
        with self._files.tolerate_missing_bucket():
            return replace(job, commands=self._records.blocks_of_step(job.step).counts())
        return job

    def step_uses(self, *, asks: bool = True) -> Mapping[str, SampledStep]:
        return self._commands.step_uses() if asks else {}

    def commands(
        self, step: str | None = None, number: int | None = None, *, failed_only: bool = False
    ) -> Iterator[CommandDetail]:
        attempts = self.attempts(self.job_ids, failed_only=failed_only)
        return self._commands.find(attempts, step, number, failed_only=failed_only)

    def _find_attempt(self, owner: Owner) -> tuple[int, int]:
        """Return the child and the attempt of a worker, which knows only its task."""
        self._launches.refresh()
        key = self._launches.find_key(owner.job)
        if key is None:
            return owner.child, owner.attempt
        number, child, attempt = key
        return self._plan.jobs[number].index_in_step(child), attempt

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
            streams = TaskStreams(self._plan, self._launches, lambda: self._store)
            group = requests.log_group_of(self._target.environment)
            self._reader = LogReader(
                Logs(self._session), group, self._plan, streams, self._clock, self._sleep
            )
        return self._reader

    def unfinished(self) -> Unfinished:
        children: dict[str, list[int]] = {}
        commands_done: dict[str, list[int]] = {}
        for row in self._store.jobs():
            job = self._plan.job(row.step)
            succeeded = self.succeeded_children(row)
            children[row.step] = [
                job.index_in_step(child) for child in range(row.size) if child not in succeeded
            ]
            # Children of a dynamic step end well when a run is held, with commands left.
            was_held = job.is_dynamic and bool(self._find_held())
            if not (children[row.step] or was_held) or not needs_worker(job):
                continue
            commands_done[row.step] = self._records.finished_commands(row.step)
            if job.is_dynamic:
                count = job.command_count - len(commands_done[row.step])
                children[row.step] = list(range(min(job.step_size, count)))
        return Unfinished(children, commands_done)

    def attempts(
        self,
        job_ids: Sequence[str],
        *,
        failed_only: bool = False,
        index: int | None = None,
        since_ms: int | None = None,
    ) -> Iterator[AttemptDetail]:
        cluster = self._target.environment.cluster or ""
        host_ids = self._usage.read_host_ids()
        for attempt in super().attempts(
            job_ids, failed_only=failed_only, index=index, since_ms=since_ms
        ):
            arn = instance_arn(cluster, attempt.host)
            yield replace(attempt, host=host_ids.get(arn, arn.rpartition("/")[2]))

    def waits(self, jobs: Sequence[JobDetail]) -> None:
        return None

    def setup(self) -> RunSetup:
        return RunSetup(
            "ecs",
            self._record.workspace,
            workspace_address=self._target.workspace,
            environment=self._target.environment,
        )

    def usage(self, *, asks: bool = True) -> Usage | None:
        if not asks:
            return self._usage.read_local()
        return self._usage.refresh(is_over=self.run_state is not RunState.RUNNING)

    def record_usage(self, overview: Overview) -> None:
        is_over = overview.state is not RunState.RUNNING
        if is_over or self._usage.is_due():
            # A run goes on without its bill.
            with suppress(BatchyardError), self._session.giving_up_early():
                self._usage.refresh(is_over=is_over)

    def _look_at_hosts(self) -> Overview:
        overview = self.overview()
        self.record_usage(overview)
        return overview

    def store_prices(self, prices: Mapping[str, Any]) -> None:
        self._usage.store_prices(prices)

    def _list_task_attempts(self) -> Iterator[TaskAttempt]:
        """Yield the attempts that have begun: those that ended, and those that run now."""
        ended: set[AttemptKey] = set()
        cluster = self._target.environment.cluster or ""
        for job in self._store.jobs():
            planned = self._plan.job(job.step)
            for row in self._store.attempts(job.number):
                ended.add((job.number, row.child, row.attempt))
                if row.started_ms is not None:
                    yield read_ended_attempt(planned, row, instance_arn(cluster, row.place))
        if self.run_state is RunState.RUNNING:
            yield from self._list_running_attempts(cluster, ended)

    def _list_running_attempts(self, cluster: str, ended: Set[AttemptKey]) -> Iterator[TaskAttempt]:
        self._launches.refresh()
        keys = {
            launched.arn: key
            for key, launched in self._launches.list_all()
            if launched.arn is not None and key not in ended
        }
        arns = list(keys)
        for first in range(0, len(arns), MAX_DESCRIBED_TASKS):
            tasks = self._ecs.describe_tasks(cluster, arns[first : first + MAX_DESCRIBED_TASKS])
            for arn, task in tasks.items():
                number, child, attempt = keys[arn]
                running = read_running_attempt(self._plan.jobs[number], child, attempt, task)
                if running is not None:
                    yield running

    def load_lists(self) -> Plan:
        """Return the plan with its lists."""
        return staging.load_lists(self.s3, self._record)

    @property
    def skipped_commands(self) -> dict[str, list[int]]:
        """Step -> commands that an earlier run has finished."""
        return {step: sorted(numbers) for step, numbers in self._records.skipped.items()}
