"""`batchyard prices`: which types fit, their prices, and where the prices come from."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from batchyard.aws.session import AccessDeniedError, AwsRefusedError, NoRegionError
from batchyard.batch.jobs import Resources
from batchyard.cli.prices import command
from batchyard.cost.market import Offers, find_offers, parse_products
from batchyard.cost.offers import Offer, resources_of_step, select_types, sort_offers
from batchyard.ec2_types import TYPES
from batchyard.errors import BatchyardError, InputError, UnreachableServiceError
from batchyard.pipeline import Pipeline, Step

NOW = datetime(2026, 11, 17, 8, 0, tzinfo=UTC)
G4DN, G5 = TYPES["g4dn.xlarge"], TYPES["g5.xlarge"]


def product(usd: str, unit: str = "Hrs") -> str:
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {
        "OnDemand": {"SKU.JRTC": {"priceDimensions": {"SKU.JRTC.6YS6": dimension}}},
        "Reserved": {"SKU.4NA7": {"priceDimensions": {"x": {"pricePerUnit": {"USD": "9"}}}}},
    }
    return json.dumps({"product": {"sku": "SKU"}, "terms": terms})


class StandIn:
    """A market with prices, or with an error for the calls of one kind."""

    def __init__(self, region: str = "eu-west-1", **errors: BatchyardError) -> None:
        self._region = region
        self._errors = errors
        self.spot_calls: list[int] = []
        self.asked: list[str] = []

    @property
    def region(self) -> str:
        self._fail("session")
        return self._region

    def spot_prices(self, types: Sequence[str], at_time: datetime) -> list[Any]:
        self._fail("spot")
        self.spot_calls.append(len(types))
        old = datetime(2026, 11, 1, tzinfo=UTC)
        return [
            {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": price, "Timestamp": time}
            for name in types
            if name in ("g4dn.xlarge", "g5.xlarge")
            for zone, price, time in (
                ("eu-west-1a", "0.30" if name == "g5.xlarge" else "0.20", at_time),
                ("eu-west-1a", "0.01", old),
                ("eu-west-1b", "0.40", at_time),
            )
        ]

    def linux_products(self, instance_type: str) -> list[str]:
        self._fail("on_demand")
        self.asked.append(instance_type)
        return [product("0.0"), product("0.50")] if instance_type == "g4dn.xlarge" else []

    def _fail(self, call: str) -> None:
        if call in self._errors:
            raise self._errors[call]


def names_of(offers: Offers) -> list[str]:
    return [offer.type.name for offer in offers.offers]


# -- which types fit --


def test_a_type_must_offer_the_memory_to_jobs_and_not_only_have_it() -> None:
    assert "g4dn.xlarge" in {t.name for t in select_types(Resources(4, 15_000, 1))}
    assert "g4dn.xlarge" not in {t.name for t in select_types(Resources(4, 16 * 1024, 1))}


def test_gpus_are_those_that_a_job_can_have() -> None:
    names = {t.name for t in select_types(Resources(1, 512, 1))}
    assert {"g4dn.xlarge", "g5.48xlarge", "p5.48xlarge"} <= names
    # too old for the image, AMD, a slice of a GPU, bare metal, arm64, none
    others = ("p3.2xlarge", "g4ad.xlarge", "g6f.xlarge", "g4dn.metal", "g5g.xlarge", "m5.xlarge")
    assert names.isdisjoint(others)
    assert {t.name for t in select_types(Resources(1, 512, 1), "arm64")} >= {"g5g.xlarge"}


def test_a_job_without_gpus_gets_no_accelerator_and_nothing_far_too_large() -> None:
    types = select_types(Resources(4, 4096))
    assert {t.name for t in types}.isdisjoint({"g4dn.xlarge", "inf1.xlarge", "m5.24xlarge"})
    assert all(t.vcpus <= 16 and not t.gpus for t in types)


def test_too_much_is_an_error_with_the_amounts() -> None:
    with pytest.raises(InputError, match="9 GPUs"):
        select_types(Resources(1, 512, 9))


def test_the_resources_of_a_step() -> None:
    steps = (Step("a", "true", cpus=2), Step("b", "true", gpus=1, memory_mib=1024))
    two = Pipeline("p", steps)
    assert resources_of_step(two, "b") == Resources(1, 1024, 1)
    assert resources_of_step(Pipeline("p", steps[:1]), None) == Resources(2, 512)
    with pytest.raises(InputError, match="2 steps"):
        resources_of_step(two, None)
    with pytest.raises(InputError, match="no step 'c'"):
        resources_of_step(two, "c")


# -- offers --


def test_an_offer_has_its_cheapest_zone_its_saving_and_the_price_of_a_gpu() -> None:
    offer = Offer(TYPES["g5.12xlarge"], 4.0, {"a": 2.0, "b": 1.0, "c": 1.0})
    assert (offer.cheapest_zone, offer.saving, offer.usd_gpu_h) == ("b", 0.75, 0.25)
    unknown = Offer(G5, None, {})
    assert (unknown.cheapest_zone, unknown.saving, unknown.usd_gpu_h) == (None, None, None)
    assert sort_offers([unknown, offer, Offer(G5, 0.5, {})]) == [Offer(G5, 0.5, {}), offer]


def test_prices_of_aws_are_the_newest_and_say_so() -> None:
    market = StandIn()
    offers = find_offers([G5, G4DN], market, NOW)
    assert names_of(offers) == ["g4dn.xlarge", "g5.xlarge"]
    assert offers.offers[0].spot_usd_h == {"eu-west-1a": 0.2, "eu-west-1b": 0.4}
    assert [offer.on_demand_usd_h for offer in offers.offers] == [0.5, None]
    assert offers.sources == (
        "spot prices: AWS, eu-west-1, 2026-11-17 08:00 UTC",
        "on-demand prices: AWS Price List, eu-west-1",
    )
    shown = offers.to_json()["offers"][0]
    assert shown["zones"] == {"eu-west-1a": 0.2, "eu-west-1b": 0.4} and shown["gpu"] == "T4"


def test_on_demand_prices_are_asked_only_for_what_may_be_shown() -> None:
    market = StandIn()
    offers = find_offers(list(TYPES.values())[:250], market, NOW, limit=1)
    # The cheapest on spot, and as many types without a spot price.
    assert market.spot_calls == [100, 100, 50] and market.asked == ["g4dn.xlarge", "g3.4xlarge"]
    assert offers.left_out == 1


class WithoutSpot(StandIn):
    def linux_products(self, instance_type: str) -> list[str]:
        return [product("0.25")]


def test_a_type_without_a_spot_price_is_shown_with_its_price_on_demand() -> None:
    offers = find_offers([G5, G4DN, TYPES["g5g.xlarge"]], WithoutSpot(), NOW)
    assert names_of(offers) == ["g4dn.xlarge", "g5g.xlarge", "g5.xlarge"]
    assert offers.offers[1].lowest_spot_usd_h is None and offers.offers[1].lowest_usd_h == 0.25


@pytest.mark.parametrize(
    "error",
    [
        UnreachableServiceError("no network"),
        AccessDeniedError("access denied for ec2:DescribeSpotPriceHistory"),
        AwsRefusedError("refused", code="X"),
    ],
)
def test_without_spot_prices_the_dated_list_is_used_and_says_why(error: BatchyardError) -> None:
    offers = find_offers([G5, G4DN, TYPES["g6f.xlarge"]], StandIn(spot=error), NOW)
    assert names_of(offers) == ["g4dn.xlarge", "g5.xlarge"]
    assert offers.region == "us-east-1"
    (source,) = offers.sources
    assert "list of 2026-08-22, us-east-1, not of eu-west-1" in source and str(error) in source
    assert offers.to_json()["offers"][0]["zone"] is None


def test_without_a_region_the_dated_list_is_used() -> None:
    (source,) = find_offers([G5], StandIn(session=NoRegionError("none")), NOW).sources
    assert "no AWS region is configured" in source


def test_on_demand_prices_of_the_list_count_only_in_its_region() -> None:
    denied = AccessDeniedError("denied")
    here = find_offers([G5], StandIn("us-east-1", on_demand=denied), NOW)
    assert here.offers[0].on_demand_usd_h == 1.006
    assert "list of 2026-08-22, us-east-1 (denied)" in here.sources[1]
    elsewhere = find_offers([G5], StandIn(on_demand=denied), NOW)
    assert elsewhere.offers[0].on_demand_usd_h is None
    assert elsewhere.sources[1] == "on-demand prices: none for eu-west-1 (denied)"


def test_an_unknown_profile_is_an_error() -> None:
    with pytest.raises(InputError, match="profile"):
        find_offers([G5], StandIn(session=InputError("no such profile")), NOW)


@pytest.mark.parametrize(
    ("texts", "usd_h"),
    [
        ([product("0.526")], 0.526),
        ([product("0.0")], None),
        ([product("3.0", "Quantity")], None),
        (['{"product": {}}'], None),
        ([], None),
    ],
)
def test_the_price_list_is_read(texts: list[str], usd_h: float | None) -> None:
    assert parse_products(texts) == usd_h


# -- the command --

PIPELINE = """
name: p
steps:
  - {name: small, command: "true"}
  - {name: train, command: "true", cpus: 4, memory: 14GiB, gpus: 1}
