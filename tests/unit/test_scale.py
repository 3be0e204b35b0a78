"""`scale`: another number of children for a dynamic step, while the run goes on."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path

import pytest

from batchyard import plan as planning
from batchyard.api import Pipeline
from batchyard.batch.jobs import Job, Outcome, Resources
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded import machine
from batchyard.embedded.store import Store
from batchyard.engines.base import Offer, RetryRequest, RunRequest
from batchyard.engines.local import preparing
from batchyard.engines.local.settings import LocalSettings, from_json, to_json
from batchyard.engines.local.step_limits import StepLimits, fit_capacity, max_children
from batchyard.engines.memory import HOLD, MemoryEngine
from batchyard.errors import InputError
from batchyard.pipeline import Pipeline as PipelineValue
from batchyard.pipeline import Step
from batchyard.shard import DYNAMIC

FILE = """\
name: rows
steps:
  - {name: a, commands: [x 0, x 1, x 2, x 3, x 4], share_out: dynamic, array: 2}
  - {name: b, command: y}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "rows.yaml"
    path.write_text(FILE)
    return Pipeline.load(path)


def running(status: dict[str, object]) -> int:
    steps = status["steps"]
    assert isinstance(steps, list)
    return int(steps[0]["running"])


def test_more_children_start_where_there_is_room(pipeline: Pipeline) -> None:
    engine = MemoryEngine({"a": HOLD})
    run = pipeline.run(engine=engine, offer=Offer(cpus=4))
    assert running(run.status()) == 2
    assert run.scale("a", 3) == 3
    assert running(run.status()) == 3
    assert run.scale("a", 100) == 4, "there are four vCPUs"
    assert running(run.status()) == 4


@pytest.mark.parametrize("children", [0, -1, 10**7, True, 1.5, "2"])
def test_the_number_of_children_must_be_one(pipeline: Pipeline, children: object) -> None:
    run = pipeline.run(engine=MemoryEngine({"a": HOLD}))
    with pytest.raises(InputError, match="the number of children is"):
        run.scale("a", children)  # type: ignore[arg-type]


def test_only_dynamic_steps_can_be_scaled(pipeline: Pipeline) -> None:
    run = pipeline.run(engine=MemoryEngine({"a": HOLD}))
    with pytest.raises(InputError, match="'b' is not dynamic"):
        run.scale("b", 2)
    with pytest.raises(InputError, match="has no step 'c'"):
        run.scale("c", 2)


def test_a_run_that_is_over_cannot_be_scaled(pipeline: Pipeline) -> None:
    with pytest.raises(InputError, match="the run is over"):
        pipeline.run(engine=MemoryEngine()).scale("a", 3)


# -- this machine ----------------------------------------------------------------------------------


def local_plan(count: int = 8, steps: int = 1) -> planning.Plan:
    names = ("a", "b")[:steps]
    commands = tuple(f"x {number}" for number in range(count))
    made = [Step(name, commands=commands, share_out=DYNAMIC, array=2) for name in names]
    return planning.with_child_per_command(planning.make(PipelineValue("p", tuple(made))))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "state.db", create=True)


def test_a_request_of_another_process_changes_the_scheduler(store: Store) -> None:
    plan = local_plan()
    limits = StepLimits(plan, Resources(2, 4096), store)
    scheduler = Scheduler(
        [Queue("q", ("e",))], [ComputeEnvironment("e", limits.capacity)], limits.by_step
    )
    resources = plan.job("a").resources
    scheduler.submit(Job("a", "a", "q", resources, array_size=8, consumables=(("a", 1),)))
    assert len(scheduler.place()) == 2
    store.request_scale("a", 5)
    limits.apply_requests(scheduler, "e")
    assert len(scheduler.place()) == 3
    store.request_scale("a", 1)
    limits.apply_requests(scheduler, "e")
    for child in range(4):
        scheduler.attempt_ended("a", child, Outcome(0))
    assert not scheduler.place(), "the last of the five still runs"
    scheduler.attempt_ended("a", 4, Outcome(0))
    assert len(scheduler.place()) == 1


def test_a_resumed_run_keeps_the_number(store: Store) -> None:
    store.request_scale("a", 3)
    limits = StepLimits(local_plan(), Resources(2, 1024), store)
    assert (limits.by_step, limits.capacity) == ({"a": 3}, Resources(3, 1536))


