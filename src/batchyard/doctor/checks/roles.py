"""Roles that AWS acts with: for Spot, for AWS Batch itself. Pure."""

from __future__ import annotations

from batchyard.doctor.checks.common import Found, Setting, each, hosted, is_over, waiting_job
from batchyard.doctor.checks.kinds import (
    FLEET_ROLE_UNUSABLE,
    SERVICE_LINKED_ROLE_MISSING,
    SERVICE_ROLE_TOO_WEAK,
)
from batchyard.doctor.facts import Environment, Facts, known
from batchyard.doctor.finding import Finding

SPOT_ROLE = "AWSServiceRoleForEC2Spot"
FLEET_ROLE = "AWSServiceRoleForEC2SpotFleet"
TAGGING_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole"
_NO_ROLE_WORDS = ("servicelinkedrolecreationnotpermitted", "service-linked role for ec2 spot")
_WEAK_ROLE = "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS"


def uses_fleet(environment: Environment) -> bool:
    """Only BEST_FIT, said or by default, buys through a Spot Fleet."""
    return (
        environment.is_spot
        and not environment.is_fargate
        and environment.strategy in ("", "BEST_FIT")
    )


def needs_roles(environment: Environment) -> bool:
    """Whether it is worth asking for the roles of Spot: where it has hosts, they must be there."""
    return environment.is_spot and not (isinstance(environment.hosts, tuple) and environment.hosts)


def linked_roles(facts: Facts, setting: Setting) -> Found:
    """AWS makes them at the first request, if it may: that they are not there yet is wrong only where a job waits, or
    where a launch has failed for it."""
    spot = [] if is_over(facts) else [e for e in hosted(facts) if e.is_spot]
    if not spot:
        return None
    job = waiting_job(facts)
    is_stuck = job is not None and job.status == "RUNNABLE" and not setting.is_early
    if not any(map(needs_roles, spot)) or not (is_stuck or any(map(_was_refused, spot))):
        return []
    there = known(facts.linked_roles)
    needed = [SPOT_ROLE, *([FLEET_ROLE] if any(map(uses_fleet, spot)) else [])]
    services = {SPOT_ROLE: "spot.amazonaws.com", FLEET_ROLE: "spotfleet.amazonaws.com"}
    return [
        Finding(
            SERVICE_LINKED_ROLE_MISSING,
            f"the account has no {role}, which Spot instances need",
            (f"{len(there)} of the service-linked roles exist: {', '.join(there) or 'none'}",),
            (f"aws iam create-service-linked-role --aws-service-name {services[role]}",),
            f"compute environment {spot[0].name}",
        )
        for role in needed
        if role not in there
    ]


def _was_refused(environment: Environment) -> bool:
    failures = environment.failures if isinstance(environment.failures, tuple) else ()
    return any(words in failure.message.lower() for failure in failures for words in _NO_ROLE_WORDS)


def fleet_role(facts: Facts, setting: Setting) -> Found:
    these = [] if is_over(facts) else [e for e in hosted(facts) if uses_fleet(e)]
    if not these:
        return None
    return each(these, _bad_fleet_role)


def _bad_fleet_role(environment: Environment) -> list[Finding]:
    if environment.fleet_role is None:
        name, what = "none", "there is none, and BEST_FIT on Spot needs one"
    else:
        role = known(environment.fleet_role)
        if role.exists and role.can_tag:
            return []
        name, what = role.name, "it may not tag instances" if role.exists else "it does not exist"
    return [
        Finding(
            FLEET_ROLE_UNUSABLE,
            f"the Spot fleet role of {environment.name} cannot be used: {what}",
            (f"spotIamFleetRole {name}; strategy {environment.strategy or 'not given: BEST_FIT'}",),
            (
                f"aws iam attach-role-policy --role-name ROLE --policy-arn {TAGGING_POLICY}",
                "or make an environment with SPOT_PRICE_CAPACITY_OPTIMIZED, which needs no such role",
            ),
            f"compute environment {environment.name}",
        )
    ]


def service_role(facts: Facts, setting: Setting) -> Found:
    job = waiting_job(facts)
    if job is None or job.status != "RUNNABLE":
        return None
    if not job.status_reason.startswith(_WEAK_ROLE):
        return []
    return [
        Finding(
            SERVICE_ROLE_TOO_WEAK,
            "AWS says that the service role lacks a permission",
            (job.status_reason,),
            (
                "use AWSServiceRoleForBatch: make the environment without a service role, or",
                "aws iam attach-role-policy --role-name ROLE --policy-arn "
                "arn:aws:iam::aws:policy/service-role/AWSBatchServiceRole",
            ),
            f"job {job.job_id}",
            likelihood=99,
        )
    ]
