"""The runner of ECS with a cluster in memory: requests, refusals, lost tasks, the journal."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from batchyard.aws.ecs import StartedTasks
from batchyard.aws.session import AwsRefusedError
from batchyard.batch.jobs import Outcome, Resources
from batchyard.embedded.runner import Ended, Event, Task
from batchyard.engines.ecs.launches import Launches
from batchyard.engines.ecs.pending_tasks import PendingTasks
from batchyard.engines.ecs.requests import Launch
from batchyard.engines.ecs.runner import EcsRunner
from batchyard.shard import Turn


class Cluster:
    """ECS, as far as the runner uses it. Tasks end at once, or as ``answers`` says."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.sizes: list[int] = []
        self.by_token: dict[str, list[str]] = {}
        #: What the next RunTask calls answer in place of tasks.
        self.refusals: list[StartedTasks | Exception] = []
        self.stopped: list[str] = []
        self.task: dict[str, Any] = {
            "lastStatus": "STOPPED",
            "stopCode": "EssentialContainerExited",
            "startedAt": datetime.fromtimestamp(1_000, UTC),
            "containers": [{"name": "main", "exitCode": 0}],
        }
        self.forgotten: set[str] = set()
        #: ARN -> tags, for a process that looks for its tasks.
        self.running: dict[str, dict[str, str]] = {}

    def run_tasks(self, request: Mapping[str, Any]) -> StartedTasks:
        self.calls["RunTask"] += 1
        if self.refusals:
            refusal = self.refusals.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            return refusal
        token = request["clientToken"]
        count = len(self.by_token)
        arns = [f"arn/{token}-{count}-{number}" for number in range(request["count"])]
        return StartedTasks(self.by_token.setdefault(token, arns), [])

    def describe_tasks(self, cluster: str, arns: Sequence[str]) -> dict[str, Any]:
        self.calls["DescribeTasks"] += 1
        self.sizes.append(len(arns))
        return {arn: self.task for arn in arns if arn not in self.forgotten}

    def find_running_tasks(self, cluster: str, started_by: str) -> dict[str, dict[str, str]]:
        assert started_by == "run"
        return self.running

    def stop_task(self, cluster: str, arn: str, reason: str) -> None:
        self.stopped.append(arn)


def make_task(child: int, attempt: int = 1) -> Task:
    return Task(
        job_number=0,
        job_id="id",
        step="a",
        child=child,
        index_in_step=child,
        attempt=attempt,
        turn=Turn(range(0)),
        command=str,
        environ={},
        engine_variables=(),
        resources=Resources(1, 1),
    )


def make_request(launch: Launch) -> dict[str, Any]:
    return {"clientToken": launch.token, "count": len(launch.children), "startedBy": "run"}