def test_the_capacity_grows_only_for_a_run_of_one_step() -> None:
    capacity = Resources(2, 1024)
    assert fit_capacity(local_plan(), capacity, {"a": 100}) == Resources(8, 4096)
    assert fit_capacity(local_plan(), capacity, {"a": 1}) == capacity
    assert fit_capacity(local_plan(steps=2), capacity, {"a": 100}) == capacity


def test_a_request_is_lowered_to_what_the_limit_of_open_files_allows(store: Store) -> None:
    plan = local_plan()
    limits = StepLimits(plan, Resources(2, 1024), store, open_files=100)
    scheduler = Scheduler(
        [Queue("q", ("e",))], [ComputeEnvironment("e", limits.capacity)], limits.by_step
    )
    resources = plan.job("a").resources
    scheduler.submit(Job("a", "a", "q", resources, array_size=8, consumables=(("a", 1),)))
    store.request_scale("a", 7)
    limits.apply_requests(scheduler, "e")
    assert len(scheduler.place()) == max_children(100) == 6
    resumed = StepLimits(plan, Resources(2, 1024), store, open_files=100)
    assert (resumed.by_step, resumed.capacity) == ({"a": 6}, Resources(6, 3072))


def test_the_limit_of_open_files_has_room_for_all_children(store: Store) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        StepLimits(local_plan(count=64), Resources(64, 100_000), store)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256, "two children at once"
        store.request_scale("a", 64)
        StepLimits(local_plan(count=64), Resources(64, 100_000), store)
        assert max_children(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) == 64
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_step_that_shrinks_leaves_open_files_for_another(store: Store) -> None:
    limits = StepLimits(local_plan(steps=2), Resources(100, 100_000), store, open_files=100)
    assert limits.by_step == {"a": 2, "b": 2}
    for requested, by_step in (
        ({"a": 8}, {"a": 4, "b": 2}),
        ({"a": 8, "b": 1}, {"a": 5, "b": 1}),
        ({"a": 1, "b": 8}, {"a": 1, "b": 5}),
    ):
        for step, children in requested.items():
            store.request_scale(step, children)
        scheduler = Scheduler(
            [Queue("q", ("e",))], [ComputeEnvironment("e", limits.capacity)], limits.by_step
        )
        limits.apply_requests(scheduler, "e")
        assert limits.by_step == by_step


def test_the_limit_of_open_files_of_another_process() -> None:
    process = subprocess.Popen(
        ["bash", "-c", "ulimit -n 90; echo; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None and process.stdout.readline()
        assert machine.max_open_files(process.pid) == 90
        process.communicate(timeout=300)
    assert machine.max_open_files(process.pid) == machine.max_open_files()


def test_the_limits_that_the_user_gave_are_kept(store: Store) -> None:
    capacity = Resources(2, 1024)
    for limited, expected in (
        (("vcpus",), Resources(2, 4096)),
        (("memory_mib",), Resources(8, 1024)),
        (("memory_mib", "vcpus"), capacity),
    ):
        assert fit_capacity(local_plan(), capacity, {"a": 8}, limited) == expected
    store.request_scale("a", 8)
    limits = StepLimits(local_plan(), capacity, store, limited=("memory_mib", "vcpus"))
    assert limits.capacity == capacity


def test_the_record_knows_which_limits_the_user_gave(tmp_path: Path) -> None:
    def prepared(**offer: int) -> LocalSettings:
        value = PipelineValue("p", (Step("a", commands=("x",), share_out=DYNAMIC),))
        plan = planning.make(value)
        offered = Offer(workspace=str(tmp_path), **offer)  # type: ignore[arg-type]
        prepared = preparing.prepare(RunRequest(plan, value, tmp_path, offered))
        settings: LocalSettings = prepared.settings
        return from_json(json.loads(json.dumps(to_json(settings))))

    assert prepared(at_once=1).limited == ()
    limited = prepared(cpus=1)
    assert limited.limited == ("vcpus",)
    assert prepared(cpus=1, memory_mib=1024).limited == ("memory_mib", "vcpus")
    resumed = preparing.change_settings(limited, local_plan(), RetryRequest(memory_mib=1024))
    assert resumed.limited == ("memory_mib", "vcpus")
    assert preparing.change_settings(limited, local_plan(), RetryRequest()) == limited
