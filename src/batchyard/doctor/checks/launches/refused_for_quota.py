"""BY026: EC2 refuses launches because a quota is used up."""

from __future__ import annotations

from batchyard.doctor.checks.base import Check, Timing, Verdict
from batchyard.doctor.checks.launches import refusals
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY026", Severity.ERROR, 90, "no launch was refused for a quota")


def check(facts: Facts, timing: Timing) -> Verdict:
    remedy = (
        "aws service-quotas list-service-quotas --service-code ec2 "
        "--query \"Quotas[?contains(QuotaName,'Running')]\"",
        "request an increase of the one that the message names",
    )
    cause = "launches are refused: an EC2 quota is used up"
    return refusals.find_refusals(facts, refusals.QUOTA, KIND, cause, remedy)


CHECK = Check(check, (KIND,))
