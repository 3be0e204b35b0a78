"""Gather EC2 quotas, the use of them, and Spot prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from batchyard import ec2_types
from batchyard.aws.ec2 import Ec2
from batchyard.aws.quotas import Quotas
from batchyard.aws.session import AwsSession, naming_errors
from batchyard.doctor.facts import (
    NOT_GATHERED,
    Environment,
    Missing,
    Quota,
    SpotPrice,
)
from batchyard.doctor.gather.aws_calls import AwsCalls
from batchyard.ec2_prices import Prices, latest_spot_prices
from batchyard.ec2_types import InstanceType

#: Quotas that are read; few queues use more kinds of instances.
_MAX_QUOTAS = 3
#: Largest page of DescribeInstances.
_MAX_LISTED = 1000
#: Values that EC2 accepts in one filter.
_MAX_VALUES = 200
_RUNNING_STATES = ["pending", "running"]


class MarketCalls:
    """Operations of EC2: each method is one call and returns AWS's shapes."""

    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def instances(self, patterns: Sequence[str]) -> Any:
        """Return the first page of the account's running instances of these types."""
        filters = [
            {"Name": "instance-type", "Values": list(patterns)},
            {"Name": "instance-state-name", "Values": _RUNNING_STATES},
        ]
        with naming_errors("list the running instances"):
            return self._session.client("ec2").describe_instances(
                Filters=filters, MaxResults=_MAX_LISTED
            )

    def instances_by_id(self, ids: Sequence[str]) -> Any:
        """Return the instances that exist: a filter accepts ids that do not, a list does not."""
        with naming_errors("describe instances"):
            return self._session.client("ec2").describe_instances(
                Filters=[{"Name": "instance-id", "Values": list(ids)}]
            )


# -- quotas --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """The running instances of the account that count against the quotas."""

    instances: tuple[Mapping[str, Any], ...] = ()
    #: True if there are more instances than one page.
    is_part: bool = False


def find_running(calls: AwsCalls, codes: Sequence[str]) -> Running | Missing:
    """Return the running instances that count against the quotas with these codes."""
    patterns = ec2_types.quota_patterns(codes)
    answer = calls.call(
        "ec2:DescribeInstances", lambda: MarketCalls(calls.session).instances(patterns)
    )
    if isinstance(answer, Missing):
        return answer
    return Running(_instances_in(answer), bool(answer.get("NextToken")))


def find_instances(
    calls: AwsCalls, ids: set[str], running: Running | Missing
) -> tuple[Mapping[str, Any], ...] | Missing:
    """Return the instances with these ids, from ``running`` or else from AWS."""
    listed = () if isinstance(running, Missing) else running.instances
    instances = tuple(instance for instance in listed if instance["InstanceId"] in ids)
    unlisted = sorted(ids - {instance["InstanceId"] for instance in instances})
    if not unlisted:
        return instances
    market = MarketCalls(calls.session)
    answer = calls.call(
        "ec2:DescribeInstances", lambda: market.instances_by_id(unlisted[:_MAX_VALUES])
    )
    return answer if isinstance(answer, Missing) else (*instances, *_instances_in(answer))


def _instances_in(answer: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        instance for reservation in answer["Reservations"] for instance in reservation["Instances"]
    )


def quota_codes(
    environments: Sequence[Environment], types: tuple[InstanceType, ...] | Missing
) -> list[str]:
    codes = [
        ec2_types.quota_code(name, environment.is_spot)
        for environment in environments
        for name in type_names([environment], types)
    ]
    return [code for code in dict.fromkeys(codes) if code][:_MAX_QUOTAS]


def read_quotas(calls: AwsCalls, codes: Sequence[str]) -> tuple[Quota, ...] | Missing:
    quotas: list[Quota] = []
    missing: Missing = NOT_GATHERED
    for code in codes:
        document = calls.call(
            "servicequotas:GetServiceQuota", partial(Quotas(calls.session).ec2, code)
        )
        if isinstance(document, Missing):
            missing = document
        else:
            quotas.append(Quota(code, float(document["Value"]), document.get("QuotaName", "")))
    return tuple(quotas) or missing


def add_use(
    quotas: tuple[Quota, ...] | Missing,
    running: Running | Missing,
    types: tuple[InstanceType, ...] | Missing,
) -> tuple[Quota, ...] | Missing:
    if isinstance(quotas, Missing):
        return quotas
    if isinstance(running, Missing):
        return tuple(replace(quota, used_vcpus=running) for quota in quotas)
    used = used_vcpus(running.instances, () if isinstance(types, Missing) else types)
    return tuple(
        replace(quota, used_vcpus=used.get(quota.code, 0.0), is_at_least=running.is_part)
        for quota in quotas
    )


def used_vcpus(
    instances: Iterable[Mapping[str, Any]], types: Iterable[InstanceType] = ()
) -> dict[str, float]:
    """Return quota code -> vCPUs in use. Dedicated hosts and capacity blocks do not count."""
    vcpus = {name: kind.vcpus for name, kind in ec2_types.TYPES.items()}
    vcpus |= {kind.name: kind.vcpus for kind in types}
    used: dict[str, float] = {}
    for instance in instances:
        lifecycle = instance.get("InstanceLifecycle", "")
        is_host = instance.get("Placement", {}).get("Tenancy") == "host"
        if lifecycle not in ("", "spot") or is_host:
            continue
        name, cpu = instance["InstanceType"], instance.get("CpuOptions", {})
        enabled_vcpus = cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 1)
        code = ec2_types.quota_code(name, lifecycle == "spot")
        # Quotas count all vCPUs of the type, also those that are disabled.
        used[code] = used.get(code, 0.0) + vcpus.get(name, enabled_vcpus)
    return used


# -- Spot prices ---------------------------------------------------------------------------------


def read_spot_prices(
    calls: AwsCalls,
    environments: Sequence[Environment],
    types: tuple[InstanceType, ...] | Missing,
    prices: Prices,
    region: str,
    now_ms: int,
) -> tuple[SpotPrice, ...] | Missing:
    """Return the Spot prices for environments that bid less than the On-Demand price."""
    bidders = [
        environment
        for environment in environments
        if environment.is_spot and (environment.bid_percentage or 100) < 100
    ]
    names = type_names(bidders, types)
    if not names:
        return NOT_GATHERED
    at_time = datetime.fromtimestamp(now_ms / 1000, UTC)
    ec2 = Ec2(calls.session)
    history = calls.call("ec2:DescribeSpotPriceHistory", lambda: ec2.spot_prices(names, at_time))
    if isinstance(history, Missing):
        return history
    other_region = prices.region if prices.region != region else ""
    return tuple(
        SpotPrice(name, zone, price, prices.usd_h.get(name, 0.0), other_region)
        for name, prices_by_zone in latest_spot_prices(history).items()
        for zone, price in prices_by_zone.items()
    )


def type_names(
    environments: Sequence[Environment], types: tuple[InstanceType, ...] | Missing
) -> list[str]:
    """Return the names of all instance types of the environments, families written out."""
    described = None if isinstance(types, Missing) else types
    return list(
        dict.fromkeys(
            kind.name
            for environment in environments
            for kind in ec2_types.expand(environment.instance_types, described)
        )
    )
