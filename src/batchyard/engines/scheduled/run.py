"""One run of the embedded scheduler: its state, and how it is executed and stopped."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from batchyard.batch.jobs import JobState
from batchyard.embedded.lock import Holder, RunLock, find_holder
from batchyard.embedded.store import CommandRow, JobRow, Store
from batchyard.engines.base import (
    DEFAULT_GRACE_S,
    AttemptDetail,
    Fallback,
    FallbackRun,
    JobDetail,
    Overview,
    Polling,
    RunRecord,
    RunState,
    Say,
    Supervise,
    Watcher,
    say_nothing,
    supervise_nothing,
)
from batchyard.engines.scheduled import reading
from batchyard.errors import InputError, OperationalError, RunLockedError
from batchyard.plan import Plan, PlannedJob
from batchyard.sampling.samples import AttemptUse, SampledStep

#: Time that a busy machine may take to stop a run, beyond the grace period.
_STOP_SLACK_S = 30.0

if TYPE_CHECKING:
    from batchyard.engines.usage import Usage


class ScheduledRun:
    """A run in its folder, opened by any process at any time. See RunEngine for the contract.

    Engines add how a run is executed, its output, its commands and its files.
    """

    status_polling = Polling(0.05, 0.05)
    answer_source = ""
    #: Whether the store has what each command of a child did.
    records_commands = True
    is_over_by_record = False

    def __init__(self, record: RunRecord, clock: Callable[[], float] = time.time) -> None:
        self._record = record
        self._folder = record.folder
        self._plan = record.plan
        self._clock = clock
        self._open_store: Store | None = None
        #: Stores of threads that have one of their own.
        self._thread_stores = threading.local()

    @property
    def _store(self) -> Store:
        store: Store | None = getattr(self._thread_stores, "store", None)
        if store is not None:
            return store
        if self._open_store is None:
            self._open_store = Store.open(self._folder.database)
        return self._open_store

    @contextmanager
    def _separate_store(self) -> Iterator[None]:
        """Give this thread a store of its own: a transaction of the loop is not its business."""
        with closing(Store.open(self._folder.database)) as store:
            self._thread_stores.store = store
            try:
                yield
            finally:
                del self._thread_stores.store

    def close(self) -> None:
        if self._open_store is not None:
            self._open_store.close()
            self._open_store = None

    # -- actions -------------------------------------------------------------------------------

    def submit(
        self, plan: Plan, commands_done: Mapping[str, Sequence[int]] | None = None
    ) -> list[str]:
        """Record the jobs. ``commands_done``: step -> commands that an earlier run finished."""
        with closing(Store.open(self._folder.database, create=True, is_draft=True)) as store:
            return self._submit_to(store, plan, commands_done or {})

    def _submit_to(
        self, store: Store, plan: Plan, commands_done: Mapping[str, Sequence[int]]
    ) -> list[str]:
        recorded = store.jobs()
        if recorded:
            return [row.id for row in recorded]
        now_ms = int(self._clock() * 1000)
        rows, command_rows = [], []
        for number, job in enumerate(plan.jobs):
            counts = tuple(job.size if state is JobState.PENDING else 0 for state in JobState)
            done = _done_before(job, commands_done.get(job.step, ()))
            row = JobRow(
                number,
                str(uuid.uuid4()),
                job.step,
                job.size,
                JobState.PENDING,
                "",
                counts,
                0,
                now_ms,
                commands_succeeded=len(done),
            )
            rows.append(row)
            command_rows += [
                CommandRow(number, command, child, attempt=0, exit_code=0)
                for command, child in done.items()
            ]
        store.commit(new_jobs=rows, commands=command_rows)
        return [row.id for row in rows]

    def start(self, say: Say = say_nothing) -> None:
        self._start_detached()

    def execute(
        self,
        watcher: Watcher,
        *,
        carry_out_old_stops: bool = False,
        supervise: Supervise = supervise_nothing,
    ) -> None:
        """See the contract. Raises RunLockedError if another process executes the run."""
        # Read before the lock is taken: a request after that is for this process.
        last_request = 0 if carry_out_old_stops else self._store.last_stop_request()
        lock = RunLock(self._folder.lock)
        try:
            if self.run_state is not RunState.RUNNING:
                return
            self._execute(
                watcher, last_request, only_stops=carry_out_old_stops, supervise=supervise
            )
        finally:
            lock.release()

    def _execute(
        self, watcher: Watcher, last_request: int, *, only_stops: bool, supervise: Supervise
    ) -> None:
        """Execute the run at the engine's site. The lock is held.

        ``only_stops``: the run is only to be ended, without any further command.
        """
        raise NotImplementedError

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = DEFAULT_GRACE_S) -> float:
        if self.run_state is not RunState.RUNNING:
            return 0.0
        run_id = self._record.run_id
        if self.holder is None and not set(self.job_ids) <= set(job_ids):
            raise InputError(
                f"run {run_id} is interrupted: no step of it runs",
                hint=f"`batchyard resume {run_id}` continues it, "
                f"`batchyard stop {run_id}` ends the whole run",
            )
        self._store.request_stop(job_ids, reason, grace_s)
        if self.holder is None:
            self._end_abandoned(job_ids, reason, grace_s)
        return grace_s + _STOP_SLACK_S

    def _end_abandoned(self, job_ids: Sequence[str], reason: str, grace_s: float) -> None:
        """Start a process that ends the run, since no process executes it."""
        try:
            self._start_detached(carry_out_old_stops=True)
        except (OperationalError, RunLockedError):
            if self.run_state is not RunState.RUNNING:
                return
            if self.holder is None:
                raise
            # Another process has just resumed the run, perhaps before the request was there.
            self._store.request_stop(job_ids, reason, grace_s)

    def _start_detached(self, *, carry_out_old_stops: bool = False) -> None:
        from batchyard.engines.scheduled import detached

        detached.start(self._record.folder, self, carry_out_old_stops=carry_out_old_stops)

    # -- state ---------------------------------------------------------------------------------

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        rows = {row.id: row for row in self._store.jobs()}
        return [
            reading.job_detail(
                row, self._plan.job(row.step), records_commands=self.records_commands
            )
            for job_id in job_ids
            if (row := rows.get(job_id)) is not None
        ]

    def attempts(
        self,
        job_ids: Sequence[str],
        *,
        failed_only: bool = False,
        index: int | None = None,
        since_ms: int | None = None,
    ) -> Iterator[AttemptDetail]:
        state = JobState.FAILED if failed_only else None
        for row in self._store.jobs():
            planned = self._plan.job(row.step)
            child = None if index is None else reading.child_of(planned, index)
            if row.id not in job_ids or (index is not None and child is None):
                continue
            rows = self._store.attempts(
                row.number, child=child, state=state, started_only=failed_only, since_ms=since_ms
            )
            for attempt, use in reading.join_uses(rows, self._store.uses(row.number, child=child)):
                yield reading.attempt_detail(attempt, row.id, planned, use)

    def running_children(self, jobs: Sequence[JobDetail]) -> list[tuple[str, int]] | None:
        """See the contract. Attempts are recorded when they have ended."""
        return None

    def running_uses(self) -> Sequence[AttemptUse]:
        return ()

    def step_uses(self, *, asks: bool = True) -> Mapping[str, SampledStep]:
        totals = self._store.total_uses()
        uses = {}
        for row in self._store.jobs():
            longest = self._store.longest_use(row.number) if row.number in totals else None
            if longest is not None:
                planned = self._plan.job(row.step)
                index = planned.index_in_step(longest.child)
                attempt = AttemptUse(row.step, index, longest.attempt, longest.use)
                uses[row.step] = SampledStep(totals[row.number], attempt)
        return uses

    @property
    def job_ids(self) -> list[str]:
        return [row.id for row in self._store.jobs()]

    @property
    def holder(self) -> Holder | None:
        """The process that executes the run now."""
        return find_holder(self._folder.lock)

    def hold(self, reason: str) -> None:
        """Do nothing: the engine keeps no caps."""

    def leave_spot(self, step: str, reason: str) -> bool:
        """Do nothing: this scheduler has no spot queue to leave."""
        return False

    def find_fallback(self) -> Fallback | None:
        return None

    def record_fallback(self, fallback: FallbackRun) -> bool:
        return False

    @property
    def executed_by(self) -> int | None:
        """Id of the process that last began to execute the run."""
        pid = self._store.value("executed_by")
        return None if pid is None else int(pid)

    @property
    def run_state(self) -> RunState:
        return RunState(self._store.value("state") or RunState.RUNNING)

    def overview(self) -> Overview:
        # Read before the state, so that a run that ends in between does not look abandoned.
        holder = self.holder
        state = self.run_state
        is_abandoned = state is RunState.RUNNING and holder is None
        return Overview(
            state=state,
            jobs=tuple(self.describe(self.job_ids)),
            started_ms=self._time_ms("started_ms"),
            ended_ms=self._time_ms("ended_ms"),
            interruption="its process died; its children may still run" if is_abandoned else "",
        )

    def succeeded_children(self, row: JobRow) -> set[int]:
        """Return the children of a job that have succeeded."""
        ended = self._store.attempts(row.number, state=JobState.SUCCEEDED)
        return {attempt.child for attempt in ended}

    def usage(self, *, asks: bool = True) -> Usage | None:
        return None

    def record_usage(self, overview: Overview) -> None:
        """Do nothing: the hosts cost nothing, or others use them, too."""

    def store_prices(self, prices: Mapping[str, Any]) -> None:
        """Do nothing: there are no prices."""

    @property
    def is_deletable(self) -> bool:
        return self.run_state is not RunState.RUNNING

    def require_over(self) -> None:
        """Raise InputError if the run is not over."""
        if self.run_state is not RunState.RUNNING:
            return
        state = "is still running" if self.holder else "is not over: its process died"
        command = "stop" if self.holder else "resume"
        run_id = self._record.run_id
        raise InputError(f"run {run_id} {state}", hint=f"`batchyard {command} {run_id}` first")

    def require_resumable(self) -> None:
        """Raise RunLockedError if a process executes the run, InputError if the run is over."""
        run_id, state, holder = self._record.run_id, self.run_state, self.holder
        if holder is not None:
            raise RunLockedError(
                f"run {run_id} is being executed by {holder}",
                hint="only an interrupted run can be resumed",
            )
        if state is not RunState.RUNNING:
            is_good = state is RunState.SUCCEEDED
            hint = "" if is_good else f"`batchyard retry {run_id}` runs what is left"
            raise InputError(f"run {run_id} is over: {state.value}", hint=hint)

    def _time_ms(self, name: str) -> int | None:
        time_ms = self._store.value(name)
        return None if time_ms is None else int(time_ms)


def _done_before(job: PlannedJob, numbers: Sequence[int]) -> dict[int, int]:
    """Return the commands of the job that an earlier run has finished -> the child that has them.

    Only children with several commands have commands that are done already.
    """
    if not numbers or not job.has_several_commands:
        return {}
    done = set(numbers)
    return {
        command: child
        for child in range(job.size)
        for command in job.commands_of(child)
        if command in done
    }
