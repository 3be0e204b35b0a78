"""BY026: EC2 refuses launches because a quota is used up."""

from __future__ import annotations

from batchyard.doctor.checks.launches import refusals
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY026", Severity.ERROR, 90, "no launch was refused for a quota")

check = refusals.check_refusals(
    KIND,
    refusals.QUOTA,
    "launches are refused: an EC2 quota is used up",
    (
        "aws service-quotas list-service-quotas --service-code ec2 "
        "--query \"Quotas[?contains(QuotaName,'Running')]\"",
        "request an increase of the one that the message names",
    ),
)
