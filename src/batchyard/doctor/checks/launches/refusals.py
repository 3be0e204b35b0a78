"""The messages of launches that failed, grouped by what they mean."""

from __future__ import annotations

from batchyard.doctor.checks.base import Check, check_each, ec2_environments
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind

#: words in lower case; a message that contains one of them is about this
QUOTA = ("vcpulimitexceeded", "instancelimitexceeded", "maxspotinstancecountexceeded", "vcpu limit")
PRICE = ("spotmaxpricetoolow", "price-too-low", "lower than the minimum required spot")
CAPACITY = (
    "insufficientinstancecapacity",
    "unfulfillablecapacity",
    "do not have sufficient",
    "no spot capacity",
)
KEY = ("client.internalerror", "client.invalidkmskey", "kms key", "kmskey")
TEMPLATE = (
    "placement group",
    "tenancy",
    "invalidblockdevicemapping",
    "block device",
    "not supported in your requested",
    "unsupportedoperation",
    "invalidparameter",
    "invalid launch template",
    "invalidlaunchtemplate",
)
#: in the order in which they are tried: a message belongs to the first group that matches
_GROUPS = (QUOTA, PRICE, CAPACITY, KEY, TEMPLATE)
_MAX_MESSAGE_LENGTH = 300


def check_refusals(
    kind: Kind, group: tuple[str, ...], cause: str, remedy: tuple[str, ...]
) -> Check:
    """Make a check that reports failed launches of the group."""
    return Check(lambda facts, timing: find_refusals(facts, group, kind, cause, remedy), (kind,))


def find_refusals(
    facts: Facts, group: tuple[str, ...], kind: Kind, cause: str, remedy: tuple[str, ...]
) -> list[Finding] | None:
    """Return a finding for each environment that has failed launches of the group."""

    def examine(environment: Environment) -> Findings:
        messages = [
            failure.message
            for failure in require(environment.failures)
            if _group_of(failure.message) is group
        ]
        if messages:
            message = messages[0][:_MAX_MESSAGE_LENGTH]
            evidence = (f"{len(messages)} failed launches, the last: {message}",)
            yield Finding(kind, cause, evidence, remedy)

    return check_each(ec2_environments(facts), examine)


def _group_of(message: str) -> tuple[str, ...] | None:
    text = message.lower()
    return next((group for group in _GROUPS if any(word in text for word in group)), None)
