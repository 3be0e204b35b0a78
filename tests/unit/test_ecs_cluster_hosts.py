"""Which hosts the tasks of a cluster may get, from AWS's descriptions."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.batch.jobs import Resources
from batchyard.cost.offers import select_queue_types
from batchyard.engines.base import FARGATE_CHOICE, HostChoice
from batchyard.engines.ecs.cluster_hosts import count_hosts, list_providers, read_group
from batchyard.environments import Environment
from batchyard.errors import InputError

STRATEGY = {"defaultCapacityProviderStrategy": [{"capacityProvider": "nodes", "weight": 1}]}


def mixed(*types: str, on_demand: int = 0, **members: Any) -> dict[str, Any]:
    """Return an Auto Scaling group with several types."""
    overrides = [{"InstanceType": name, **members} for name in types]
    distribution = {
        "OnDemandBaseCapacity": 0,
        "OnDemandPercentageAboveBaseCapacity": on_demand,
    }
    policy = {"LaunchTemplate": {"Overrides": overrides}, "InstancesDistribution": distribution}
    return {"MixedInstancesPolicy": policy, "MaxSize": 4}


def by_attributes() -> dict[str, Any]:
    overrides = [{"InstanceRequirements": {"VCpuCount": {"Min": 8}}}]
    return {"MixedInstancesPolicy": {"LaunchTemplate": {"Overrides": overrides}}, "MaxSize": 4}


@pytest.mark.parametrize(
    ("group", "template_type", "choice"),
    [
        (
            mixed("g4dn.xlarge", "g5.xlarge"),
            "",
            HostChoice(("g4dn.xlarge", "g5.xlarge"), is_spot=True, max_hosts=4),
        ),
        (mixed("m5.large", on_demand=50), "", HostChoice(("m5.large",), max_hosts=4)),
        # Its size is not a number of hosts.
        (mixed("m5.large", on_demand=100, WeightedCapacity="2"), "", HostChoice(("m5.large",))),
        ({"MaxSize": 2}, "c5.large", HostChoice(("c5.large",), max_hosts=2)),
        ({"MaxSize": 2}, "", HostChoice((), max_hosts=2)),
        # Chosen by attributes, whatever the launch template names.
        (by_attributes(), "t3.micro", HostChoice((), max_hosts=4)),
    ],
)
def test_the_hosts_of_an_auto_scaling_group(
    group: Any, template_type: str, choice: HostChoice
) -> None:
    assert read_group(group, template_type) == choice


def test_the_capacity_provider_of_the_environment_comes_before_that_of_the_cluster() -> None:
    plain = Environment("lab", "us-east-1", "bucket", {}, cluster="c")
    assert list_providers(plain, STRATEGY) == ["nodes"]
    assert list_providers(plain, {}) == []
    named = Environment("lab", "us-east-1", "bucket", {}, cluster="c", capacity_provider="gpu")
    assert list_providers(named, STRATEGY) == ["gpu"]
    on_hosts = Environment("lab", "us-east-1", "bucket", {}, cluster="c", launch_type="EC2")
    assert list_providers(on_hosts, STRATEGY) == []


def instance(kind: str) -> dict[str, Any]:
    resources = [{"name": "CPU", "integerValue": 4096}, {"name": "MEMORY", "integerValue": 15000}]
    attributes = [{"name": "ecs.instance-type", "value": kind}]
    return {"ec2InstanceId": "i-1", "attributes": attributes, "registeredResources": resources}


def test_hosts_that_a_cluster_has_are_counted_by_type() -> None:
    few = [instance("m5.xlarge"), instance("c5.large"), instance("m5.xlarge"), instance("")]
    assert count_hosts(few) == (
        HostChoice(("c5.large",), max_hosts=1),
        HostChoice(("m5.xlarge",), max_hosts=2),
    )
    # There may be more of them.
    assert count_hosts([instance("m5.xlarge")] * 100) == (HostChoice(("m5.xlarge",)),)


def test_a_number_of_hosts_limits_a_step_as_maxvcpus_does() -> None:
    needed = Resources(1, 64)
    (counts,) = select_queue_types(needed, [HostChoice(("m5.xlarge",), max_hosts=3)])
    assert {listed.name: count for listed, count in counts.items()} == {"m5.xlarge": 3}
    with pytest.raises(InputError, match="prices of Fargate are not known"):
        select_queue_types(needed, [FARGATE_CHOICE])
