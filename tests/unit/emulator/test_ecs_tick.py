"""The tick of ECS: what goes wrong in it ends nothing else, and capacity providers of any kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from batchyard.batch.jobs import Resources
from batchyard.batch.scheduler import Scheduler
from batchyard.emulator.ecs.records import EcsState
from batchyard.emulator.ecs.surroundings import Ec2Instance, NoSurroundings
from batchyard.emulator.endpoint import Endpoint
from batchyard.emulator.moto_ecs import MotoSurroundings
from batchyard.emulator.names import ACCOUNT_ID
from batchyard.emulator.reclaims import Reclaims
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import EndpointState

#: A region of its own: moto's state belongs to the process.
REGION = "eu-south-2"


@dataclass
class FailingSurroundings(NoSurroundings):
    """Surroundings that raise the errors of a list, the first one first."""

    errors: list[Exception | None]
    looks: list[str] = field(default_factory=list)

    def list_instances(self) -> list[Ec2Instance]:
        self.looks.append("look")
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return []


def make_endpoint(surroundings: dict[str, FailingSurroundings], said: list[str]) -> Endpoint:
    scheduler = Scheduler([], [])

    def make_state(region: str) -> EndpointState:
        return EndpointState(
            scheduler=scheduler,
            loop=None,  # type: ignore[arg-type]
            store=None,  # type: ignore[arg-type]
            log_files=None,  # type: ignore[arg-type]
            region=region,
            machine=Resources(1, 1),
            task_maker=lambda number, document: None,  # type: ignore[arg-type, return-value]
            salt="0" * 16,
            ecs=EcsState(surroundings[region]),
        )

    regions = Regions(next(iter(surroundings)), make_state)
    for region in surroundings:
        regions.state(region)
    return Endpoint(regions, "/", {}, Reclaims(regions), lambda region: None, said.append)  # type: ignore[arg-type, return-value]


def test_an_error_of_ecs_is_reported_once_and_ends_nothing() -> None:
    error = KeyError("autoScalingGroupArn")
    first = FailingSurroundings([error, error, None, error])
    second = FailingSurroundings([])
    said: list[str] = []
    endpoint = make_endpoint({"us-east-1": first, "eu-west-1": second}, said)
    text = "ECS in us-east-1 does not advance: KeyError: 'autoScalingGroupArn'"
    endpoint.on_tick()
    endpoint.on_tick()
    assert said == [text]
    assert len(second.looks) == 2
    endpoint.on_tick()
    endpoint.on_tick()
    assert said == [text, text]


class ChangingProviders(dict[str, Any]):
    """Providers to which a request adds one whenever one of them is read."""

    def add_another(self) -> None:
        self[f"new-{len(self)}"] = SimpleNamespace(name="new", auto_scaling_group_provider={})


@pytest.fixture
def surroundings() -> MotoSurroundings:
    from moto.autoscaling.models import autoscaling_backends
    from moto.ecs.models import ecs_backends

    group = SimpleNamespace(
        name="g",
        mixed_instances_policy=None,
        instance_type="m5.large",
        min_size=0,
        max_size=2,
        desired_capacity=1,
        availability_zones=["eu-south-2a"],
        user_data=None,
    )
    autoscaling_backends[ACCOUNT_ID][REGION].autoscaling_groups["g"] = group
    providers = ChangingProviders()

    class WithGroup:
        name = "p"

        @property
        def auto_scaling_group_provider(self) -> dict[str, Any]:
            providers.add_another()
            return {"autoScalingGroupArn": "arn:x:autoScalingGroupName/g", "managedScaling": {}}

    providers["managed-instances"] = SimpleNamespace(name="m", auto_scaling_group_provider={})
    providers["p"] = WithGroup()
    providers["last"] = SimpleNamespace(name="l", auto_scaling_group_provider=None)
    ecs_backends[ACCOUNT_ID][REGION].capacity_providers = providers
    return MotoSurroundings(REGION)


def test_providers_without_a_group_are_skipped_and_new_ones_may_come(
    surroundings: MotoSurroundings,
) -> None:
    assert [provider.name for provider in surroundings.list_providers()] == ["p"]
