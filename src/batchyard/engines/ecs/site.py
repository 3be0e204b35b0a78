"""An ECS cluster as the site of a run: children are tasks, and the cluster has the capacity."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batchyard import plan as planning
from batchyard.aws.ecs import Ecs
from batchyard.batch.changes import Start
from batchyard.batch.jobs import Action, EvaluateOnExit, Resources, RetryStrategy
from batchyard.batch.queues import ComputeEnvironment
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded import children
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.runner import Task
from batchyard.embedded.store import JobRow, Store
from batchyard.engines.aws import retry_rules
from batchyard.engines.aws.definitions import needs_worker
from batchyard.engines.aws.target import Target
from batchyard.engines.base import RunRecord, Watcher
from batchyard.engines.ecs.launches import AttemptKey, Launches
from batchyard.engines.ecs.requests import Launch, make_request, name_starter
from batchyard.engines.ecs.runner import EcsRunner
from batchyard.engines.scheduled.execution import JobShape
from batchyard.plan import PlannedJob
from batchyard.shard import Turn

#: Tasks that may be on their way at once. A cluster takes 500 in PROVISIONING, of all its users.
_WINDOW = 100
#: Room is made for so many tasks at once, so that one RunTask can start ten.
_STEP = 10
#: To the scheduler, a child takes one unit of the site.
_UNIT = Resources(1, 1)
_UNLIMITED_MIB = 2**40


class EcsSite:
    """See Site for the contract."""

    #: Workers write what commands have done to S3.
    records_commands = False
    starts_series = False

    def __init__(
        self,
        record: RunRecord,
        store: Store,
        ecs: Ecs,
        launches: Launches,
        find_definition: Callable[[PlannedJob], str],
        watcher: Watcher,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``find_definition``: returns the ARN of a step's task definition."""
        self._target: Target = record.settings
        self._plan = record.plan
        self._find_definition = find_definition
        self._watcher = watcher
        #: Number of a job -> the job and its id.
        self._jobs: dict[int, tuple[PlannedJob, str]] = {}
        self.logs = LogBook(record.folder)
        cluster = self._target.environment.cluster
        assert cluster is not None, "a run on a cluster has one"
        self.runner = EcsRunner(ecs, cluster, launches, self._make_request, self._is_dynamic, clock)
        self.wake_fd = self.runner.wake_fd
        #: Tasks go on without a process of ours.
        self.running_attempts = _list_running(launches, store)
        self._settled = len(self.running_attempts)

    @property
    def capacity(self) -> Resources:
        """Room for the tasks that run, and for a number of others that may be on their way."""
        return Resources(self._settled // _STEP * _STEP + _WINDOW, _UNLIMITED_MIB)

    @property
    def limits(self) -> Mapping[str, int]:
        return planning.find_limits(self._plan)

    def shape(self, planned: PlannedJob) -> JobShape:
        strategy = retry_rules.make_strategy(
            planned, self._target, has_worker=needs_worker(planned)
        )
        # The commands of a dynamic step have the time limit, and the worker holds it.
        timeout_s = None if planned.is_dynamic else planned.timeout_s
        return JobShape(_UNIT, _parse_strategy(strategy), timeout_s)

    def make_tasks(self, row: JobRow, planned: PlannedJob) -> EcsTasks:
        self._jobs[row.number] = (planned, row.id)
        return EcsTasks(row.number, row.id, planned)

    def tick(self, scheduler: Scheduler) -> None:
        """Make room for more tasks when others run, and pass notes to the watcher."""
        for note in self.runner.take_notes():
            self._watcher.note(note)
        old = self.capacity
        self._settled = self.runner.settled_count
        if self.capacity != old:
            environment = ComputeEnvironment(children.ENVIRONMENT_NAME, self.capacity)
            scheduler.set_environment(environment)

    def finish(self) -> None:
        self.runner.stop_leftovers(name_starter(self._target))

    def close(self) -> None:
        self.runner.close()
        self.logs.close()

    def _is_dynamic(self, number: int) -> bool:
        return self._jobs[number][0].is_dynamic

    def _make_request(self, launch: Launch) -> dict[str, Any]:
        planned, job_id = self._jobs[launch.job]
        definition = self._find_definition(planned)
        return make_request(planned, self._target, job_id, definition, launch)


@dataclass(slots=True)
class EcsTasks:
    """Makes the tasks of one job."""

    number: int
    id: str
    job: PlannedJob
    #: Always empty: workers know which commands have succeeded.
    done: set[int] = field(default_factory=set)

    def task(self, start: Start, slot: int) -> Task:
        return Task(
            job_number=self.number,
            job_id=self.id,
            step=self.job.step,
            child=start.child,
            index_in_step=self.job.index_in_step(start.child),
            attempt=start.attempt,
            turn=Turn(range(0)),
            command=_refuse_command,
            environ={},
            engine_variables=(),
            resources=self.job.resources,
        )


def _refuse_command(number: int) -> str:
    raise NotImplementedError("the container has the command")


def _list_running(launches: Launches, store: Store) -> list[AttemptKey]:
    """Return the attempts that an earlier process has started and not seen ending."""
    ended = {
        (row.number, attempt.child, attempt.attempt)
        for row in store.jobs()
        for attempt in store.attempts(row.number)
    }
    return [key for key, _ in launches.list_all() if key not in ended]


def _parse_strategy(strategy: Mapping[str, Any]) -> RetryStrategy:
    """Return the retry strategy of a job definition as the scheduler has it."""
    rules = tuple(
        EvaluateOnExit(
            Action(rule["action"].lower()),
            rule.get("onStatusReason"),
            rule.get("onReason"),
            rule.get("onExitCode"),
        )
        for rule in strategy.get("evaluateOnExit", ())
    )
    return RetryStrategy(strategy["attempts"], rules)
