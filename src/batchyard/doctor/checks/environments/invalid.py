"""BY005 to BY010: a compute environment is invalid.

The findings share this file because they come from one text: the status reason decides which of
them it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.doctor.checks.base import (
    Timing,
    check_facts,
    environments_of,
    is_running_or_over,
    place_of,
    update_command,
)
from batchyard.doctor.facts import Environment, Facts
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

ENVIRONMENT_INVALID = Kind("BY005", Severity.ERROR, 93, "every compute environment is valid")
INSTANCES_NEVER_JOINED = Kind("BY006", Severity.ERROR, 92, "launched instances joined the cluster")
USER_DATA_REFUSED = Kind(
    "BY007", Severity.ERROR, 92, "AWS Batch accepts the launch template's user data"
)
SERVICE_ROLE_REFUSED = Kind(
    "BY008", Severity.ERROR, 92, "the service role may do what AWS Batch needs"
)
FLEET_ROLE_REFUSED = Kind("BY009", Severity.ERROR, 92, "the Spot fleet role is accepted")
INSTANCE_PROFILE_REFUSED = Kind("BY010", Severity.ERROR, 92, "the instance profile is accepted")


@dataclass(frozen=True, slots=True)
class _Cause:
    kind: Kind
    #: the status reason contains one of these, in lower case
    words: tuple[str, ...]
    sentence: str
    remedy: tuple[str, ...]


#: in the order in which they are tried: the first that matches is the cause
_CAUSES = (
    _Cause(
        INSTANCES_NEVER_JOINED,
        ("none of the instances joined",),
        "instances were launched, but none of them joined the cluster",
        (
            "batchyard doctor userdata USER_DATA   # what the launch template runs at boot",
            "batchyard doctor host                 # on one of the instances",
        ),
    ),
    _Cause(
        USER_DATA_REFUSED,
        ("not mime multipart",),
        "the launch template's user data is not MIME multipart",
        ("wrap the script in a MIME multipart document: the page of this finding shows the form",),
    ),
    _Cause(
        FLEET_ROLE_REFUSED,
        ("iamfleetrole", "spot fleet role"),
        "AWS does not accept the Spot fleet role",
        (
            "set the strategy SPOT_PRICE_CAPACITY_OPTIMIZED, which needs no fleet role, or",
            "attach arn:aws:iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole "
            "to a role trusted by spotfleet",
        ),
    ),
    _Cause(
        INSTANCE_PROFILE_REFUSED,
        ("instance profile", "iaminstanceprofile", "invalidinstanceprofile"),
        "AWS does not accept the instance profile",
        (
            "aws iam list-instance-profiles"
            "   # instanceRole takes the ARN of a profile, not of a role",
        ),
    ),
    _Cause(
        SERVICE_ROLE_REFUSED,
        ("sts:assumerole", "is not authorized to perform", "not authorized"),
        "the service role cannot do what AWS Batch needs",
        (
            "leave the service role out, so that AWSServiceRoleForBatch is used; "
            "with a path, give the whole ARN",
        ),
    ),
)


@check_facts(
    ENVIRONMENT_INVALID,
    INSTANCES_NEVER_JOINED,
    USER_DATA_REFUSED,
    SERVICE_ROLE_REFUSED,
    FLEET_ROLE_REFUSED,
    INSTANCE_PROFILE_REFUSED,
)
def check(facts: Facts, timing: Timing) -> Verdict:
    if is_running_or_over(facts):
        return None
    return [_finding(e) for e in environments_of(facts) if e.status == "INVALID"]


def _finding(environment: Environment) -> Finding:
    reason = environment.status_reason
    evidence = (f"status INVALID: {reason or 'no reason given'}",)
    enable = update_command(
        environment, "--state DISABLED   # then ENABLED, once the cause is gone"
    )
    for cause in _CAUSES:
        if any(word in reason.lower() for word in cause.words):
            return Finding(
                cause.kind,
                cause.sentence,
                evidence,
                (*cause.remedy, enable),
                place_of(environment),
                likelihood=99,
            )
    return Finding(
        ENVIRONMENT_INVALID,
        f"the compute environment {environment.name} is INVALID",
        evidence,
        (
            f"aws batch describe-compute-environments --compute-environments {environment.name}",
            enable,
        ),
        place_of(environment),
    )
