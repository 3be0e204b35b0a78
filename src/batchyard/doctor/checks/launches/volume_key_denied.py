"""BY043: instances end at launch because the key of their encrypted volume is denied."""

from __future__ import annotations

from batchyard.doctor.checks.base import Check, Timing, Verdict
from batchyard.doctor.checks.launches import refusals
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY043", Severity.ERROR, 70, "encrypted volumes can be opened at launch")


def check(facts: Facts, timing: Timing) -> Verdict:
    remedy = (
        "aws kms create-grant --key-id KEY "
        "--operations Decrypt GenerateDataKeyWithoutPlaintext CreateGrant "
        "--grantee-principal AWSServiceRoleForAutoScaling's ARN",
    )
    cause = "instances end at launch because their encrypted volume cannot be opened"
    return refusals.find_refusals(facts, refusals.KEY, KIND, cause, remedy)


CHECK = Check(check, (KIND,))
