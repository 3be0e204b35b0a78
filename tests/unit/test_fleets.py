"""Instances of compute environments: which are launched, what runs on them, when they end."""

from __future__ import annotations

import pytest

from batchyard.batch import blocked
from batchyard.batch.changes import Start
from batchyard.batch.fleets import choose_type
from batchyard.batch.jobs import Job, Outcome, Resources
from batchyard.batch.queues import (
    ComputeEnvironment,
    FairShare,
    FleetSettings,
    InstanceType,
    Queue,
    TypeChoice,
)
from batchyard.batch.scheduler import Scheduler
from cpu_time import at_most

SMALL = InstanceType("c5.large", Resources(2, 4_000))
LARGE = InstanceType("c5.4xlarge", Resources(16, 32_000))
GPU = InstanceType("g5.xlarge", Resources(4, 16_000, 1))
FOUR_GPUS = InstanceType("g5.12xlarge", Resources(48, 190_000, 4))
PLENTY = Resources(1_000, 1_000_000, 8)


def make_scheduler(
    *types: InstanceType,
    max_vcpus: int = 256,
    machine: Resources | None = PLENTY,
    **settings: object,
) -> Scheduler:
    fleet = FleetSettings(types, **settings)  # type: ignore[arg-type]
    environment = ComputeEnvironment("ce", Resources(max_vcpus, 2**40), fleet=fleet)
    scheduler = Scheduler([Queue("q", ("ce",))], [environment], machine=machine)
    scheduler.tick(1_000)
    return scheduler


def submit(
    scheduler: Scheduler, vcpus: int = 1, gpus: int = 0, size: int | None = None, id: str = "j"
) -> list[Start]:
    scheduler.submit(Job(id, id, "q", Resources(vcpus, 100, gpus), array_size=size))
    return scheduler.place()


def type_names(scheduler: Scheduler) -> list[str]:
    fleet = scheduler.fleet("ce")
    assert fleet is not None
    return [host.type.name for host in fleet.hosts]


# -- launches --------------------------------------------------------------------------------------


def test_the_children_that_are_left_choose_the_next_type() -> None:
    four = InstanceType("c5.xlarge", Resources(4, 8_000))
    scheduler = make_scheduler(LARGE, four, SMALL, choice=TypeChoice.BY_DEMAND)
    assert len(submit(scheduler, size=6)) == 6
    assert type_names(scheduler) == ["c5.xlarge", "c5.large"]


def test_no_instance_is_launched_for_children_that_wait_for_a_consumable_resource() -> None:
    fleet = FleetSettings((SMALL,))
    environment = ComputeEnvironment("ce", Resources(256, 2**40), fleet=fleet)
    scheduler = Scheduler([Queue("q", ("ce",))], [environment], {"token": 3}, machine=PLENTY)
    job = Job("j", "j", "q", Resources(1, 100), array_size=50, consumables=(("token", 1),))
    scheduler.submit(job)
    assert len(scheduler.place()) == 3
    assert type_names(scheduler) == ["c5.large"] * 2


def test_many_children_behind_a_consumable_resource_cost_little() -> None:
    fleet = FleetSettings((SMALL,))
    environment = ComputeEnvironment("ce", Resources(256, 2**40), fleet=fleet)
    scheduler = Scheduler([Queue("q", ("ce",))], [environment], {"token": 1}, machine=PLENTY)
    job = Job("j", "j", "q", Resources(1, 100), array_size=10_000, consumables=(("token", 1),))
    scheduler.submit(job)
    with at_most(10):
        for child in range(10_000):
            (start,) = scheduler.place()
            assert start.child == child
            scheduler.attempt_started("j", child, 1_000)
            scheduler.attempt_ended("j", child, Outcome(0))


def test_no_instance_runs_without_jobs() -> None:
    assert type_names(make_scheduler(SMALL)) == []


def test_children_are_packed_on_instances() -> None:
    scheduler = make_scheduler(SMALL)
    starts = submit(scheduler, size=5)
    assert [start.host_id for start in starts] == ["host-0"] * 2 + ["host-1"] * 2 + ["host-2"]
    assert scheduler.fleet("ce").vcpus == 6  # type: ignore[union-attr]


def test_a_job_reuses_an_idle_instance() -> None:
    scheduler = make_scheduler(SMALL)
    submit(scheduler)
    scheduler.attempt_ended("j", 0, Outcome(0))
    (start,) = submit(scheduler, id="k")
    assert start.host_id == "host-0"


