"""Asks what is sold, and what of it is taken: EC2's quotas with what is in use of them, and Spot prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from batchyard.aws.quotas import Quotas
from batchyard.aws.session import AwsSession, naming_errors
from batchyard.doctor import catalogue
from batchyard.doctor.facts import (
    NOT_GATHERED,
    Environment,
    InstanceType,
    Missing,
    Quota,
    SpotPrice,
)
from batchyard.doctor.gather.asking import Asker

#: a queue with more kinds of instances than that has other troubles
_MOST_QUOTAS = 3
#: DescribeInstances and DescribeSpotPriceHistory give so many at once
_MOST_LISTED = 1000
_MOST_TYPES = 100
#: EC2 takes so many values in one filter
_MOST_VALUES = 200
_UP = ["pending", "running"]


@dataclass(frozen=True, slots=True)
class PriceList:
    """What an hour of an instance costs On-Demand, in dollars by type."""

    usd_h: Mapping[str, float] = field(default_factory=dict)
    #: whose prices they are
    region: str = ""


class MarketCalls:
    """Every method is one call; AWS's own shapes out."""

    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def instances(self, patterns: Sequence[str]) -> Any:
        """What is up of types with such names, whoever launched it; a page."""
        filters = [
            {"Name": "instance-type", "Values": list(patterns)},
            {"Name": "instance-state-name", "Values": _UP},
        ]
        with naming_errors("ask what runs in this account"):
            return self._session.client("ec2").describe_instances(
                Filters=filters, MaxResults=_MOST_LISTED
            )

    def instances_by_id(self, ids: Sequence[str]) -> Any:
        """Those of them that are known: by a filter, since one that is gone would fail a list of ids."""
        with naming_errors("ask about instances"):
            return self._session.client("ec2").describe_instances(
                Filters=[{"Name": "instance-id", "Values": list(ids)}]
            )

    def spot_prices(self, types: Sequence[str], now: datetime) -> list[Any]:
        """The prices of now, a zone each."""
        with naming_errors("ask about Spot prices"):
            answer = self._session.client("ec2").describe_spot_price_history(
                InstanceTypes=list(types)[:_MOST_TYPES],
                ProductDescriptions=["Linux/UNIX"],
                StartTime=now,
                MaxResults=_MOST_LISTED,
            )
        return list(answer["SpotPriceHistory"])


# -- quotas ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """What is up in the account, of the types that matter."""

    instances: tuple[Mapping[str, Any], ...] = ()
    #: there is more than one page
    is_part: bool = False


def running(asker: Asker, codes: Sequence[str]) -> Running | Missing:
    """``codes``: of the quotas that matter."""
    patterns = catalogue.quota_patterns(codes)
    answer = asker.ask(
        "ec2:DescribeInstances", lambda: MarketCalls(asker.session).instances(patterns)
    )
    if isinstance(answer, Missing):
        return answer
    return Running(_instances_in(answer), bool(answer.get("NextToken")))


def launched(
    asker: Asker, ids: Iterable[str], up: Running | Missing
) -> tuple[Mapping[str, Any], ...] | Missing:
    """These instances, which say since when they are up; asked about only where ``up`` does not have them: it knows the
    types of quotas, and there are others."""
    wanted = set(ids)
    known = (
        ()
        if isinstance(up, Missing)
        else tuple(one for one in up.instances if one["InstanceId"] in wanted)
    )
    others = sorted(wanted - {one["InstanceId"] for one in known})
    if not others:
        return known
    calls = MarketCalls(asker.session)
    answer = asker.ask(
        "ec2:DescribeInstances", lambda: calls.instances_by_id(others[:_MOST_VALUES])
    )
    return answer if isinstance(answer, Missing) else (*known, *_instances_in(answer))


def _instances_in(answer: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        instance for reservation in answer["Reservations"] for instance in reservation["Instances"]
    )