"""
NOBODY = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_REGION": "us-east-1",
}


def prices(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), env=NOBODY)


def test_the_command_prices_a_step_without_an_account(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    result = prices("--step", f"{file}:train", "--limit", "2", "--json")
    shown = json.loads(result.stdout)
    assert [offer["type"] for offer in shown["offers"]] == ["g4dn.2xlarge", "g4dn.xlarge"]
    assert "no usable AWS credentials" in shown["sources"][0]
    same = prices("--cpus", "4", "--memory", "14GiB", "--gpus", "1", "--limit", "2", "--json")
    assert json.loads(same.stdout)["offers"] == shown["offers"]


def test_a_step_and_amounts_exclude_each_other(tmp_path: Path) -> None:
    result = prices("--step", "pipeline.yaml:train", "--gpus", "1")
    assert isinstance(result.exception, InputError) and "--step excludes" in str(result.exception)


def test_types_without_a_known_price_are_named() -> None:
    result = prices("--cpus", "100", "--memory", "4TiB")
    assert isinstance(result.exception, BatchyardError)
    assert "no price is known" in str(result.exception)


def test_the_prices_of_an_emulator_are_not_shown_as_those_of_aws() -> None:
    emulated = {
        **NOBODY,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "emulated",
        "AWS_SECRET_ACCESS_KEY": "emulated",
    }
    result = CliRunner().invoke(command, ["--gpus", "1", "--json"], env=emulated)
    (source,) = json.loads(result.stdout)["sources"]
    assert "list of 2026-08-22" in source and "http://127.0.0.1:9 is not AWS" in source