def test_only_whole_instances_count_against_the_maximum() -> None:
    scheduler = make_scheduler(SMALL, max_vcpus=5)
    assert len(submit(scheduler, size=9)) == 4
    assert type_names(scheduler) == ["c5.large", "c5.large"]


def test_the_last_instance_may_pass_the_maximum() -> None:
    scheduler = make_scheduler(SMALL, max_vcpus=5, may_pass_max=True)
    assert len(submit(scheduler, size=9)) == 6


def test_the_machine_bounds_what_runs_and_what_is_launched() -> None:
    scheduler = make_scheduler(SMALL, machine=Resources(3, 1_000_000))
    assert len(submit(scheduler, size=100)) == 3
    assert type_names(scheduler) == ["c5.large", "c5.large"]


def test_gpus_belong_to_an_instance() -> None:
    scheduler = make_scheduler(GPU, FOUR_GPUS)
    starts = submit(scheduler, gpus=1, size=2) + submit(scheduler, gpus=2, id="k")
    assert type_names(scheduler) == ["g5.xlarge", "g5.xlarge", "g5.12xlarge"]
    assert len({gpu for start in starts for gpu in start.gpus}) == 4


def test_a_job_without_gpus_prefers_an_instance_without_gpus() -> None:
    scheduler = make_scheduler(GPU, SMALL)
    submit(scheduler, gpus=1)
    submit(scheduler, vcpus=2, id="k")
    assert type_names(scheduler) == ["g5.xlarge"], "it fits on the instance that runs"
    submit(scheduler, vcpus=2, id="l")
    assert type_names(scheduler) == ["g5.xlarge", "c5.large"]


def test_behind_a_child_that_lacks_a_gpu_other_children_start() -> None:
    scheduler = make_scheduler(GPU, SMALL, machine=Resources(64, 1_000_000, 1))
    starts = submit(scheduler, gpus=1, size=2)
    assert [start.child for start in starts] == [0]
    assert [start.job_id for start in submit(scheduler, id="k")] == ["k"]


def test_a_second_environment_takes_what_the_first_has_no_room_for() -> None:
    limits = Resources(2, 2**40)
    environments = [
        ComputeEnvironment(name, limits, fleet=FleetSettings((SMALL,))) for name in ("x", "y")
    ]
    scheduler = Scheduler([Queue("q", ("x", "y"))], environments, machine=PLENTY)
    assert [start.environment for start in submit(scheduler, size=5)] == ["x", "x", "y", "y"]


def test_no_instance_is_launched_for_what_is_reserved_for_other_shares() -> None:
    fleet = FleetSettings((InstanceType("m3.medium", Resources(1, 3_000)),))
    environment = ComputeEnvironment("ce", Resources(4, 2**40), fleet=fleet)
    queue = Queue("q", ("ce",), fair_share=FairShare(reservation_percent=50))
    scheduler = Scheduler([queue], [environment], machine=PLENTY)
    scheduler.submit(Job("j", "j", "q", Resources(1, 100), array_size=9, share="a"))
    assert len(scheduler.place()) == 2
    assert len(type_names(scheduler)) == 2


# -- which type ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "waiting_vcpus", "name"),
    [
        (TypeChoice.SMALLEST, 100, "c5.large"),
        (TypeChoice.FIRST, 1, "c5.4xlarge"),
        (TypeChoice.BY_DEMAND, 1, "c5.large"),
        (TypeChoice.BY_DEMAND, 15, "c5.large"),
        (TypeChoice.BY_DEMAND, 16, "c5.4xlarge"),
        (TypeChoice.BY_DEMAND, 100, "c5.4xlarge"),
    ],
)
def test_choice_of_a_type(choice: TypeChoice, waiting_vcpus: int, name: str) -> None:
    assert choose_type([LARGE, GPU, SMALL], choice, waiting_vcpus, 0).name == name


def test_any_type_can_be_the_one_with_the_most_spot_capacity() -> None:
    types = [SMALL, LARGE]
    chosen = {choose_type(types, TypeChoice.ANY, 1, number).name for number in range(20)}
    assert chosen == {"c5.large", "c5.4xlarge"}


