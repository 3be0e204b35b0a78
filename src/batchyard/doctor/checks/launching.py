"""Launches that AWS refused, by what it said: quotas, capacity, prices, keys, launch templates. Pure."""

from __future__ import annotations

from batchyard.doctor.checks.common import Found, Setting, each, hosted, is_over, named, waiting_job
from batchyard.doctor.checks.kinds import (
    LAUNCH_REFUSED_FOR_QUOTA,
    LAUNCH_TEMPLATE_CLASH,
    NO_CAPACITY,
    SPOT_BID_TOO_LOW,
    VOLUME_KEY_DENIED,
)
from batchyard.doctor.facts import CannotSee, Environment, Facts, known
from batchyard.doctor.finding import Finding, Kind

_NO_CAPACITY = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
_QUOTA_WORDS = (
    "vcpulimitexceeded",
    "instancelimitexceeded",
    "maxspotinstancecountexceeded",
    "vcpu limit",
)
_CAPACITY_WORDS = (
    "insufficientinstancecapacity",
    "unfulfillablecapacity",
    "do not have sufficient",
    "no spot capacity",
)
_PRICE_WORDS = ("spotmaxpricetoolow", "price-too-low", "lower than the minimum required spot")
_KEY_WORDS = ("client.internalerror", "client.invalidkmskey", "kms key", "kmskey")
_CLASH_WORDS = (
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


def refused_for_quota(facts: Facts, setting: Setting) -> Found:
    remedy = (
        "aws service-quotas list-service-quotas --service-code ec2 --query \"Quotas[?contains(QuotaName,'Running')]\"",
        "request an increase of the one that the message names",
    )
    return _by_words(
        facts,
        _QUOTA_WORDS,
        LAUNCH_REFUSED_FOR_QUOTA,
        "launches are refused: an EC2 quota is used up",
        remedy,
    )


def no_capacity(facts: Facts, setting: Setting) -> Found:
    remedy = (
        "name more instance types, and subnets in more zones",
        "put an On-Demand environment second in the queue's order",
    )
    cause = "AWS has no capacity for these instance types in these zones now"
    job = waiting_job(facts)
    if job is None or not job.status_reason.startswith(_NO_CAPACITY):
        return _by_words(facts, _CAPACITY_WORDS, NO_CAPACITY, cause, remedy)
    # AWS has said it: that its launches cannot be seen, or its environments, changes nothing.
    try:
        found = _by_words(facts, _CAPACITY_WORDS, NO_CAPACITY, cause, remedy) or []
    except CannotSee:
        found = []
    these = facts.environments if isinstance(facts.environments, tuple) else ()
    types = named(name for e in these for name in e.instance_types)
    evidence = (job.status_reason, *([f"types {types}"] if types else []))
    return [*found, Finding(NO_CAPACITY, cause, evidence, remedy, f"job {job.job_id}", 99)]


def refused_for_price(facts: Facts) -> Found:
    remedy = ("leave bidPercentage out: then the On-Demand price is the limit",)
    return _by_words(
        facts,
        _PRICE_WORDS,
        SPOT_BID_TOO_LOW,
        "Spot launches are refused: the bid is too low",
        remedy,
    )


def keys(facts: Facts, setting: Setting) -> Found:
    remedy = (
        "aws kms create-grant --key-id KEY --operations Decrypt GenerateDataKeyWithoutPlaintext CreateGrant "
        "--grantee-principal AWSServiceRoleForAutoScaling's ARN",
    )
    cause = "instances end at launch because their encrypted volume cannot be opened"
    return _by_words(facts, _KEY_WORDS, VOLUME_KEY_DENIED, cause, remedy)


def clashes(facts: Facts, setting: Setting) -> Found:
    cause = "the launch template, placement group or tenancy does not go with the instance types"
    remedy = ("change what the message names in the launch template, then update the environment",)
    return _by_words(facts, _CLASH_WORDS, LAUNCH_TEMPLATE_CLASH, cause, remedy)


def _by_words(
    facts: Facts, words: tuple[str, ...], kind: Kind, cause: str, remedy: tuple[str, ...]
) -> Found:
    """Environments whose failed launches speak of it; the first words that match a message decide what it is."""
    if is_over(facts) or not hosted(facts):
        return None

    def look(environment: Environment) -> list[Finding]:
        messages = [
            a.message for a in known(environment.failures) if _first_words(a.message) is words
        ]
        if not messages:
            return []
        evidence = (f"{len(messages)} failed launches, the last: {messages[0][:300]}",)
        return [Finding(kind, cause, evidence, remedy, f"compute environment {environment.name}")]

    return each(hosted(facts), look)


def _first_words(message: str) -> tuple[str, ...] | None:
    text = message.lower()
    families = (_QUOTA_WORDS, _PRICE_WORDS, _CAPACITY_WORDS, _KEY_WORDS, _CLASH_WORDS)
    return next((words for words in families if any(word in text for word in words)), None)
