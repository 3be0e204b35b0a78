"""BY040: no subnet of the environment has free addresses."""

from __future__ import annotations

from batchyard.doctor.checks.base import MAX_LISTED, check_environments, environments_of
from batchyard.doctor.checks.network.subnets import subnets_of
from batchyard.doctor.facts import Environment, Facts
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY040", Severity.ERROR, 78, "the subnets have free addresses")
#: With fewer free addresses in every subnet a fleet cannot grow.
MIN_FREE_ADDRESSES = 3


@check_environments(KIND, environments_of)
def check(environment: Environment, facts: Facts) -> Findings:
    """An environment may use any of its subnets: it fails when all of them are full."""
    subnets = subnets_of(environment, facts)
    if not subnets or any(s.free_addresses >= MIN_FREE_ADDRESSES for s in subnets):
        return
    yield Finding(
        KIND,
        f"the subnets of {environment.name} have no addresses left for new instances",
        tuple(f"{s.id}: {s.free_addresses} free" for s in subnets[:MAX_LISTED]),
        ("add larger subnets to the environment, or end what holds the addresses",),
    )