# -- jobs that can never start ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "max_vcpus", "reason"),
    [
        (Resources(1, 100), 16, ""),
        (Resources(1, 100), 2, blocked.MAX_VCPUS),
        (Resources(17, 100), 256, blocked.NO_INSTANCE),
        (Resources(1, 33_000), 256, blocked.NO_INSTANCE),
        (Resources(1, 100, 1), 256, blocked.NO_INSTANCE),
    ],
)
@pytest.mark.parametrize("may_pass_max", [False, True])
def test_a_job_that_no_instance_can_run(
    requested: Resources, max_vcpus: int, reason: str, may_pass_max: bool
) -> None:
    scheduler = make_scheduler(LARGE, max_vcpus=max_vcpus, may_pass_max=may_pass_max)
    scheduler.submit(Job("j", "j", "q", requested))
    starts = scheduler.place()
    scheduler.tick(2_000)
    head = scheduler.blocked_head("q")
    assert (head[2] if head else "", bool(starts)) == (reason, not reason)


# -- delays ----------------------------------------------------------------------------------------


def test_children_wait_for_instances_that_boot() -> None:
    scheduler = make_scheduler(SMALL, launch_s=60)
    assert submit(scheduler, size=5) == []
    assert type_names(scheduler) == ["c5.large"] * 3
    scheduler.tick(60_999)
    assert scheduler.place() == []
    assert type_names(scheduler) == ["c5.large"] * 3, "no child gets a second instance"
    scheduler.tick(61_000)
    assert len(scheduler.place()) == 5


def test_an_idle_instance_ends_after_a_while() -> None:
    scheduler = make_scheduler(SMALL, idle_s=10)
    submit(scheduler)
    scheduler.tick(50_000)
    assert type_names(scheduler) == ["c5.large"], "it is not idle"
    scheduler.attempt_ended("j", 0, Outcome(0))
    scheduler.tick(59_999)
    assert type_names(scheduler) == ["c5.large"]
    scheduler.tick(60_000)
    assert type_names(scheduler) == []
    fleet = scheduler.fleet("ce")
    assert fleet is not None and [host.ended_ms for host in fleet.ended_hosts] == [60_000]


def test_the_minimum_always_runs() -> None:
    scheduler = make_scheduler(SMALL, LARGE, min_vcpus=18, idle_s=1)
    assert type_names(scheduler) == ["c5.large"] * 9
    scheduler = make_scheduler(SMALL, LARGE, min_vcpus=18, idle_s=1, choice=TypeChoice.BY_DEMAND)
    assert type_names(scheduler) == ["c5.4xlarge", "c5.large"]
    scheduler.tick(100_000)
    assert type_names(scheduler) == ["c5.4xlarge", "c5.large"]


def test_requested_vcpus_run_until_they_are_idle() -> None:
    scheduler = make_scheduler(SMALL, idle_s=10)
    fleet = scheduler.fleet("ce")
    assert fleet is not None
    fleet.request_vcpus(4)
    assert fleet.vcpus == 4
    scheduler.tick(20_000)
    assert fleet.vcpus == 0


# -- changes and losses ----------------------------------------------------------------------------


def test_instances_of_a_type_that_was_taken_away_end_with_their_jobs() -> None:
    scheduler = make_scheduler(SMALL)
    submit(scheduler)
    settings = FleetSettings((LARGE,))
    changed = ComputeEnvironment("ce", Resources(256, 2**40), fleet=settings)
    scheduler.set_environment(changed)
    (start,) = submit(scheduler, id="k")
    assert type_names(scheduler) == ["c5.large", "c5.4xlarge"]
    assert start.host_id == "host-1"
    scheduler.attempt_ended("j", 0, Outcome(0))
    scheduler.tick(1_100)
    assert type_names(scheduler) == ["c5.4xlarge"]


@pytest.mark.parametrize("may_pass_max", [False, True])
def test_a_lowered_maximum_ends_instances_as_they_become_idle(may_pass_max: bool) -> None:
    scheduler = make_scheduler(SMALL, may_pass_max=may_pass_max)
    submit(scheduler, vcpus=2, size=3)
    settings = FleetSettings((SMALL,), may_pass_max=may_pass_max)
    scheduler.set_environment(ComputeEnvironment("ce", Resources(4, 2**40), fleet=settings))
    submit(scheduler, vcpus=2, id="k")
    scheduler.attempt_ended("j", 0, Outcome(0))
    assert scheduler.place() == []
    scheduler.tick(1_100)
    assert len(type_names(scheduler)) == 2
    scheduler.attempt_ended("j", 1, Outcome(0))
    assert [start.job_id for start in scheduler.place()] == ["k"]


