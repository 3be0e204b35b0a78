"""Values that cannot work, zones and quotas that are short, and what is paid without jobs."""

from __future__ import annotations

import pytest

from batchyard.ec2_prices import load_prices
from batchyard.errors import InputError
from batchyard.infra import EVERY, catalogue, fixed_costs, prechecks

PRICES = load_prices()


def values_of(*templates: str, **settings: str) -> dict[str, dict[str, str]]:
    return {
        name: catalogue.effective_values(catalogue.load_template(name), "dev", settings, {})
        for name in templates
    }


def test_the_defaults_work() -> None:
    prechecks.require_workable(values_of(*EVERY), "dev")


@pytest.mark.parametrize(
    ("template", "settings", "problem"),
    [
        ("batch", {"GpuInstanceTypes": "p3.2xlarge"}, "does not support the GPU of p3.2xlarge"),
        ("batch", {"GpuInstanceTypes": "g5,g3s"}, "does not support the GPU of g3s"),
        ("batch", {"GpuInstanceTypes": "optimal"}, "optimal stands for families without GPUs"),
        ("batch", {"GpuInstanceTypes": "g5.xlarge, m5.xlarge"}, "m5.xlarge has no GPU"),
        ("batch", {"GpuInstanceTypes": "g4ad.xlarge"}, "cannot give the accelerator"),
        ("batch", {"GpuInstanceTypes": "g5.3xlarge"}, "there is no instance type g5.3xlarge"),
        ("gpu-batch-benchmark", {"GpuInstanceTypes": "p3.2xlarge"}, "does not support"),
        ("ecs", {"TaskGpus": "4"}, "g4dn.xlarge has 1, and a task must fit every type"),
        (
            "ecs",
            {"TaskGpus": "8", "InstanceTypes": "g4dn.12xlarge,g5.12xlarge,g6.48xlarge"},
            "12xlarge has 4",
        ),
        ("ecs", {"TaskMemoryMiB": "16384"}, "TaskMemoryMiB=16384: g4dn.xlarge has 15"),
        ("ecs", {"TaskCpuUnits": "8192"}, "TaskCpuUnits=8192: g4dn.xlarge has 4096"),
    ],
)
def test_values_that_cannot_work_are_refused(
    template: str, settings: dict[str, str], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        prechecks.require_workable(values_of(template, **settings), "dev")


def test_values_that_work_and_types_that_are_not_listed_are_accepted() -> None:
    prechecks.require_workable(
        values_of("ecs", TaskGpus="4", InstanceTypes="g4dn.12xlarge,g5.12xlarge,g6.12xlarge"),
        "dev",
    )
    prechecks.require_workable(values_of("batch", GpuInstanceTypes="g9.xlarge,g5"), "dev")


@pytest.mark.parametrize("template", ["batch", "batch-unmanaged", "ecs", "spotfleet"])
def test_a_node_cannot_have_a_smaller_disk_than_its_image(template: str) -> None:
    own = {"GpuImageParameter": "/dev/gpu-image", "ImageId": "/dev/gpu-image"}
    values = {**values_of(template, **own), **values_of("image", VolumeGiB="200")}
    with pytest.raises(InputError, match="has 200 GiB, and a node's disk cannot be smaller"):
        prechecks.require_workable(values, "dev")
    prechecks.require_workable({**values_of(template), "image": values["image"]}, "dev")
    prechecks.require_workable({**values_of(template, **own), **values_of("image")}, "dev")


# -- the account ---------------------------------------------------------------------------------


def test_zones_that_do_not_offer_a_type_are_named() -> None:
    lines = prechecks.describe_zones(
        ["r-1b", "r-1a", "r-1c", "r-1d"],
        3,
        {"g5.xlarge": ["r-1a", "r-1b", "r-1c"], "g6.xlarge": ["r-1b", "r-1d"], "p5.4xlarge": []},
    )
    assert lines == [
        "g6.xlarge is not offered in r-1a, r-1c",
        "p5.4xlarge is offered in none of r-1a, r-1b, r-1c: it never starts",
    ]


def test_a_region_with_too_few_zones() -> None:
    (line,) = prechecks.describe_zones(["r-1a", "r-1b"], 3, {})
    assert line.endswith("deploy with --set Zones=2")


def test_quotas_that_nodes_count_against() -> None:
    uses = {use.code: use.vcpus for use in prechecks.list_quota_uses(values_of("batch"))}
    assert uses == {
        "L-34B43A08": 256,
        "L-1216C47A": 128,
        "L-3819A6DF": 96,
        "L-DB2E81BA": 96,
    }
    assert prechecks.list_quota_uses(values_of("spotfleet")) == [], "no nodes, no quota"


def test_a_quota_of_zero_is_told_with_the_command_that_asks_for_more() -> None:
    use = prechecks.QuotaUse("L-DB2E81BA", 96, ("GpuOnDemandMaxvCpus of batch",))
    first, command = prechecks.describe_quota(use, 0.0, "Running On-Demand G and VT instances")
    assert "is 0: no node of GpuOnDemandMaxvCpus of batch can start" in first
    assert command.endswith("--quota-code L-DB2E81BA --desired-value 96")
    (line,) = prechecks.describe_quota(use, 8.0, "x")
    assert "is 8 vCPUs, below the 96" in line
    assert prechecks.describe_quota(use, 96.0, "x") == []


# -- fixed costs ---------------------------------------------------------------------------------


def cost_lines(*templates: str, **settings: str) -> list[str]:
    costs = fixed_costs.list_fixed_costs(values_of(*templates, **settings), PRICES)
    return fixed_costs.describe_fixed_costs(costs, PRICES.fixed_source)


def test_the_default_environment_has_no_fixed_cost() -> None:
    (line,) = cost_lines(*catalogue.CORE)
    assert line.startswith("fixed cost: none by the hour")


def test_a_nat_gateway_and_minimum_nodes_are_counted_with_the_date_of_the_prices() -> None:
    lines = cost_lines("network", "batch", Placement="private", GpuMinvCpus="8")
    # 0.05 $/h for NAT and address; 8 vCPUs of g4dn.2xlarge at 0.752 / 8 $/h
    assert lines[0] == f"fixed cost: at least ${(0.05 + 8 * 0.752 / 8) * 730:,.2f} a month"
    assert lines[1] == "  NAT gateway with its address: $36.50"
    assert lines[2].startswith("  8 vCPUs of GpuMinvCpus, on-demand: at least $")
    assert "us-east-1" in lines[3] and "2026-08-22" in lines[3] and "2026-06-01" in lines[3]


def test_nodes_that_are_kept_are_counted() -> None:
    lines = cost_lines("batch-unmanaged", MinNodes="2")
    assert (
        lines[1]
        == f"  2 nodes of MinNodes, at the on-demand price: at least ${0.526 * 2 * 730:,.2f}"
    )
    unknown = cost_lines("spotfleet", Nodes="1", InstanceTypes="g9.xlarge,g9.2xlarge,g9.x,g9.y")
    assert unknown[1].endswith("price not in the list")
