"""The execution of a run on a cluster in memory: what a resumed run does first, and beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_ecs_runner import Cluster

from batchyard import plan as planning
from batchyard import runs
from batchyard.aws.ecs import StartedTasks
from batchyard.embedded.store import Store
from batchyard.engines.base import AttemptDetail, JobDetail, PreparedRun, RunRecord
from batchyard.engines.ecs import ENGINE, preparing
from batchyard.engines.ecs.launches import Launches
from batchyard.engines.ecs.requests import Launch
from batchyard.engines.ecs.run import EcsRun
from batchyard.engines.ecs.site import EcsSite
from batchyard.engines.scheduled.execution import Execution
from batchyard.environments import Environment
from batchyard.errors import BusyServiceError
from batchyard.pipeline import Need, Pipeline, Step
from batchyard.plan import PlannedJob

LAB = Environment("lab", "us-east-1", "runs", cluster="gpu")


class FullCluster(Cluster):
    """Has room for no other task before somebody has seen the end of the task `arn/running`."""

    def __init__(self) -> None:
        super().__init__()
        self.was_seen = False

    def run_tasks(self, request: Mapping[str, Any]) -> StartedTasks:
        if not self.was_seen:
            return StartedTasks([], ["RESOURCE:CPU"])
        return super().run_tasks(request)

    def describe_tasks(self, cluster: str, arns: Sequence[str]) -> dict[str, Any]:
        self.was_seen |= "arn/running" in arns
        return super().describe_tasks(cluster, arns)


class Deadline:
    """Ends a run that takes too long."""

    def __init__(self, seconds: float = 30.0) -> None:
        self._at_s = time.monotonic() + seconds

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None:
        assert time.monotonic() < self._at_s, "the run does not end"

    def attempt_failed(self, attempt: AttemptDetail) -> None:
        raise AssertionError(attempt)

    def note(self, text: str) -> None: ...


def begin(folder: Path, *steps: Step) -> RunRecord:
    plan = planning.make(Pipeline("p", steps))
    target = preparing.make_target(plan, LAB)
    return runs.begin(folder, ENGINE, PreparedRun(plan, target, target.run_id), file=None)


def find_definition(job: PlannedJob) -> str:
    return "arn"


def execute(
    record: RunRecord,
    cluster: Any,
    find: Callable[[PlannedJob], str] = find_definition,
    watcher: Deadline | None = None,
) -> str:
    watcher = watcher or Deadline()
    with closing(Store.open(record.folder.database)) as store:
        site = EcsSite(record, store, cluster, Launches(record.folder.journal), find, watcher)
        try:
            Execution(record, store, site, time.time).run(watcher, 0)
        finally:
            site.close()
        return str(store.value("state"))


def test_tasks_that_run_are_adopted_before_others_take_their_room(tmp_path: Path) -> None:
    """The children of the first step alone are more than may be on their way at once."""
    early = Step("early", image="x", command="true", array=110)
    late = Step("late", image="x", command="true", array=2)
    record = begin(tmp_path, early, late)
    launches = Launches(record.folder.journal)
    launch = Launch("t1", 1, 1, (1,))
    launches.intend(launch)
    launches.record_tasks(launch, ["arn/running"])
    cluster = FullCluster()
    assert execute(record, cluster) == "SUCCEEDED"
    assert cluster.calls["RunTask"] == 110 + 1


class StoppingCluster(Cluster):
    """Has two tasks: `arn/stopped` ends when it is stopped, and `arn/going-on` after that."""

    def describe_tasks(self, cluster: str, arns: Sequence[str]) -> dict[str, Any]:
        going_on = {**self.task, "lastStatus": "RUNNING", "desiredStatus": "RUNNING"}
        return {arn: self.task if self.stopped else going_on for arn in arns}


class Patient(Deadline):
    def attempt_failed(self, attempt: AttemptDetail) -> None: ...


def test_tasks_of_a_step_that_was_stopped_are_stopped_before_the_others_end(tmp_path: Path) -> None:
    """The process was killed when it had recorded the stop, and before it had asked ECS."""
    steps = [Step(name, image="x", command="true", array=2) for name in ("stopped", "going-on")]
    record = begin(tmp_path, *steps)
    launches = Launches(record.folder.journal)
    for number, step in enumerate(steps):
        launch = Launch(f"t{number}", number, 1, (1,))
        launches.intend(launch)
        launches.record_tasks(launch, [f"arn/{step.name}"])
    with closing(Store.open(record.folder.database)) as store:
        store.commit(jobs=[store.jobs()[0]._replace(rest_reason="stopped by the user")])
    cluster = StoppingCluster()
    assert execute(record, cluster, watcher=Patient(10)) == "FAILED"
    assert cluster.stopped == ["arn/stopped"] and cluster.calls["RunTask"] == 1
    with closing(Store.open(record.folder.database)) as store:
        stopped, going_on = store.jobs()
        attempts = [row.attempt for row in store.attempts(stopped.number)]
    assert (stopped.state, going_on.state) == ("FAILED", "SUCCEEDED")
    # Of the child that had no task, nothing was started.
    assert attempts == [1]


@pytest.mark.slow
def test_a_throttled_call_before_a_launch_is_repeated(tmp_path: Path) -> None:
    """The task definition is looked up at the first launch of a process that resumes a run."""
    answers = [BusyServiceError("DescribeTaskDefinition: Rate exceeded")]

    def find(job: PlannedJob) -> str:
        if answers:
            raise answers.pop()
        return "arn"

    record = begin(tmp_path, Step("a", image="x", command="true"))
    assert execute(record, Cluster(), find) == "SUCCEEDED"


class NoSuchKeyError(Exception):
    """S3 has no object of a name."""


class SlowHosts(Cluster):
    """Clients of ECS and S3, where nobody gets the hosts of a run before its last task has begun.

    The second task ends when somebody has asked for hosts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.has_begun_last = threading.Event(), threading.Event()
        self.region = "us-east-1"

    def client(self, service: str, *, repeats: bool = True) -> SlowHosts:
        return self

    def giving_up_early(self) -> AbstractContextManager[None]:
        return nullcontext()

    def run_task(self, **request: Any) -> dict[str, Any]:
        arns = self.run_tasks(request).arns
        if len(self.by_token) == 3:
            self.has_begun_last.set()
        return {"tasks": [{"taskArn": arn} for arn in arns], "failures": []}

    def describe_tasks(self, cluster: str, tasks: Sequence[str]) -> dict[str, Any]:  # type: ignore[override]
        return {"tasks": [self._describe(arn) for arn in tasks], "failures": []}

    def _describe(self, arn: str) -> dict[str, Any]:
        number = [arns[0] for arns in self.by_token.values()].index(arn)
        is_over = number != 1 or self.is_asked.is_set()
        return {
            **self.task,
            "taskArn": arn,
            "containerInstanceArn": "arn:aws:ecs:us-east-1:1:container-instance/gpu/1",
            "lastStatus": "STOPPED" if is_over else "RUNNING",
        }

    def describe_task_definition(self, **request: str) -> dict[str, Any]:
        return {"taskDefinition": {"taskDefinitionArn": "arn"}}

    def describe_container_instances(self, **request: Any) -> dict[str, Any]:
        self.is_asked.set()
        assert self.has_begun_last.wait(20), "the run waits for its bill"
        return {"containerInstances": []}

    @property
    def exceptions(self) -> Any:
        return SimpleNamespace(NoSuchKey=NoSuchKeyError)

    def get_paginator(self, operation: str) -> SlowHosts:
        return self

    def paginate(self, **request: Any) -> list[dict[str, Any]]:
        return []

    def put_object(self, **request: Any) -> None: ...

    def get_object(self, **request: Any) -> None:
        raise NoSuchKeyError


def test_a_run_does_not_wait_for_its_bill(tmp_path: Path) -> None:
    steps = [Step("a", image="x", command="true")]
    for name in "bc":
        need = Need(steps[-1].name)
        steps.append(Step(name, image="x", command="true", needs=(need,)))
    session: Any = SlowHosts()
    # Ten minutes between two looks are a hundredth of a second.
    run = EcsRun(begin(tmp_path, *steps), session, lambda: time.monotonic() * 1e5)
    run.execute(Deadline(), supervise=lambda overview: 0.01)
    assert run.run_state == "SUCCEEDED" and session.is_asked.is_set()
    run.close()
