"""One run in memory: the scheduler, a clock that moves when commands end, and what has happened."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchyard import plan as planning
from batchyard.batch.changes import Change, JobSettled, Settled, Start, Stop
from batchyard.batch.jobs import (
    Job,
    JobState,
    Outcome,
    Resources,
    StatusReason,
)
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded import children
from batchyard.engines.base import (
    AttemptDetail,
    CommandCounts,
    CommandDetail,
    JobDetail,
    LogChunk,
    Overview,
    RunRecord,
    RunState,
    Unfinished,
)
from batchyard.engines.memory.script import USUAL_S, Call, Result, Script, look_up
from batchyard.errors import InputError
from batchyard.plan import PlannedJob
from batchyard.shard import Turn

_SIGTERM_EXIT_CODE = 143


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What the commands of a run believe to use."""

    #: A folder, or an s3:// prefix. It need not exist.
    workspace: str
    capacity: Resources


@dataclass(slots=True)
class _SimulatedJob:
    """One job of a run in memory."""

    id: str
    planned: PlannedJob
    created_ms: int
    commands_done: set[int]
    #: Names and values of the environment that all children share.
    environ: Mapping[str, str]
    attempts: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    status_reason: str = ""


@dataclass(slots=True)
class _Attempt:
    """An attempt under way, and the command that runs."""

    start: Start
    started_ms: int
    turn: Turn
    outcome: Outcome = field(default_factory=lambda: Outcome(0))
    command_number: int = -1
    command_began_ms: int = 0
    #: Numbers of the commands that have failed in this attempt.
    failed_commands: list[int] = field(default_factory=list)
    #: Bytes that the attempt has written, all of them and before the command that runs.
    length: int = 0
    command_offset: int = 0
    is_held: bool = False