def test_a_lost_instance_takes_no_more_jobs_and_the_machine_gets_its_room_back() -> None:
    scheduler = make_scheduler(SMALL, machine=Resources(2, 1_000))
    submit(scheduler, size=2)
    host = scheduler.host_of("j", 0)
    assert host is not None and scheduler.children_on(host) == [("j", 0), ("j", 1)]
    host.fleet.end(host)
    assert submit(scheduler, id="k") == [], "the children still hold the machine"
    for child in (0, 1):
        scheduler.attempt_ended("j", child, Outcome(None, "Host EC2 terminated."))
    (start,) = scheduler.place()
    assert (start.job_id, start.host_id) == ("k", "host-1")


def test_replaced_instances_take_no_more_jobs_and_expire() -> None:
    scheduler = make_scheduler(SMALL)
    submit(scheduler)
    fleet = scheduler.fleet("ce")
    assert fleet is not None
    fleet.replace_hosts(60_000)
    (start,) = submit(scheduler, id="k")
    assert start.host_id == "host-1"
    scheduler.tick(60_999)
    assert fleet.expired_hosts() == []
    scheduler.tick(61_000)
    assert [host.host_id for host in fleet.expired_hosts()] == ["host-0"]


def test_a_second_replacement_gives_instances_no_more_time() -> None:
    scheduler = make_scheduler(SMALL)
    submit(scheduler)
    fleet = scheduler.fleet("ce")
    assert fleet is not None
    fleet.replace_hosts(60_000)
    scheduler.tick(31_000)
    fleet.replace_hosts(60_000)
    assert [host.ends_at_ms for host in fleet.hosts] == [61_000]
    fleet.replace_hosts(0)
    assert [host.host_id for host in fleet.expired_hosts()] == ["host-0"]


def test_replaced_instances_end_with_their_last_job() -> None:
    scheduler = make_scheduler(SMALL)
    submit(scheduler)
    fleet = scheduler.fleet("ce")
    assert fleet is not None
    fleet.replace_hosts(60_000)
    scheduler.attempt_ended("j", 0, Outcome(0))
    scheduler.tick(1_100)
    assert fleet.hosts == []


def test_the_counts_of_vcpus_hold_while_instances_fill_and_end() -> None:
    scheduler = make_scheduler(SMALL, max_vcpus=8)
    submit(scheduler, size=7)
    fleet = scheduler.fleet("ce")
    assert fleet is not None
    assert (fleet.vcpus, fleet.free_vcpus) == (8, 1)
    fleet.end(fleet.hosts[0])
    assert (fleet.vcpus, fleet.free_vcpus) == (6, 3)
    for child in range(7):
        scheduler.attempt_ended("j", child, Outcome(0))
    assert (fleet.vcpus, fleet.free_vcpus) == (6, 8), "two children were on the ended instance"
    starts = submit(scheduler, size=9, id="k")
    hosts = [start.host_id for start in starts]
    assert sorted(hosts) == sorted(["host-1", "host-2", "host-3", "host-4"] * 2)


def test_a_disabled_environment_launches_nothing() -> None:
    scheduler = make_scheduler(SMALL)
    off = ComputeEnvironment(
        "ce", Resources(256, 2**40), is_enabled=False, fleet=FleetSettings((SMALL,))
    )
    scheduler.set_environment(off)
    assert submit(scheduler) == [] and type_names(scheduler) == []


def test_a_disabled_environment_keeps_its_instances_and_launches_none_for_its_minimum() -> None:
    scheduler = make_scheduler(SMALL, min_vcpus=2)
    for min_vcpus in (2, 6):
        fleet = FleetSettings((SMALL,), min_vcpus=min_vcpus)
        off = ComputeEnvironment("ce", Resources(256, 2**40), is_enabled=False, fleet=fleet)
        scheduler.set_environment(off)
        scheduler.tick(100_000)
        assert type_names(scheduler) == ["c5.large"]


def test_a_removed_environment_ends_its_instances() -> None:
    scheduler = make_scheduler(SMALL, min_vcpus=2)
    fleet = scheduler.fleet("ce")
    scheduler.remove_environment("ce")
    assert fleet is not None and fleet.hosts == [] and scheduler.fleets() == []
