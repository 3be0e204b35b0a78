"""The instances of compute environments in moto's EC2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from batchyard.batch.jobs import Resources
from batchyard.emulator.hosts import Instance
from batchyard.emulator.moto_instances import MotoInstances
from batchyard.emulator.names import ACCOUNT_ID

#: A region of its own: moto's state belongs to the process.
REGION = "eu-north-1"


@pytest.fixture
def reservations() -> Iterator[dict[str, Any]]:
    from moto.ec2.models import ec2_backends

    backend = ec2_backends[ACCOUNT_ID][REGION]
    yield backend.reservations
    backend.reservations.clear()


def make_instance(number: int, ended_s: float | None = None) -> Instance:
    return Instance(
        instance_id=f"i-{number:017x}",
        type_name="m6i.large",
        environment={},
        subnet="subnet-0a",
        zone=f"{REGION}a",
        is_spot=False,
        registered=Resources(2, 7_000),
        free=Resources(2, 7_000),
        launched_s=1_772_368_496.0,
        ended_s=ended_s,
    )


def test_without_a_subnet_no_instance_is_shown(reservations: dict[str, Any]) -> None:
    from moto.ec2.models import ec2_backends

    backend = ec2_backends[ACCOUNT_ID][REGION]
    subnets = {zone: dict(entries) for zone, entries in backend.subnets.items()}
    try:
        for subnet_id in [name for entries in subnets.values() for name in entries]:
            backend.delete_subnet(subnet_id)
        shown = MotoInstances(REGION)
        shown.show([make_instance(1)])
        assert (reservations, shown.ended_ids()) == ({}, [])
    finally:
        backend.subnets.update(subnets)


def states(reservations: dict[str, Any]) -> list[tuple[str, str]]:
    instances = [instance for entry in reservations.values() for instance in entry.instances]
    return [(instance.id, instance.state) for instance in instances]


def test_an_instance_is_shown_once_until_long_after_its_end(reservations: dict[str, Any]) -> None:
    shown = MotoInstances(REGION)
    shown.show([make_instance(1)])
    shown.show([make_instance(1), make_instance(2)])
    assert [state for _, state in states(reservations)] == ["running"] * 2
    shown.show([make_instance(1, ended_s=1_772_368_500.0)])
    assert [state for _, state in states(reservations)] == ["terminated"] * 2
    assert shown.ended_ids() == [make_instance(1).instance_id]


def test_of_very_many_ended_instances_the_last_ones_are_shown(
    reservations: dict[str, Any],
) -> None:
    shown = MotoInstances(REGION)
    for number in range(300):
        shown.show([make_instance(number)])
    assert len(reservations) == 201
    assert states(reservations)[-1] == (make_instance(299).instance_id, "running")