class Simulation:
    """The scheduler, the clock and everything that has happened in one run."""

    def __init__(
        self,
        run_id: str,
        record: RunRecord,
        commands_done: Mapping[str, Sequence[int]],
        script: Callable[[], Script],
    ) -> None:
        self.plan = record.plan
        self._script = script
        self._now_ms = int(time.time() * 1000)
        settings: MemorySettings = record.settings
        self.attempts: list[AttemptDetail] = []
        #: By step and number of the command.
        self.commands: dict[tuple[str, int], CommandDetail] = {}
        self.chunks: list[LogChunk] = []
        self._was_stopped = False
        #: Step -> children that may run at once.
        self.limits = planning.find_limits(self.plan)
        self._running: dict[tuple[str, int], _Attempt] = {}
        #: (when a command ends, order of the commands, its attempt, its result).
        self._ends: list[tuple[int, int, _Attempt, Result]] = []
        self._order = itertools.count()
        self._scheduler = Scheduler(
            [Queue(children.QUEUE_NAME, (children.ENVIRONMENT_NAME,))],
            [ComputeEnvironment(children.ENVIRONMENT_NAME, settings.capacity)],
            dict(self.limits),
            fail_fast=self.plan.fail_fast,
        )
        self.jobs: dict[str, _SimulatedJob] = {}
        folder = replace(record.folder, path=record.folder.path.with_name(run_id))
        for planned in self.plan.jobs:
            job_id = f"{run_id}-{planned.step}"
            self.jobs[job_id] = _SimulatedJob(
                id=job_id,
                planned=planned,
                created_ms=self._now_ms,
                commands_done=set(commands_done.get(planned.step, ())),
                environ={
                    **children.shared_environment(planned, folder, Path(settings.workspace)),
                    # A Path would join the slashes of s3://.
                    "BATCHYARD_WORKSPACE": settings.workspace,
                },
            )
            self._perform(self._scheduler.submit(self._core_job(job_id, planned, run_id)))

    def scale(self, step: str, limit: int) -> None:
        self._scheduler.change_consumable(step, limit - self.limits[step])
        self.limits[step] = limit
        self.advance()

    def advance(self) -> None:
        """Let commands run until all have ended, or only held ones are left."""
        while True:
            while starts := self._scheduler.place():
                for start in starts:
                    self._begin(start)
            timeout_ms = self._next_timeout_ms()
            if timeout_ms is not None and (not self._ends or timeout_ms <= self._ends[0][0]):
                self._now_ms = max(self._now_ms, timeout_ms)
                self._perform(self._scheduler.tick(self._now_ms))
            elif self._ends:
                self._end_next_command()
            else:
                return

    def release(self, step: str, index: int, result: Result) -> None:
        held = {
            (planned.step, planned.index_in_step(child)): attempt
            for (job_id, child), attempt in self._running.items()
            if attempt.is_held
            for planned in [self.jobs[job_id].planned]
        }
        if (step, index) not in held:
            names = ", ".join(f"{name}:{number}" for name, number in held) or "none"
            raise InputError(
                f"child {step}:{index} holds no command", hint=f"children that do: {names}"
            )
        self._write(held[step, index], result.output)
        self._end_command(held[step, index], result)
        self.advance()

    def stop(self, job_ids: Sequence[str], reason: str) -> None:
        if not self._scheduler.is_over:
            self._was_stopped |= set(job_ids) >= set(self.jobs)
        # Last first: a job that depends on another stopped one then fails for this reason.
        for job_id in reversed([job_id for job_id in self.jobs if job_id in job_ids]):
            self._perform(self._scheduler.terminate(job_id, reason))
        self.advance()

    # -- looking -------------------------------------------------------------------------------

    def describe(self, job_id: str) -> JobDetail:
        job, summary = self.jobs[job_id], self._scheduler.summary(job_id)
        ended = [c.state for (step, _), c in self.commands.items() if step == job.planned.step]
        return JobDetail(
            id=job_id,
            step=job.planned.step,
            state=summary.state,
            status_reason=job.status_reason,
            size=job.planned.size,
            counts=summary.counts,
            attempts=job.attempts,
            created_ms=job.created_ms,
            started_ms=job.started_ms,
            ended_ms=job.ended_ms,
            commands=CommandCounts(
                sum(len(job.planned.commands_of(child)) for child in range(job.planned.size)),
                ended.count(JobState.SUCCEEDED),
                ended.count(JobState.FAILED),
            ),
        )

    @property
    def running_children(self) -> list[tuple[str, int]]:
        """Step and index of the children that run."""
        return [
            (self.jobs[job_id].planned.step, self.jobs[job_id].planned.index_in_step(child))
            for job_id, child in self._running
        ]

    def overview(self) -> Overview:
        jobs = tuple(self.describe(job_id) for job_id in self.jobs)
        starts = [job.started_ms for job in jobs if job.started_ms is not None]
        state = RunState.RUNNING
        if self._scheduler.is_over:
            is_good = all(job.state is JobState.SUCCEEDED for job in jobs)
            bad = RunState.STOPPED if self._was_stopped else RunState.FAILED
            state = RunState.SUCCEEDED if is_good else bad
        ended_ms = None if state is RunState.RUNNING else self._now_ms
        return Overview(state, jobs, min(starts, default=None), ended_ms)

    def unfinished(self) -> Unfinished:
        children, done = {}, {}
        for job in self.jobs.values():
            states = [
                self._scheduler.child_state(job.id, child) for child in range(job.planned.size)
            ]
            children[job.planned.step] = [
                job.planned.index_in_step(child)
                for child, state in enumerate(states)
                if state is not JobState.SUCCEEDED
            ]
            done[job.planned.step] = sorted(job.commands_done)
        return Unfinished(children, done)

    # -- running -------------------------------------------------------------------------------

    def _core_job(self, job_id: str, planned: PlannedJob, run_id: str) -> Job:
        return Job(
            id=job_id,
            name=planned.step,
            queue=children.QUEUE_NAME,
            resources=planned.resources,
            array_size=planned.size if planned.size > 1 else None,
            depends_on=children.make_dependencies(
                self.plan, planned, {need.step: f"{run_id}-{need.step}" for need in planned.needs}
            ),
            retry=planned.retry,
            timeout_s=planned.timeout_s,
            consumables=((planned.step, 1),) if planned.has_limit else (),
        )

    def _begin(self, start: Start) -> None:
        job = self.jobs[start.job_id]
        commands = job.planned.commands_of(start.child)
        turn = Turn(commands, job.commands_done, keep_going=job.planned.keep_going)
        attempt = _Attempt(start, self._now_ms, turn)
        self._running[start.job_id, start.child] = attempt
        self._scheduler.attempt_started(start.job_id, start.child, self._now_ms)
        job.started_ms = self._now_ms if job.started_ms is None else job.started_ms
        self._start_next_command(attempt)

    def _start_next_command(self, attempt: _Attempt) -> None:
        """Start the attempt's next command, or end the attempt after its last one."""
        number = attempt.turn.next()
        if number is None:
            self._end(attempt, attempt.outcome)
            return
        job = self.jobs[attempt.start.job_id]
        call = self._call(attempt, job, number)
        result = look_up(self._script(), call, _usual_duration_s(job.planned, attempt.start.child))
        attempt.command_number = number
        attempt.command_began_ms = self._now_ms
        attempt.command_offset = attempt.length
        attempt.is_held = math.isinf(result.seconds)
        self._write(attempt, result.output)
        if not attempt.is_held:
            ends_ms = self._now_ms + int(result.seconds * 1000)
            heapq.heappush(self._ends, (ends_ms, next(self._order), attempt, result))

    def _end_next_command(self) -> None:
        ends_ms, _, attempt, result = heapq.heappop(self._ends)
        # An attempt that was stopped or timed out has ended already.
        if self._running.get((attempt.start.job_id, attempt.start.child)) is attempt:
            self._now_ms = max(self._now_ms, ends_ms)
            self._end_command(attempt, result)

    def _end_command(self, attempt: _Attempt, result: Result) -> None:
        attempt.is_held = False
        outcome = Outcome(result.exit_code, result.status_reason, result.reason)
        self._record_command(attempt, outcome)
        if outcome.exit_code is None:  # the host is lost, and the other commands with it
            self._end(attempt, outcome)
            return
        if outcome.is_success:
            self.jobs[attempt.start.job_id].commands_done.add(attempt.command_number)
        elif attempt.outcome.is_success:
            attempt.outcome = outcome
        attempt.turn.record_exit(outcome.exit_code)
        self._start_next_command(attempt)

    def _record_command(self, attempt: _Attempt, outcome: Outcome) -> None:
        """Record the end of the command that runs. A failure is final when the child has failed."""
        planned = self.jobs[attempt.start.job_id].planned
        number = attempt.command_number
        earlier = self.commands.get((planned.step, number))
        if not outcome.is_success:
            attempt.failed_commands.append(number)
        is_usual = outcome.status_reason == StatusReason.EXITED
        self.commands[planned.step, number] = CommandDetail(
            step=planned.step,
            number=number,
            index=planned.index_in_step(attempt.start.child),
            state=JobState.SUCCEEDED if outcome.is_success else None,
            exit_code=outcome.exit_code,
            reason=outcome.reason or ("" if is_usual else outcome.status_reason),
            attempts=1 if earlier is None else earlier.attempts + 1,
            started_ms=attempt.command_began_ms,
            ended_ms=self._now_ms,
            user_s=0.0,
            system_s=0.0,
            max_rss_kib=0,
            host="",
            child_attempt=attempt.start.attempt,
            log_offset=attempt.command_offset,
            log_length=attempt.length - attempt.command_offset,
        )

    def _call(self, attempt: _Attempt, job: _SimulatedJob, number: int) -> Call:
        planned, start = job.planned, attempt.start
        index = planned.index_in_step(start.child)
        command = planned.command
        if command is None:
            command = self.plan.lists[planned.step][number]
        environ = {
            **job.environ,
            "AWS_BATCH_JOB_ID": f"{job.id}:{start.child}" if planned.size > 1 else job.id,
            "AWS_BATCH_JOB_ATTEMPT": str(start.attempt),
        }
        if planned.is_array:
            environ["AWS_BATCH_JOB_ARRAY_INDEX"] = str(index)
        return Call(planned.step, index, start.attempt, command, environ)

    def _write(self, attempt: _Attempt, output: bytes) -> None:
        if output:
            planned = self.jobs[attempt.start.job_id].planned
            index = planned.index_in_step(attempt.start.child)
            self.chunks.append(LogChunk(planned.step, index, attempt.start.attempt, output))
            attempt.length += len(output)

    def _next_timeout_ms(self) -> int | None:
        """Return when the next attempt under way times out; None where none does."""
        due_ms = [
            attempt.started_ms + timeout_s * 1000
            for (job_id, _), attempt in self._running.items()
            if (timeout_s := self.jobs[job_id].planned.timeout_s) is not None
        ]
        return min(due_ms, default=None)

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        job_id, child = attempt.start.job_id, attempt.start.child
        job = self.jobs[job_id]
        del self._running[job_id, child]
        changes = self._scheduler.attempt_ended(job_id, child, outcome)
        # The first change is about this child: it has its final state, or is tried again.
        final = changes[0] if isinstance(changes[0], Settled) else None
        job.attempts += 1
        if final is not None:
            for number in attempt.failed_commands:
                key = (job.planned.step, number)
                self.commands[key] = replace(self.commands[key], state=final.state)
        self.attempts.append(
            AttemptDetail(
                job_id=job_id,
                step=job.planned.step,
                index=job.planned.index_in_step(child),
                attempt=attempt.start.attempt,
                state=final.state if final else None,
                exit_code=outcome.exit_code,
                reason=outcome.reason,
                status_reason=final.status_reason if final else outcome.status_reason,
                started_ms=attempt.started_ms,
                ended_ms=self._now_ms,
                user_s=0.0,
                system_s=0.0,
                max_rss_kib=0,
                gpus=attempt.start.gpus,
            )
        )
        self._perform(changes[1:])

    def _perform(self, changes: Sequence[Change]) -> None:
        for change in changes:
            job = self.jobs[change.job_id]
            if isinstance(change, Stop):
                attempt = self._running.get((change.job_id, change.child))
                if attempt is not None:
                    self._end(attempt, Outcome(_SIGTERM_EXIT_CODE))
            elif isinstance(change, JobSettled):
                job.status_reason, job.ended_ms = change.status_reason, self._now_ms


def _usual_duration_s(planned: PlannedJob, child: int) -> float:
    """Return a duration for each command of a child, such that the child does not time out."""
    if planned.timeout_s is None:
        return USUAL_S
    return min(USUAL_S, planned.timeout_s / (len(planned.commands_of(child)) + 1))