def quota_codes(
    environments: Sequence[Environment], types: tuple[InstanceType, ...] | Missing
) -> list[str]:
    codes = [
        catalogue.quota_code(t.name, e.is_spot) for e in environments for t in _expanded(e, types)
    ]
    return [code for code in dict.fromkeys(codes) if code][:_MOST_QUOTAS]


def limits(asker: Asker, codes: Sequence[str]) -> tuple[Quota, ...] | Missing:
    found: list[Quota] = []
    missing: Missing = NOT_GATHERED
    for code in codes:
        document = asker.ask(
            "servicequotas:GetServiceQuota", partial(Quotas(asker.session).ec2, code)
        )
        if isinstance(document, Missing):
            missing = document
        else:
            found.append(Quota(code, float(document["Value"]), document.get("QuotaName", "")))
    return tuple(found) or missing


def with_use(
    quotas: tuple[Quota, ...] | Missing,
    up: Running | Missing,
    types: tuple[InstanceType, ...] | Missing,
) -> tuple[Quota, ...] | Missing:
    if isinstance(quotas, Missing):
        return quotas
    if isinstance(up, Missing):
        return tuple(replace(quota, used_vcpus=up) for quota in quotas)
    used = used_vcpus(up.instances, () if isinstance(types, Missing) else types)
    return tuple(
        replace(q, used_vcpus=used.get(q.code, 0.0), is_at_least=up.is_part) for q in quotas
    )


def used_vcpus(
    instances: Iterable[Mapping[str, Any]], types: Iterable[InstanceType] = ()
) -> dict[str, float]:
    """By quota. A dedicated host or a capacity block counts against neither."""
    vcpus = {name: t.vcpus for name, t in catalogue.TYPES.items()} | {
        t.name: t.vcpus for t in types
    }
    found: dict[str, float] = {}
    for one in instances:
        lifecycle = one.get("InstanceLifecycle", "")
        if lifecycle not in ("", "spot") or one.get("Placement", {}).get("Tenancy") == "host":
            continue
        name, cores = one["InstanceType"], one.get("CpuOptions", {})
        seen = cores.get("CoreCount", 0) * cores.get("ThreadsPerCore", 1)
        code = catalogue.quota_code(name, lifecycle == "spot")
        # Quotas count what the type has, whatever of it was switched off.
        found[code] = found.get(code, 0.0) + vcpus.get(name, seen)
    return found


# -- Spot prices -------------------------------------------------------------------------------------------------


def spot_prices(
    asker: Asker,
    environments: Sequence[Environment],
    types: tuple[InstanceType, ...] | Missing,
    listed: PriceList,
    region: str,
    now_ms: int,
) -> tuple[SpotPrice, ...] | Missing:
    """They matter only to who bids less than the On-Demand price."""
    bidders = [e for e in environments if e.is_spot and (e.bid_percentage or 100) < 100]
    names = list(dict.fromkeys(t.name for e in bidders for t in _expanded(e, types)))
    if not names:
        return NOT_GATHERED
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    found = asker.ask(
        "ec2:DescribeSpotPriceHistory", lambda: MarketCalls(asker.session).spot_prices(names, now)
    )
    if isinstance(found, Missing):
        return found
    newest = {
        (one["InstanceType"], one["AvailabilityZone"]): one for one in sorted(found, key=_time)
    }
    elsewhere = listed.region if listed.region != region else ""
    return tuple(
        SpotPrice(name, zone, float(one["SpotPrice"]), listed.usd_h.get(name, 0.0), elsewhere)
        for (name, zone), one in newest.items()
    )


def _time(document: Mapping[str, Any]) -> float:
    time = document.get("Timestamp")
    return time.timestamp() if isinstance(time, datetime) else 0.0


def _expanded(
    environment: Environment, types: tuple[InstanceType, ...] | Missing
) -> tuple[InstanceType, ...]:
    return catalogue.expand(
        environment.instance_types, None if isinstance(types, Missing) else types
    )