@contextmanager
def running(
    cluster: Cluster,
    path: Path,
    *,
    is_dynamic: bool = False,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[EcsRunner]:
    runner = EcsRunner(
        cluster,  # type: ignore[arg-type]
        "lab",
        Launches(path),
        make_request,
        lambda number: is_dynamic,
        monotonic=monotonic,
    )
    try:
        yield runner
    finally:
        runner.close()


def collect(runner: EcsRunner, is_done: Callable[[list[Any]], bool]) -> list[Any]:
    events: list[Event] = []
    deadline_s = time.monotonic() + 60
    with runner.lock:
        if not runner._threads:
            runner.listen(lambda: None)
        while not is_done(events):
            assert time.monotonic() < deadline_s, events
            runner.wait(0.1)
            events += runner.take_events()
    return events


def ends(events: Sequence[Event]) -> list[Ended]:
    return [event for event in events if isinstance(event, Ended)]


def start(runner: EcsRunner, *tasks: Task) -> None:
    with runner.lock:
        for task in tasks:
            runner.start(task)


def test_tasks_are_started_one_by_one_and_described_by_the_hundred(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.task = {"lastStatus": "PENDING"}
    with running(cluster, tmp_path / "journal") as runner:
        start(runner, *map(make_task, range(250)))
        collect(runner, lambda events: cluster.calls["RunTask"] == 250)
        collect(runner, lambda events: 100 in cluster.sizes)
        cluster.task = Cluster().task
        events = collect(runner, lambda events: len(ends(events)) == 250)
    assert cluster.calls["RunTask"] == 250
    assert max(cluster.sizes) == 100
    assert all(event.outcome == Outcome(0) and event.started_ms == 1e6 for event in ends(events))


def test_children_that_are_alike_start_in_tens(tmp_path: Path) -> None:
    cluster = Cluster()
    with running(cluster, tmp_path / "journal", is_dynamic=True) as runner:
        start(runner, *map(make_task, range(25)))
        collect(runner, lambda events: len(ends(events)) == 25)
    assert cluster.calls["RunTask"] == 3


def test_a_later_process_adopts_tasks_and_repeats_unanswered_requests(tmp_path: Path) -> None:
    cluster, path = Cluster(), tmp_path / "journal"
    launches = Launches(path)
    answered, unanswered = Launch("t1", 0, 1, (0,)), Launch("t2", 0, 1, (1,))
    launches.intend(answered)
    launches.record_tasks(answered, ["arn/known"])
    launches.intend(unanswered)
    with running(cluster, path) as runner:
        start(runner, make_task(0), make_task(1))
        assert runner.settled_count == 1
        collect(runner, lambda events: len(ends(events)) == 2)
    assert cluster.calls["RunTask"] == 1 and list(cluster.by_token) == ["t2"]
    assert Launches(path).find((0, 1, 1)) is not None


def test_a_full_cluster_is_waited_for(tmp_path: Path) -> None:
    cluster = Cluster()
    full = AwsRefusedError("500 tasks in the PROVISIONING state", code="ClientException")
    limited = AwsRefusedError(
        "Error retrieving security group information: RequestLimitExceeded",
        code="InvalidParameterException",
    )
    cluster.refusals = [StartedTasks([], ["RESOURCE:GPU"]), full, limited]
    with running(cluster, tmp_path / "journal") as runner:
        start(runner, make_task(0))
        (end,) = ends(collect(runner, lambda events: len(ends(events)) == 1))
        with runner.lock:
            (note,) = runner.take_notes()
    assert end.outcome == Outcome(0) and end.task.attempt == 1
    assert cluster.calls["RunTask"] == 4
    assert note == "a: the cluster lab has no room now (RESOURCE:GPU); its children wait"


def test_a_capacity_provider_that_gave_up_is_asked_again(tmp_path: Path) -> None:
    cluster = Cluster()
    good = cluster.task
    cluster.task = {
        "lastStatus": "STOPPED",
        "stopCode": "TaskFailedToStart",
        "stoppedReason": "TaskFailedToStart: RESOURCE:GPU",
        "containers": [],
    }
    with running(cluster, tmp_path / "journal") as runner:
        start(runner, make_task(0))
        collect(runner, lambda events: bool(runner.take_notes()))
        cluster.task = good
        (end,) = ends(collect(runner, lambda events: len(ends(events)) == 1))
    assert end.outcome == Outcome(0) and cluster.calls["RunTask"] == 2


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (StartedTasks([], ["ATTRIBUTE"]), "RunTask: ATTRIBUTE"),
        (AwsRefusedError("bad override", code="InvalidParameterException"), "bad override"),
    ],
)
def test_what_ecs_refuses_every_time_has_failed(
    tmp_path: Path, refusal: StartedTasks | Exception, reason: str
) -> None:
    cluster = Cluster()
    cluster.refusals = [refusal]
    with running(cluster, tmp_path / "journal") as runner:
        start(runner, make_task(0))
        (end,) = ends(collect(runner, lambda events: len(ends(events)) == 1))
    assert end.outcome == Outcome(None, "Task failed to start", reason)
    assert end.started_ms is None


