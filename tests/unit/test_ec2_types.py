"""The catalogue of instance types and its dated prices."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard import ec2_prices, ec2_types


def test_gpus_have_a_model_and_a_memory() -> None:
    for listed in ec2_types.TYPES.values():
        has_gpus = listed.gpus > 0
        assert has_gpus <= bool(listed.gpu and listed.gpu_memory_mib), listed.name
        assert has_gpus <= (ec2_types.family_of(listed.name) in ec2_types.GPU_FAMILIES)
        assert listed.vcpus > 0 and listed.memory_mib > 0
    p4de = ec2_types.TYPES["p4de.24xlarge"]
    assert (p4de.gpus, p4de.gpu, p4de.gpu_memory_mib) == (8, "A100", 80 * 1024)


def test_every_price_is_of_a_type_of_the_catalogue_and_spot_is_never_dearer() -> None:
    on_demand, spot = ec2_prices.load_prices(), ec2_prices.load_prices(spot=True)
    assert on_demand.usd_h.keys() == spot.usd_h.keys() <= ec2_types.TYPES.keys()
    assert all(0 < spot.usd_h[name] <= usd_h for name, usd_h in on_demand.usd_h.items())


def test_the_catalogue_agrees_with_the_answers_of_ec2() -> None:
    """moto has the answers of DescribeInstanceTypes in us-east-1."""
    utils = pytest.importorskip("moto.utilities.utils")
    answers: dict[str, dict[str, Any]] = utils.load_resource("ec2/resources/instance_types.json")
    for name, answer in answers.items():
        architectures = answer["ProcessorInfo"]["SupportedArchitectures"]
        if any("mac" in architecture for architecture in architectures):
            continue  # not for Linux, so not for jobs
        listed = ec2_types.TYPES[name]
        cards = answer.get("GpuInfo", {}).get("Gpus", [])
        assert listed.vcpus == answer["VCpuInfo"]["DefaultVCpus"]
        assert listed.memory_mib == answer["MemoryInfo"]["SizeInMiB"]
        assert listed.architecture in architectures
        assert listed.gpus == sum(card["Count"] for card in cards)
        if listed.gpus:
            assert [(listed.gpu, listed.gpu_memory_mib)] == [
                (card["Name"], card["MemoryInfo"]["SizeInMiB"]) for card in cards
            ]


@pytest.mark.parametrize(
    ("name", "is_arm"),
    [
        *(("m6g.large", True), ("g5g", True), ("a1", True), ("default_arm64", True)),
        *(("g5", False), ("optimal", False), ("m6gx.large", False), ("g4dn.xlarge", False)),
    ],
)
def test_architectures(name: str, is_arm: bool) -> None:
    assert ec2_types.is_arm(name) is is_arm
