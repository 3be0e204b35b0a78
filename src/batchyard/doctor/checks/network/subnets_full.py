"""BY040: no subnet of the environment has free addresses."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    MAX_LISTED,
    Check,
    Timing,
    Verdict,
    check_each,
    environments_of,
    place_of,
)
from batchyard.doctor.checks.network.subnets import subnets_of
from batchyard.doctor.facts import Environment, Facts
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY040", Severity.ERROR, 78, "the subnets have free addresses")
#: With fewer free addresses in every subnet a fleet cannot grow.
MIN_FREE_ADDRESSES = 3


def check(facts: Facts, timing: Timing) -> Verdict:
    """An environment may use any of its subnets: it fails when all of them are full."""
    return check_each(environments_of(facts), lambda environment: _examine(facts, environment))


def _examine(facts: Facts, environment: Environment) -> list[Finding]:
    subnets = subnets_of(environment, facts)
    if not subnets or any(s.free_addresses >= MIN_FREE_ADDRESSES for s in subnets):
        return []
    return [
        Finding(
            KIND,
            f"the subnets of {environment.name} have no addresses left for new instances",
            tuple(f"{s.id}: {s.free_addresses} free" for s in subnets[:MAX_LISTED]),
            ("add larger subnets to the environment, or end what holds the addresses",),
            place_of(environment),
        )
    ]


CHECK = Check(check, (KIND,))
