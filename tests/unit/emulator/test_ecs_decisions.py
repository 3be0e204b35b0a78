"""Decisions about ECS tasks: placement, states, overrides and the cluster in user data."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs.container_specs import make_task_spec, parse_cpu, parse_memory
from batchyard.emulator.ecs.placement import (
    Candidate,
    Need,
    Room,
    Rules,
    choose_room,
    count_missing_instances,
    find_lack,
    matches,
)
from batchyard.emulator.ecs.task_states import (
    ContainerView,
    Dependency,
    containers_to_begin,
    find_stop,
    last_status,
)
from batchyard.emulator.moto_ecs import find_cluster_name

SMALL = Room("small", 1024, 1000, 0, task_count=1, groups=frozenset(["family:a"]))
LARGE = Room("large", 4096, 8000, 2, attributes={"ecs.instance-type": "g5.2xlarge"})


# -- placement ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("need", "room", "reason"),
    [
        (Need(1024, 1000), SMALL, None),
        (Need(1025, 1000), SMALL, "RESOURCE:CPU"),
        (Need(0, 1001), SMALL, "RESOURCE:MEMORY"),
        (Need(0, 1, 1), SMALL, "RESOURCE:GPU"),
        (
            Need(ports=frozenset([80])),
            Room("r", 1, 1, 0, used_ports=frozenset([80])),
            "RESOURCE:PORTS",
        ),
        (Need(), Room("r", 1, 1, 0, is_agent_connected=False), "AGENT"),
    ],
)
def test_the_first_lack_of_an_instance(need: Need, room: Room, reason: str | None) -> None:
    assert find_lack(need, room) == reason


def rules(*strategies: tuple[str, str], **members: Any) -> Rules:
    return Rules(strategies=strategies, **members)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (rules(), "large"),  # spread: it has fewer tasks
        (rules(("binpack", "memory")), "small"),
        (rules(("spread", "instanceid")), "large"),
        (rules(("spread", "attribute:ecs.instance-type")), "large"),
        (rules(is_distinct=True), "large"),
        (rules(("binpack", "cpu"), expressions=("attribute:ecs.instance-type =~ g5.*",)), "large"),
    ],
)
def test_which_instance_takes_a_task(strategy: Rules, name: str) -> None:
    room, failures = choose_room(Candidate(Need(512, 500), strategy, "family:a"), [SMALL, LARGE])
    assert room is not None and room.name == name
    assert failures == []


def test_every_instance_that_cannot_take_a_task_has_its_reason() -> None:
    strategy = rules(expressions=("attribute:ecs.instance-type == g5.2xlarge",))
    room, failures = choose_room(Candidate(Need(0, 0, 3), strategy, "family:b"), [SMALL, LARGE])
    assert room is None
    assert failures == [
        ("small", "MemberOf placement constraint unsatisfied."),
        ("large", "RESOURCE:GPU"),
    ]


@pytest.mark.parametrize(
    ("expression", "is_true"),
    [
        ("attribute:zone == a", True),
        ("attribute:zone != a", False),
        ("attribute:zone in [a, b]", True),
        ("attribute:zone !in [b]", True),
        ("attribute:zone exists", True),
        ("attribute:other !exists", True),
        ("attribute:zone == a and attribute:type =~ g[45].*", True),
        ("attribute:type =~ [", False),
        ("task:group == x", False),
    ],
)
def test_expressions_of_constraints(expression: str, is_true: bool) -> None:
    assert matches(expression, {"zone": "a", "type": "g5.xlarge"}) is is_true


def test_instances_are_launched_for_tasks_that_fit_on_no_other() -> None:
    empty = Room("new", 4096, 16000, 1)
    gpu, cpu, wide = (
        Candidate(need) for need in (Need(2048, 8000, 1), Need(2048, 8000), Need(0, 0, 4))
    )
    assert count_missing_instances([gpu] * 3, [empty], empty, at_most=10) == 2
    assert count_missing_instances([gpu] * 3, [], empty, at_most=2) == 2
    assert count_missing_instances([cpu] * 4, [], empty, at_most=9) == 2
    assert count_missing_instances([wide], [], empty, at_most=9) == 0


def test_instances_are_launched_within_the_placement_constraints() -> None:
    empty = Room("new", 4096, 16000, 1, attributes={"ecs.instance-type": "g5.xlarge"})
    alone = Candidate(Need(512, 500), rules(is_distinct=True), "service:alone")
    assert count_missing_instances([alone] * 3, [empty], empty, at_most=9) == 2
    g5 = rules(expressions=("attribute:ecs.instance-type =~ g5.*",))
    p3 = rules(expressions=("attribute:ecs.instance-type =~ p3.*",))
    other = Room("other", 4096, 16000, 1, attributes={"ecs.instance-type": "p3.2xlarge"})
    assert count_missing_instances([Candidate(Need(), g5)], [other], empty, at_most=9) == 1
    assert count_missing_instances([Candidate(Need(), p3)], [], empty, at_most=9) == 0


# -- states ---------------------------------------------------------------------------------------


def running(name: str = "main", **members: Any) -> ContainerView:
    return ContainerView(name, is_begun=True, is_started=True, **members)


def status(*containers: ContainerView, **facts: bool) -> str:
    known = {"is_placed": True, "is_stopping": False, "is_stopped": False, **facts}
    return last_status(containers, **known)


def test_the_state_of_a_task() -> None:
    waiting = ContainerView("main")
    assert status(waiting, is_placed=False) == "PROVISIONING"
    assert status(waiting) == "PENDING"
    assert status(running(), waiting) == "PENDING"
    assert status(running()) == "RUNNING"
    assert status(running(), is_stopping=True) == "STOPPING"
    assert status(running(), is_stopped=True) == "STOPPED"


def test_containers_begin_when_their_dependencies_are_met() -> None:
    def main(condition: str) -> ContainerView:
        return ContainerView("main", depends_on=(Dependency("first", condition),))

    first = ContainerView("first")
    assert containers_to_begin([main("START"), first]) == ["first"]
    assert containers_to_begin([main("START"), running("first")]) == ["main"]
    assert containers_to_begin([main("SUCCESS"), running("first")]) == []
    succeeded = running("first", is_over=True, exit_code=0)
    failed = running("first", is_over=True, exit_code=1)
    assert containers_to_begin([main("SUCCESS"), succeeded]) == ["main"]
    assert containers_to_begin([main("SUCCESS"), failed]) == []
    assert containers_to_begin([main("COMPLETE"), failed]) == ["main"]


def test_why_a_task_stops_by_itself() -> None:
    helper = running("helper", is_essential=False, is_over=True, exit_code=0)
    assert find_stop([running(), helper]) is None
    over = find_stop([running(is_over=True, exit_code=0), helper])
    assert over == ("EssentialContainerExited", "Essential container in task exited")
    unstarted = ContainerView("main", is_begun=True, is_over=True)
    assert find_stop([unstarted]) == ("TaskFailedToStart", "Task failed to start")
    waiting = ContainerView("main", depends_on=(Dependency("helper", "SUCCESS"),))
    failed = running("helper", is_essential=False, is_over=True, exit_code=1)
    assert find_stop([waiting, helper]) is None
    assert find_stop([waiting, failed]) == ("TaskFailedToStart", "Task failed to start")


# -- task definitions with overrides --------------------------------------------------------------


def definition(*containers: dict[str, Any], **members: Any) -> dict[str, Any]:
    defaults = {"image": "busybox", "memory": 100}
    return {"containerDefinitions": [{**defaults, **c} for c in containers], **members}


def test_a_task_needs_what_its_containers_need() -> None:
    gpu = [{"type": "GPU", "value": "2"}]
    task = definition(
        {"name": "a", "cpu": 512, "resourceRequirements": gpu},
        {"name": "b", "memoryReservation": 50, "portMappings": [{"hostPort": 80}]},
    )
    assert make_task_spec(task, {}).need == Need(512, 150, 2, frozenset([80]))
    assert make_task_spec({**task, "networkMode": "awsvpc"}, {}).need.ports == frozenset()
    at_task_level = make_task_spec({**task, "cpu": "1 vCPU", "memory": "2 GB"}, {})
    assert at_task_level.need[:2] == (1024, 2048)
    overridden = make_task_spec(task, {"cpu": "256"})
    assert (overridden.need.cpu_units, overridden.cpu) == (256, "256")


def test_an_override_replaces_and_adds() -> None:
    task = definition({"name": "a", "command": ["x"], "environment": [{"name": "K", "value": "1"}]})
    override = {
        "name": "a",
        "command": ["y"],
        "memory": 7,
        "environment": [{"name": "K", "value": "2"}, {"name": "L", "value": "3"}],
        "resourceRequirements": [{"type": "GPU", "value": "1"}],
    }
    (container,) = make_task_spec(task, {"containerOverrides": [override]}).containers
    assert container.container["command"] == ["y"]
    assert container.container["environment"] == [
        {"name": "K", "value": "2"},
        {"name": "L", "value": "3"},
    ]
    assert (container.memory_limit_mib, container.need.gpus) == (7, 1)


@pytest.mark.parametrize("value", ["0", "-1", "0.5", "ALL", "100"])
def test_parts_of_gpus_are_refused(value: str) -> None:
    gpu = [{"type": "GPU", "value": value}]
    with pytest.raises(ApiError, match="whole GPUs"):
        make_task_spec(definition({"name": "a", "resourceRequirements": gpu}), {})


@pytest.mark.parametrize("amount", ["cpu", "memory", "memoryReservation"])
def test_negative_amounts_are_refused(amount: str) -> None:
    override = {"containerOverrides": [{"name": "a", amount: -1}]}
    with pytest.raises(ApiError, match=f"Invalid {amount} of container a: -1"):
        make_task_spec(definition({"name": "a"}), override)


def test_units_of_tasks() -> None:
    assert (parse_cpu("512"), parse_cpu(".5 vCPU"), parse_cpu("2 vcpu")) == (512, 512, 2048)
    assert (parse_memory("512"), parse_memory("0.5 GB"), parse_memory("30GB")) == (512, 512, 30720)
    for parse in (parse_cpu, parse_memory):
        for text in ("", "many", "1.5"):
            with pytest.raises(ApiError):
                parse(text)


# -- user data ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user_data", "cluster"),
    [
        ("#!/bin/bash\necho ECS_CLUSTER=lab >> /etc/ecs/ecs.config", "lab"),
        ("cat <<EOF >> /etc/ecs/ecs.config\nECS_CLUSTER='my-lab'\nEOF", "my-lab"),
        ('ecs_setting ECS_CLUSTER "dev-ecs"', "dev-ecs"),
        ('ecs_setting ECS_CLUSTER "${cluster##*/}"', ""),
        ('[settings.ecs]\nenable-spot = true\ncluster = "rocket"\n', "rocket"),
        ("echo hello", ""),
    ],
)
def test_the_cluster_in_user_data(user_data: str, cluster: str) -> None:
    assert find_cluster_name(user_data) == cluster


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 400 + " vCPU", "9" * 400 + " GB", "1" * 19])
def test_numbers_that_are_too_long_are_refused(text: str) -> None:
    with pytest.raises(ApiError, match="Invalid setting for cpu"):
        parse_cpu(text)
    with pytest.raises(ApiError, match="Invalid setting for memory"):
        parse_memory(text)
