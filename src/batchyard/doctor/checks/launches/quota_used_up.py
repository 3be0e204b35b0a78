"""BY058: running instances use up the EC2 quota."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_each,
    check_facts,
    ec2_environments,
    runnable_job,
)
from batchyard.doctor.checks.fit.candidates import Candidate
from batchyard.doctor.checks.launches.quotas import (
    find_exhausted_quota,
    increase_command,
    show_need,
)
from batchyard.doctor.facts import Environment, Facts, Missing, MissingFactError, Quota, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity, Verdict

KIND = Kind("BY058", Severity.WARNING, 51, "the EC2 quota is not used up")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    if timing.is_early:
        return None
    return check_each(ec2_environments(facts), lambda environment: _examine(facts, environment))


def _examine(facts: Facts, environment: Environment) -> Findings:
    if find_exhausted_quota(facts, environment, lambda quota: quota.vcpus):
        return  # BY025 reports a quota that is too small at any time
    # While no job waits, the vCPUs of the environment itself are not held against it.
    ignored_vcpus = 0 if runnable_job(facts) else environment.desired_vcpus
    exhausted = find_exhausted_quota(
        facts, environment, lambda quota: quota.vcpus - max(0.0, _used_vcpus(quota) - ignored_vcpus)
    )
    if exhausted:
        yield _finding(*exhausted)


def _used_vcpus(quota: Quota) -> float:
    """Raises MissingFactError where not all running instances were counted."""
    used_vcpus = require(quota.used_vcpus)
    if quota.is_at_least and used_vcpus < quota.vcpus:
        raise MissingFactError(
            Missing("more runs in this account than one page of DescribeInstances lists")
        )
    return used_vcpus


def _finding(smallest: Candidate, quota: Quota) -> Finding:
    environment = smallest.environment
    used_vcpus = require(quota.used_vcpus)
    at_least = "at least " if quota.is_at_least else ""
    share = (
        f", {environment.desired_vcpus} of them by {environment.name}"
        if environment.desired_vcpus
        else ""
    )
    needed_vcpus = max(quota.vcpus + environment.max_vcpus, used_vcpus + smallest.type.vcpus)
    return Finding(
        KIND,
        f"the EC2 quota is used up: no {smallest.type.name} can be launched "
        "until something else ends",
        (
            f"quota {quota.code} {quota.name}: {quota.vcpus:g} vCPUs, "
            f"{at_least}{used_vcpus:g} in use{share}; {show_need(smallest)}",
        ),
        (
            increase_command(quota, needed_vcpus),
            "or end what is not needed: "
            "aws ec2 describe-instances --filters Name=instance-state-name,Values=running "
            "--query 'Reservations[].Instances[].[InstanceId,InstanceType,LaunchTime]' "
            "--output text",
        ),
    )
