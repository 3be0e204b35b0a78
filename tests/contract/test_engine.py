"""The engine contract (engines/base.py), the same for every engine.

Each engine has a lab, which starts a run from a plan and waits for its end. The differences between
engines are in the labs, never in the tests.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import recipe_image
from batchyard import engines, operations, runs
from batchyard import plan as planning
from batchyard.batch.jobs import JobState
from batchyard.engines.aws.preparing import make_target
from batchyard.engines.base import (
    AttemptDetail,
    CommandCounts,
    LogChunk,
    Offer,
    PreparedRun,
    RetryRequest,
    RunEngine,
    RunRecord,
    RunRequest,
    RunState,
    new_run_id,
)
from batchyard.engines.ecs import preparing as ecs_preparing
from batchyard.engines.memory import HOLD, Call, MemoryEngine, Result
from batchyard.environments import Environment
from batchyard.errors import InputError
from batchyard.pipeline import ExitRule, Need, Pipeline, Step
from batchyard.plan import RunPart
from pauses import pause

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator"))
from emulator_endpoint import UNKIND, Endpoint

TEST_IMAGE = "batchyard-test:latest"


@dataclass(frozen=True)
class Act:
    """What a command does: as shell for real engines, as a result for the engine in memory."""

    shell: str
    result: Callable[[Call], Result]


def exits(code: int) -> Act:
    return Act(f"exit {code}", lambda call: Result(exit_code=code))


NOTHING = Act("true", lambda call: Result())
#: until ``Lab.go``
WAITS = Act("until test -e go; do sleep 0.1; done", lambda call: HOLD)
FOREVER = Act("sleep 600", lambda call: HOLD)


class LocalLab:
    """The embedded engine, in a process of its own as `run --detach` has it."""

    least_timeout_s = 1

    def __init__(self, folder: Path, runner: str) -> None:
        self.folder = folder
        self.workspace = str(folder)
        self.runner = runner
        self.record: RunRecord | None = None

    def begin(self, *steps: Step) -> RunEngine:
        pipeline = Pipeline("contract", steps)
        plan = planning.make(pipeline)
        offer = Offer(cpus=4, memory_mib=4096, runner=self.runner, workspace=str(self.folder))
        request = RunRequest(plan, pipeline, self.folder / ".batchyard", offer)
        self.record, _ = operations.begin(engines.load("local"), request)
        operations.start(self.record)
        return self.record.open()

    def step(self, name: str, act: Act | Sequence[Act], **fields: object) -> Step:
        image = TEST_IMAGE if self.runner == "docker" else None
        if isinstance(act, Act):
            fields["command"] = act.shell
        else:
            fields["commands"] = tuple(command.shell for command in act)
        return Step(name, image=image, memory_mib=64, **fields)  # type: ignore[arg-type]

    def go(self) -> None:
        (self.folder / "go").touch()

    def as_logged(self, written: bytes) -> bytes:
        return written


class AwsLab:
    """The AWS engine, against an endpoint here: jobs are processes, or containers of the image."""

    least_timeout_s = 60

    def __init__(self, folder: Path, endpoint: Endpoint, image: str) -> None:
        self.folder = folder
        self.image = image
        self.workspace = ""
        self.record: RunRecord | None = None
        self._environment = Environment(
            "lab",
            endpoint.variables["AWS_REGION"],
            "contract",
            queues={"cpu": "queue", "cpu_on_demand": "queue"},
        )

    def begin(self, *steps: Step) -> RunEngine:
        plan = planning.make(Pipeline("contract", steps))
        target = make_target(plan, self._environment, new_run_id(plan), on_demand=True)
        self.workspace = target.workspace
        prepared = PreparedRun(plan, target, target.run_id)
        self.record = runs.begin(self.folder / ".batchyard", engines.load("aws"), prepared)
        operations.start(self.record)
        return self.record.open()

    def step(self, name: str, act: Act | Sequence[Act], **fields: Any) -> Step:
        """Jobs share no folder with the one who submits them: here they change to it."""
        acts = (act,) if isinstance(act, Act) else tuple(act)
        enter = f"cd {shlex.quote(str(self.folder))} && "
        commands = tuple(f"{enter}{{ {each.shell}; }}" for each in acts)
        if isinstance(act, Act) and "retry_on" not in fields:
            fields["command"] = commands[0]
        else:
            # Also for rules that AWS Batch does not have: the worker follows them, in a list.
            fields["commands"] = commands
        # The worker itself takes some of the memory.
        return Step(name, image=self.image, memory_mib=256, **fields)

    def go(self) -> None:
        (self.folder / "go").touch()

    def as_logged(self, written: bytes) -> bytes:
        """CloudWatch Logs keeps lines of text."""
        text = written.decode(errors="replace")
        return (text if text.endswith("\n") else text + "\n").encode()


class EcsLab(AwsLab):
    """The ECS engine, against an endpoint here: tasks of a cluster with one host."""

    least_timeout_s = 1

    def __init__(self, folder: Path, endpoint: Endpoint, image: str) -> None:
        super().__init__(folder, endpoint, image)
        region = endpoint.variables["AWS_REGION"]
        self._environment = Environment("lab", region, "contract", cluster="default")

    def begin(self, *steps: Step) -> RunEngine:
        plan = planning.make(Pipeline("contract", steps))
        target = ecs_preparing.make_target(plan, self._environment)
        self.workspace = target.workspace
        prepared = PreparedRun(plan, target, target.run_id)
        self.record = runs.begin(self.folder / ".batchyard", engines.load("ecs"), prepared)
        operations.start(self.record)
        return self.record.open()


class MemoryLab:
    """The engine in memory, whose commands do what their acts say."""

    least_timeout_s = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = str(folder)
        self.record: RunRecord | None = None
        self._acts: dict[str, Act] = {}
        self._engine = MemoryEngine(self._result, is_recorded=True)

    def _result(self, call: Call) -> Result:
        return self._acts[call.command].result(call)

    def begin(self, *steps: Step) -> RunEngine:
        pipeline = Pipeline("contract", steps)
        offer = Offer(workspace=str(self.folder))
        home = self.folder / ".batchyard"
        request = RunRequest(planning.make(pipeline), pipeline, home, offer)
        self.record, _ = operations.begin(self._engine, request)
        operations.start(self.record)
        return self.record.open()

    def step(self, name: str, act: Act | Sequence[Act], **fields: object) -> Step:
        acts = (act,) if isinstance(act, Act) else tuple(act)
        self._acts |= {each.shell: each for each in acts}
        if isinstance(act, Act):
            fields["command"] = act.shell
        else:
            fields["commands"] = tuple(each.shell for each in acts)
        return Step(name, **fields)  # type: ignore[arg-type]

    def go(self) -> None:
        assert self.record is not None
        for job in self.record.plan.jobs:
            for child in range(job.size):
                with suppress(InputError):  # it holds no command
                    self._engine.release(self.record.run_id, job.step, child)

    def as_logged(self, written: bytes) -> bytes:
        return written


Lab = LocalLab | AwsLab | MemoryLab


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[Endpoint]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    capacity = ("--cpus", "4", "--memory", "4GiB")
    it = Endpoint(folder, *capacity, *UNKIND, *flags, environ={"PATH": path})
    try:
        it.queue("queue", it.environment("cpu"))
        it.client("s3").create_bucket(Bucket="contract")
        it.client("ecs").create_cluster()
        it.client("ecs").register_container_instance()
        yield it
    finally:
        it.stop()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with served(tmp_path_factory.mktemp("processes")) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, docker_engine: None) -> str:
    return recipe_image.build(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Endpoint]:
    """What the tests look at in their folders is on a disk that all containers have."""
    disk = str(tmp_path_factory.getbasetemp())
    with served(
        tmp_path_factory.mktemp("containers"), "--runner", "docker", "--volume", disk
    ) as endpoint:
        yield endpoint


MEMORY = "memory"
PROCESS = "process"
DOCKER = pytest.param("docker", marks=pytest.mark.docker)
AWS = "aws"
AWS_DOCKER = pytest.param("aws-docker", marks=[pytest.mark.docker, pytest.mark.slow])
ECS = "ecs"
ECS_DOCKER = pytest.param("ecs-docker", marks=[pytest.mark.docker, pytest.mark.slow])
#: For rules that the scheduler carries out: the engines `process` and `ecs` share it, and starting
#: the process of a run on ECS and its workers takes seconds of CPU time.
with_slow_ecs = pytest.mark.parametrize(
    "lab",
    [
        *(MEMORY, PROCESS, DOCKER, AWS, AWS_DOCKER),
        *(pytest.param(ECS, marks=pytest.mark.slow), ECS_DOCKER),
    ],
    indirect=True,
)


@pytest.fixture(params=[MEMORY, PROCESS, DOCKER, AWS, AWS_DOCKER, ECS, ECS_DOCKER])
def lab(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    if request.param == "memory":
        return MemoryLab(tmp_path)
    if request.param == "process":
        return LocalLab(tmp_path, "process")
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
        return LocalLab(tmp_path, "docker")
    engine, _, runner = request.param.partition("-")
    endpoint = request.getfixturevalue("containers" if runner else "processes")
    for name, value in endpoint.variables.items():
        monkeypatch.setenv(name, value)
    # The endpoint shows new jobs after 0.4 s.
    monkeypatch.setenv("BATCHYARD_AWS_LAG_S", "1")
    # A process is of no image, but a definition names one.
    image = request.getfixturevalue("image") if runner else "busybox"
    return (AwsLab if engine == "aws" else EcsLab)(tmp_path, endpoint, image)


def wait(engine: RunEngine, ids: list[str], seconds: float = 300) -> None:
    until(lambda: all(detail.state.is_terminal for detail in engine.describe(ids)), seconds)


def until(condition: Callable[[], bool], seconds: float = 300) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, "it did not happen in time"
        pause(began)


def ends(engine: RunEngine, ids: list[str]) -> list[tuple[str, int, int, str | None, int | None]]:
    found = engine.attempts(ids)
    return [(a.step, a.index, a.attempt, a.state and a.state.value, a.exit_code) for a in found]


def text_of(engine: RunEngine, step: str, index: int) -> bytes:
    return b"".join(chunk.data for chunk in engine.logs(step, index))


def test_jobs_come_back_in_the_order_asked_for_and_unknown_ids_are_left_out(lab: Lab) -> None:
    engine = lab.begin(lab.step("a", NOTHING), lab.step("b", NOTHING))
    first, second = engine.job_ids
    details = engine.describe([second, "00000000-0000-0000-0000-000000000000", first])
    assert [detail.id for detail in details] == [second, first]
    assert [detail.step for detail in details] == ["b", "a"]
    wait(engine, [first, second])


def test_submitting_again_adds_nothing(lab: Lab) -> None:
    engine = lab.begin(lab.step("a", NOTHING))
    ids = engine.job_ids
    assert lab.record is not None
    assert engine.submit(lab.record.plan) == ids == engine.job_ids
    wait(engine, ids)


@with_slow_ecs
def test_an_array_counts_its_children_and_is_pending_until_all_have_ended(lab: Lab) -> None:
    engine = lab.begin(lab.step("a", WAITS, array=3))
    (job_id,) = engine.job_ids
    until(lambda: engine.describe([job_id])[0].count(JobState.RUNNING) == 3)
    (detail,) = engine.describe([job_id])
    assert detail.state is JobState.PENDING and detail.size == 3 and detail.ended_ms is None
    assert engine.overview().state is RunState.RUNNING
    lab.go()
    wait(engine, [job_id])
    (detail,) = engine.describe([job_id])
    assert detail.state is JobState.SUCCEEDED and detail.count(JobState.SUCCEEDED) == 3
    assert detail.started_ms is not None and detail.ended_ms is not None and detail.attempts == 3


@with_slow_ecs
def test_attempts_say_how_each_try_ended(lab: Lab) -> None:
    act = Act(
        "exit $((AWS_BATCH_JOB_ARRAY_INDEX * 3))", lambda call: Result(exit_code=3 * call.index)
    )
    engine = lab.begin(
        # On AWS a plain command with fewer retries has as many attempts, for reclaims.
        lab.step("a", act, array=2, retries=2),
        lab.step("b", NOTHING, needs=(Need("a"),)),
    )
    ids = engine.job_ids
    wait(engine, ids)
    assert ends(engine, ids) == [
        ("a", 0, 1, "SUCCEEDED", 0),
        ("a", 1, 1, None, 3),
        ("a", 1, 2, None, 3),
        ("a", 1, 3, "FAILED", 3),
    ]
    failed: list[AttemptDetail] = list(engine.attempts(ids, failed_only=True))
    assert [(a.index, a.attempt) for a in failed] == [(1, 3)]
    parent, follower = engine.describe(ids)
    assert (parent.state, parent.status_reason) == (JobState.FAILED, "Array Child Job failed")
    assert (follower.state, follower.status_reason) == (JobState.FAILED, "Dependent Job failed")
    assert follower.attempts == 0 and follower.started_ms is None


@with_slow_ecs
def test_what_is_unfinished_is_what_has_no_success(lab: Lab) -> None:
    act = Act("exit $AWS_BATCH_JOB_ARRAY_INDEX", lambda call: Result(exit_code=call.index))
    engine = lab.begin(
        lab.step("a", act, array=2), lab.step("b", NOTHING, needs=(Need("a"),), array=2)
    )
    wait(engine, engine.job_ids)
    until(lambda: engine.overview().state is RunState.FAILED)
    assert engine.unfinished().children == {"a": [1], "b": [0, 1]}


@with_slow_ecs
def test_exit_rules(lab: Lab) -> None:
    rules: dict[str, Any] = {
        "retries": 3,
        "retry_on": (ExitRule(first=64, last=78),),
        "fail_on": (ExitRule(first=70, last=70),),
    }
    engine = lab.begin(
        lab.step("again", exits(75), **rules),
        lab.step("fatal", exits(70), **rules),
        lab.step("other", exits(1), **rules),
    )
    wait(engine, engine.job_ids)
    assert [detail.attempts for detail in engine.describe(engine.job_ids)] == [4, 1, 1]


@with_slow_ecs
def test_pairs_wait_for_their_own_child_only(lab: Lab) -> None:
    slow = Act(
        f"test $AWS_BATCH_JOB_ARRAY_INDEX = 0 || {WAITS.shell}",
        lambda call: HOLD if call.index else Result(),
    )
    engine = lab.begin(
        lab.step("a", slow, array=2),
        lab.step("b", NOTHING, needs=(Need("a", each=True),), array=2),
    )
    # b:0 ends while a:1 still runs
    until(lambda: engine.describe(engine.job_ids)[1].count(JobState.SUCCEEDED) == 1)
    assert engine.describe(engine.job_ids)[0].count(JobState.SUCCEEDED) == 1
    jobs = engine.overview().jobs
    # The engine may know only how many run.
    assert engine.running_children(jobs) in (None, [("a", 1)])
    ended = list(engine.attempts(engine.job_ids))
    assert [attempt.step for attempt in engine.attempts(engine.job_ids, index=0)] == ["a", "b"]
    assert not list(engine.attempts(engine.job_ids, index=1))
    last_ms = max(attempt.ended_ms for attempt in ended)
    assert ended[-1] in list(engine.attempts(engine.job_ids, since_ms=last_ms))
    assert not list(engine.attempts(engine.job_ids, since_ms=last_ms + 1))
    lab.go()
    wait(engine, engine.job_ids)
    assert not engine.running_children(engine.overview().jobs)
    # On a slow machine the children may have run long enough to be sampled.
    assert set(engine.step_uses()) <= {"a", "b"}
    assert {use.step for use in engine.running_uses()} <= {"a", "b"}
    assert [detail.state for detail in engine.describe(engine.job_ids)] == [JobState.SUCCEEDED] * 2


def test_a_list_is_shared_out_and_every_command_runs_once(lab: Lab) -> None:
    ran: list[str] = []

    def act(number: int) -> Act:
        def run(call: Call) -> Result:
            ran.append(call.command)
            return Result(output=f"{number}\n".encode())

        return Act(f"echo {number} >> ran-{number}; echo {number}", run)

    engine = lab.begin(lab.step("a", [act(number) for number in range(10)], array=3))
    wait(engine, engine.job_ids)
    written = [path.read_text() for path in lab.folder.glob("ran-*")]
    if isinstance(lab, MemoryLab):
        assert written == [] and len(ran) == len(set(ran)) == 10
    else:
        assert sorted(written) == sorted(f"{number}\n" for number in range(10))
    assert [text_of(engine, "a", i) for i in range(3)] == [
        b"0\n1\n2\n",
        b"3\n4\n5\n",
        b"6\n7\n8\n9\n",
    ]


def says(text: str, code: int = 0) -> Act:
    """Write a line, then exit."""
    output = f"{text}\n".encode()
    return Act(f"echo {text}; exit {code}", lambda call: Result(output=output, exit_code=code))


@pytest.mark.parametrize("lab", [MEMORY, PROCESS, DOCKER], indirect=True)
@pytest.mark.parametrize("share_out", ["static", "strided", "dynamic"])
def test_every_command_has_a_record(lab: Lab, share_out: str) -> None:
    acts = [says(f"line-{number}", 3 if number in (2, 5) else 0) for number in range(8)]
    engine = lab.begin(lab.step("a", acts, array=3, keep_going=True, share_out=share_out))
    wait(engine, engine.job_ids)
    commands = list(engine.commands())
    assert [command.number for command in commands] == list(range(8))
    assert [command.exit_code for command in commands] == [0, 0, 3, 0, 0, 3, 0, 0]
    assert all(command.attempts == 1 and command.ended_ms for command in commands)
    assert [command.number for command in engine.commands(failed_only=True)] == [2, 5]
    (command,) = engine.commands("a", 5)
    assert command.state is JobState.FAILED
    assert engine.log_reader.read_command(command) == lab.as_logged(b"line-5\n")
    assert engine.log_reader.read_command(command, 2) == lab.as_logged(b"line-5\n")[-2:]
    (job,) = engine.describe(engine.job_ids)
    assert job.commands == CommandCounts(total=8, succeeded=6, failed=2)


@pytest.mark.parametrize("lab", [MEMORY, PROCESS], indirect=True)
def test_a_retried_command_counts_its_attempts(lab: Lab) -> None:
    engine = lab.begin(lab.step("a", [says("x"), says("y", 1)], retries=2))
    wait(engine, engine.job_ids)
    assert [(c.number, c.attempts, c.exit_code) for c in engine.commands()] == [
        (0, 1, 0),
        (1, 3, 1),
    ]


def test_what_a_child_is_told(lab: Lab) -> None:
    def show(call: Call) -> Result:
        lines = "".join(f"{name}={value}\n" for name, value in call.environ.items())
        return Result(output=lines.encode())

    engine = lab.begin(lab.step("a", Act("env", show), array=2, env={"OWN": "a b\nc"}))
    wait(engine, engine.job_ids)
    told = text_of(engine, "a", 1).decode()
    (job_id,) = engine.job_ids
    lines = set(told.splitlines())
    assert {
        f"AWS_BATCH_JOB_ID={job_id}:1",
        "AWS_BATCH_JOB_ATTEMPT=1",
        "AWS_BATCH_JOB_ARRAY_INDEX=1",
        "AWS_BATCH_JOB_ARRAY_SIZE=2",
        "ARRAY_SIZE=2",
        "BATCHYARD_STEP=a",
        "BATCHYARD_DEVICE=cpu",
        f"BATCHYARD_WORKSPACE={lab.workspace}",
    } <= lines
    assert "OWN=a b\nc\n" in told


def test_logs_can_be_read_while_it_runs(lab: Lab) -> None:
    act = Act(
        rf"printf '\377\000out\r\n'; printf 'err\n' >&2; {WAITS.shell}",
        lambda call: replace(HOLD, output=b"\xff\x00out\r\nerr\n"),
    )
    engine = lab.begin(lab.step("a", act))
    written = lab.as_logged(b"\xff\x00out\r\nerr\n")
    until(lambda: b"".join(chunk.data for chunk in lab_logs(lab)) == written)
    lab.go()
    wait(engine, engine.job_ids)
    assert text_of(engine, "a", 0) == written
    assert lab.record is not None
    reader = lab.record.open().log_reader
    assert reader.sizes("a", 0) == {1: len(written)}
    for begin, length in ((0, 100), (3, 4), (len(written) - 1, 10), (len(written), 10)):
        part = reader.read_part("a", 0, 1, begin, length)
        assert part == written[begin : begin + length]
    assert reader.read_part("a", 0, 2, 0, 10) == b""


@with_slow_ecs
def test_a_last_line_without_an_end_is_kept(lab: Lab) -> None:
    act = Act("printf 'one\ntwo'", lambda call: Result(output=b"one\ntwo"))
    engine = lab.begin(lab.step("a", act))
    wait(engine, engine.job_ids)
    assert text_of(engine, "a", 0) == lab.as_logged(b"one\ntwo")


def lab_logs(lab: Lab) -> list[LogChunk]:
    assert lab.record is not None
    engine = lab.record.open()
    chunks = list(engine.logs("a", 0))
    engine.close()
    return chunks


def test_stop_ends_jobs_with_the_reason_and_stopping_twice_is_the_same(lab: Lab) -> None:
    engine = lab.begin(
        lab.step("a", FOREVER),
        lab.step("b", NOTHING, needs=(Need("a"),)),
        lab.step("c", NOTHING),
    )
    ids = engine.job_ids
    until(lambda: engine.describe(ids)[0].count(JobState.RUNNING) == 1)
    until(lambda: engine.describe(ids)[2].state is JobState.SUCCEEDED)
    engine.stop(ids, "enough", grace_s=1)
    engine.stop(ids, "enough", grace_s=1)
    wait(engine, ids)
    details = engine.describe(ids)
    assert [detail.state for detail in details] == [
        JobState.FAILED,
        JobState.FAILED,
        JobState.SUCCEEDED,
    ]
    assert [detail.status_reason for detail in details[:2]] == ["enough", "enough"]
    assert [attempt.step for attempt in engine.attempts(ids) if attempt.attempt] == ["a", "c"]
    until(lambda: engine.overview().state is RunState.STOPPED)
    engine.stop(ids, "again", grace_s=1)
    assert [detail.status_reason for detail in engine.describe(ids)[:2]] == ["enough", "enough"]


# AWS Batch takes no timeout below a minute.
@pytest.mark.parametrize(
    "lab",
    [
        *(MEMORY, PROCESS, DOCKER, pytest.param(AWS, marks=pytest.mark.slow), AWS_DOCKER),
        *(ECS, ECS_DOCKER),
    ],
    indirect=True,
)
def test_a_timeout_is_not_retried(lab: Lab) -> None:
    engine = lab.begin(lab.step("a", FOREVER, timeout_s=lab.least_timeout_s, retries=3))
    wait(engine, engine.job_ids)
    (attempt,) = engine.attempts(engine.job_ids)
    assert attempt.status_reason == "Job attempt duration exceeded timeout"


@with_slow_ecs
def test_the_record_names_no_secret_of_the_environment(lab: Lab) -> None:
    os.environ["VERY_SECRET"] = "hunter2"
    try:
        engine = lab.begin(lab.step("a", NOTHING))
        wait(engine, engine.job_ids)
    finally:
        del os.environ["VERY_SECRET"]
    assert lab.record is not None
    assert "hunter2" not in json.dumps(lab.record.folder.record.read_text())


@with_slow_ecs
def test_the_record_is_read_back_as_it_was_written(lab: Lab) -> None:
    engine = lab.begin(lab.step("a", [NOTHING, NOTHING], array=2))
    assert lab.record is not None
    read = runs.read(lab.record.folder)
    assert read.engine.name == lab.record.engine.name
    assert read.settings == lab.record.settings
    assert read.plan.jobs == lab.record.plan.jobs
    wait(engine, engine.job_ids)


@with_slow_ecs
def test_a_retry_runs_what_is_left_and_only_once_the_run_is_over(lab: Lab) -> None:
    engine = lab.begin(
        lab.step("a", NOTHING), lab.step("b", WAITS), lab.step("c", exits(3), needs=(Need("b"),))
    )
    assert lab.record is not None
    with pytest.raises(InputError, match="still running"):
        operations.begin_retry(lab.record)
    assert not engine.is_deletable
    lab.go()
    until(lambda: engine.overview().state is RunState.FAILED)
    assert engine.is_deletable
    again = operations.begin_retry(lab.record)
    assert [job.step for job in again.plan.jobs] == ["c"]
    assert again.retry_of == lab.record.run_id != again.run_id


@with_slow_ecs
def test_a_retry_keeps_pairs_of_which_one_child_is_done(lab: Lab) -> None:
    """Child 0 of a always fails; child 1 of b fails only in the first run."""
    is_retry = False
    engine = lab.begin(
        lab.step(
            "a",
            Act(
                "test $AWS_BATCH_JOB_ARRAY_INDEX != 0",
                lambda call: Result(exit_code=int(call.index == 0)),
            ),
            array=3,
        ),
        lab.step(
            "b",
            Act(
                "test -e retry || test $AWS_BATCH_JOB_ARRAY_INDEX = 2",
                lambda call: Result(exit_code=int(not is_retry and call.index != 2)),
            ),
            array=3,
            needs=(Need("a", each=True),),
        ),
    )
    until(lambda: engine.overview().state is RunState.FAILED)
    assert lab.record is not None
    assert engine.unfinished().children == {"a": [0], "b": [0, 1]}
    is_retry = True
    (lab.folder / "retry").touch()
    again = operations.begin_retry(lab.record)
    operations.start(again)
    repeated = again.open()
    until(lambda: repeated.overview().state is RunState.FAILED)
    # Attempt 0 is a child that did not begin: not all engines list it.
    assert sorted(end for end in ends(repeated, repeated.job_ids) if end[2]) == [
        ("a", 0, 1, "FAILED", 1),
        ("b", 1, 1, "SUCCEEDED", 0),
    ]
    assert repeated.unfinished().children == {"a": [0], "b": [0]}
    numbers = [command.number for command in repeated.commands("b")]
    assert numbers == sorted(numbers)


@with_slow_ecs
def test_a_run_without_a_failure_has_nothing_to_retry(lab: Lab) -> None:
    engine = lab.begin(lab.step("a", NOTHING))
    until(lambda: engine.overview().state is RunState.SUCCEEDED)
    assert lab.record is not None
    with pytest.raises(InputError, match="nothing to retry"):
        operations.begin_retry(lab.record)


@with_slow_ecs
def test_a_retry_repeats_one_command_also_if_it_succeeded(lab: Lab) -> None:
    engine = lab.begin(lab.step("a", [says(f"line-{number}") for number in range(4)], array=2))
    until(lambda: engine.overview().state is RunState.SUCCEEDED)
    assert lab.record is not None
    again = operations.begin_retry(lab.record, RetryRequest(part=RunPart("a", command=2)))
    operations.start(again)
    repeated = again.open()
    until(lambda: repeated.overview().state is RunState.SUCCEEDED)
    assert [command.number for command in repeated.commands()] == [2]
    assert text_of(repeated, "a", 1) == lab.as_logged(b"line-2\n")
    with pytest.raises(InputError, match="has no command 4"):
        operations.begin_retry(lab.record, RetryRequest(part=RunPart("a", command=4)))
