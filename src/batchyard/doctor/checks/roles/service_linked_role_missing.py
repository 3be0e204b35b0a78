"""BY041: the account lacks a service-linked role that Spot instances need.

AWS creates the roles at the first Spot request, if it may. Their absence is a finding only where
a job waits, or where a launch failed for that reason.
"""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_facts,
    ec2_environments,
    place_of,
    runnable_job,
)
from batchyard.doctor.checks.roles.spot_roles import needs_spot_roles, uses_spot_fleet
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY041", Severity.ERROR, 74, "the service-linked role for Spot exists")
_SPOT_ROLE = "AWSServiceRoleForEC2Spot"
_FLEET_ROLE = "AWSServiceRoleForEC2SpotFleet"
_SERVICES = {_SPOT_ROLE: "spot.amazonaws.com", _FLEET_ROLE: "spotfleet.amazonaws.com"}
#: a launch that failed for this reason says so, in lower case
_REFUSAL_WORDS = ("servicelinkedrolecreationnotpermitted", "service-linked role for ec2 spot")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    spot = [environment for environment in ec2_environments(facts) if environment.is_spot]
    if not spot:
        return None
    is_stuck = runnable_job(facts) is not None and not timing.is_early
    if not any(map(needs_spot_roles, spot)) or not (is_stuck or any(map(_was_refused, spot))):
        return []
    existing = require(facts.linked_roles)
    needed = [_SPOT_ROLE, *([_FLEET_ROLE] if any(map(uses_spot_fleet, spot)) else [])]
    return [
        Finding(
            KIND,
            f"the account has no {role}, which Spot instances need",
            (
                f"{len(existing)} of the service-linked roles exist: "
                f"{', '.join(existing) or 'none'}",
            ),
            (f"aws iam create-service-linked-role --aws-service-name {_SERVICES[role]}",),
            place_of(spot[0]),
        )
        for role in needed
        if role not in existing
    ]


def _was_refused(environment: Environment) -> bool:
    failures = environment.failures if isinstance(environment.failures, tuple) else ()
    return any(word in failure.message.lower() for failure in failures for word in _REFUSAL_WORDS)
