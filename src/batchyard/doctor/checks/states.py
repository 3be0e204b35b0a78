"""The states of queues and compute environments, and the words AWS has for what is invalid. Pure."""

from __future__ import annotations

from batchyard.doctor.checks.common import Found, Setting, environments, is_over, update
from batchyard.doctor.checks.kinds import (
    ENVIRONMENT_INVALID,
    FLEET_ROLE_REFUSED,
    INSTANCE_PROFILE_REFUSED,
    INSTANCES_NEVER_JOINED,
    NO_ENVIRONMENT_ENABLED,
    QUEUE_DISABLED,
    QUEUE_INVALID,
    SERVICE_ROLE_REFUSED,
    USER_DATA_REFUSED,
)
from batchyard.doctor.facts import Environment, Facts, known
from batchyard.doctor.finding import Finding, Kind

#: what a status reason contains -> the cause, the sentence, and what to do; the first that matches decides
_INVALID: tuple[tuple[tuple[str, ...], Kind, str, tuple[str, ...]], ...] = (
    (
        ("none of the instances joined",),
        INSTANCES_NEVER_JOINED,
        "instances were launched, but none of them joined the cluster",
        (
            "batchyard doctor userdata USER_DATA   # what the launch template runs at boot",
            "batchyard doctor host                 # on one of the instances",
        ),
    ),
    (
        ("not mime multipart",),
        USER_DATA_REFUSED,
        "the launch template's user data is not MIME multipart",
        ("wrap the script in a MIME multipart document: the page of this finding shows the form",),
    ),
    (
        ("iamfleetrole", "spot fleet role"),
        FLEET_ROLE_REFUSED,
        "AWS does not accept the Spot fleet role",
        (
            "set the strategy SPOT_PRICE_CAPACITY_OPTIMIZED, which needs no fleet role, or",
            "attach arn:aws:iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole to a role trusted by spotfleet",
        ),
    ),
    (
        ("instance profile", "iaminstanceprofile", "invalidinstanceprofile"),
        INSTANCE_PROFILE_REFUSED,
        "AWS does not accept the instance profile",
        (
            "aws iam list-instance-profiles   # instanceRole takes the ARN of a profile, not of a role",
        ),
    ),
    (
        ("sts:assumerole", "is not authorized to perform", "not authorized"),
        SERVICE_ROLE_REFUSED,
        "the service role cannot do what AWS Batch needs",
        (
            "leave the service role out, so that AWSServiceRoleForBatch is used; with a path, give the whole ARN",
        ),
    ),
)


def queue_enabled(facts: Facts, setting: Setting) -> Found:
    if facts.queue is None or is_over(facts):
        return None
    queue = known(facts.queue)
    if queue.state == "ENABLED":
        return []
    return [
        Finding(
            QUEUE_DISABLED,
            f"the queue {queue.name} is {queue.state}: it accepts no jobs and starts none",
            (f"state {queue.state}",),
            (f"aws batch update-job-queue --job-queue {queue.name} --state ENABLED",),
            f"queue {queue.name}",
        )
    ]


def queue_valid(facts: Facts, setting: Setting) -> Found:
    if facts.queue is None or is_over(facts):
        return None
    queue = known(facts.queue)
    if queue.status in ("VALID", "CREATING", "UPDATING"):
        return []
    return [
        Finding(
            QUEUE_INVALID,
            f"the queue {queue.name} is {queue.status}",
            (
                f"status {queue.status}"
                + (f": {queue.status_reason}" if queue.status_reason else ""),
            ),
            (f"aws batch describe-job-queues --job-queues {queue.name}",),
            f"queue {queue.name}",
        )
    ]


def environment_enabled(facts: Facts, setting: Setting) -> Found:
    """One that is enabled is enough for a queue; one that was asked for by name must be."""
    if is_over(facts):
        return None
    these = environments(facts)
    if any(e.state == "ENABLED" for e in these):
        return []
    if not these:
        return [
            Finding(
                NO_ENVIRONMENT_ENABLED,
                "the queue has no compute environment",
                ("0 compute environments in its order",),
                (
                    "aws batch update-job-queue --job-queue QUEUE "
                    "--compute-environment-order order=1,computeEnvironment=NAME",
                ),
            )
        ]
    return [
        Finding(
            NO_ENVIRONMENT_ENABLED,
            f"the compute environment {e.name} is {e.state}, and no other is enabled",
            (f"state {e.state}", f"0 of {len(these)} enabled"),
            (update(e, "--state ENABLED"),),
            f"compute environment {e.name}",
        )
        for e in these
    ]


def environment_valid(facts: Facts, setting: Setting) -> Found:
    if is_over(facts):
        return None
    return [_invalid(e) for e in environments(facts) if e.status == "INVALID"]


def _invalid(environment: Environment) -> Finding:
    reason = environment.status_reason
    place = f"compute environment {environment.name}"
    evidence = (f"status INVALID: {reason or 'no reason given'}",)
    repair = update(environment, "--state DISABLED   # then ENABLED, once the cause is gone")
    for words, kind, sentence, remedy in _INVALID:
        if any(word in reason.lower() for word in words):
            return Finding(kind, sentence, evidence, (*remedy, repair), place, likelihood=99)
    see = f"aws batch describe-compute-environments --compute-environments {environment.name}"
    return Finding(
        ENVIRONMENT_INVALID,
        f"the compute environment {environment.name} is INVALID",
        evidence,
        (see, repair),
        place,
    )