def test_an_error_that_is_not_about_the_task_ends_the_wait(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.refusals = [AwsRefusedError("no such cluster", code="ClusterNotFoundException")]
    with running(cluster, tmp_path / "journal") as runner:
        start(runner, make_task(0))
        with pytest.raises(AwsRefusedError, match="no such cluster"):
            collect(runner, lambda events: False)


def test_a_task_that_ecs_has_forgotten_is_lost(tmp_path: Path) -> None:
    cluster, path = Cluster(), tmp_path / "journal"
    launches = Launches(path, clock=lambda: time.time() - 7200)
    launch = Launch("t1", 0, 1, (0,))
    launches.intend(launch)
    launches.record_tasks(launch, ["arn/old"])
    cluster.forgotten = {"arn/old"}
    # Not after the first answer without it: a minute, in which two more are asked for.
    with running(cluster, path, monotonic=lambda: time.monotonic() * 100) as runner:
        start(runner, make_task(0))
        (end,) = ends(collect(runner, lambda events: len(ends(events)) == 1))
    assert end.outcome.exit_code is None and cluster.calls["DescribeTasks"] > 1
    assert end.outcome.status_reason.startswith("Host EC2 unknown: ECS has forgotten")


def test_a_stop_that_ecs_did_not_know_the_task_for_is_repeated(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.task = {
        "lastStatus": "RUNNING",
        "desiredStatus": "RUNNING",
        "startedAt": datetime.fromtimestamp(1, UTC),
    }
    with running(cluster, tmp_path / "journal") as runner:
        task = make_task(0)
        start(runner, task)
        collect(runner, lambda events: bool(events))
        with runner.lock:
            runner.signal([task], signal.SIGTERM)
        collect(runner, lambda events: len(cluster.stopped) > 1)


def test_tasks_that_no_attempt_is_about_are_stopped(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.running = {"arn/left": {}}
    with running(cluster, tmp_path / "journal") as runner:
        runner.stop_leftovers("run")
    assert cluster.stopped == ["arn/left"]


def test_a_task_that_ecs_has_deleted_ended_as_it_says(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.task["lastStatus"] = "DELETED"
    with running(cluster, tmp_path / "journal") as runner:
        start(runner, make_task(0))
        (end,) = ends(collect(runner, lambda events: len(ends(events)) == 1))
    assert end.outcome.exit_code == 0


def test_an_unanswered_request_of_yesterday_is_not_repeated(tmp_path: Path) -> None:
    """ECS may have forgotten its token, and would start its tasks again."""
    cluster, path = Cluster(), tmp_path / "journal"
    launches = Launches(path, clock=lambda: time.time() - 7200)
    for number in range(2):
        launches.intend(Launch(f"t{number}", 0, 1, (number,)))
    cluster.running = {"arn/found": {"batchyard:launch": "t0"}}
    with running(cluster, path) as runner:
        start(runner, make_task(0), make_task(1))
        found = ends(collect(runner, lambda events: len(ends(events)) == 2))
    assert cluster.calls["RunTask"] == 0
    assert {(end.task.child, end.outcome.exit_code) for end in found} == {(0, 0), (1, None)}


def test_tasks_are_stopped_once_and_waiting_ones_never_start(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.task = {"lastStatus": "RUNNING", "startedAt": datetime.fromtimestamp(1, UTC)}
    cluster.refusals = []
    with running(cluster, tmp_path / "journal") as runner:
        first, second = make_task(0), make_task(1)
        start(runner, first)
        collect(runner, lambda events: bool(events))
        cluster.refusals = [StartedTasks([], ["RESOURCE:CPU"])]
        start(runner, second)
        collect(runner, lambda events: bool(runner.take_notes()))
        with runner.lock:
            runner.signal([first, second], 15)
            runner.signal([first, second], 9)
        (end,) = ends(collect(runner, lambda events: len(ends(events)) == 1))
        assert end.task is second and end.outcome.exit_code is None
        collect(runner, lambda events: bool(cluster.stopped))
    assert len(cluster.stopped) == 1


def test_pauses_grow_and_jobs_do_not_wait_for_each_other() -> None:
    now = [0.0]
    pending = PendingTasks(lambda number: False, lambda: now[0])
    small, large = make_task(0), make_task(1)
    small.job_number = 1
    pending.add(large)
    assert pending.take() == ([large], None)
    assert pending.put_back([large]) and pending.next_delay_s() == 1.0
    pending.add(small)
    assert pending.take() == ([small], None)
    assert pending.take() == ((), None)
    now[0] = 1.0
    assert pending.take() == ([large], None)
    assert not pending.put_back([large]) and pending.next_delay_s() == 1.5
    # A task of the run has ended, and has left room.
    pending.put_back(list(pending.take()[0]) or [large])
    pending.try_again()
    assert pending.next_delay_s() == 1.0
