"""The checks behind BY012 and BY014 to BY017: is any host of the queue large enough for the job?"""

from __future__ import annotations

from dataclasses import replace

from batchyard.doctor.checks.base import (
    Timing,
    check_facts,
    place_of_job,
    show_request,
    waiting_job,
)
from batchyard.doctor.checks.fit import unmanaged_hosts
from batchyard.doctor.checks.fit.candidates import candidates_of
from batchyard.doctor.checks.fit.instance_types import find_shortage, max_vcpus_too_small
from batchyard.doctor.checks.fit.kinds import (
    MAX_VCPUS_TOO_SMALL,
    NO_GPUS,
    NOT_ENOUGH_GPUS,
    NOT_ENOUGH_MEMORY,
    NOT_ENOUGH_VCPUS,
)
from batchyard.doctor.checks.fit.unmanaged_hosts import LARGER_THAN_ANY, unmanaged_environments
from batchyard.doctor.facts import Facts, Job
from batchyard.doctor.finding import Finding, Verdict

#: how AWS Batch's status reasons begin where the job, or maxvCpus, is the obstacle
_JOB_TOO_LARGE = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT"
_MAX_VCPUS_TOO_SMALL = "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE"


@check_facts(NOT_ENOUGH_VCPUS, NOT_ENOUGH_MEMORY, NOT_ENOUGH_GPUS, NO_GPUS)
def check_size(facts: Facts, timing: Timing) -> Verdict:
    findings = _find_shortages(facts)
    if findings is None:
        return None
    return [finding for finding in findings if finding.kind is not MAX_VCPUS_TOO_SMALL]


@check_facts(MAX_VCPUS_TOO_SMALL)
def check_max_vcpus(facts: Facts, timing: Timing) -> Verdict:
    """Is maxvCpus large enough for the job? Without a job: for one instance of any type?"""
    findings = _check_any_launch(facts) if facts.job is None else _find_shortages(facts)
    if findings is None:
        return None
    return [finding for finding in findings if finding.kind is MAX_VCPUS_TOO_SMALL]


def _find_shortages(facts: Facts) -> list[Finding] | None:
    job = waiting_job(facts)
    if job is None or job.platform == "FARGATE":
        return None
    if unmanaged_environments(facts):
        return _find_shortages_on_hosts(job, facts)
    candidates = candidates_of(facts)
    if not candidates:
        return None  # no environment is usable (BY004, BY005), or no type exists (BY030)
    shortage = find_shortage(job, candidates)
    if shortage is None:
        return _by_status_reason(job)
    return [_with_status_reason(shortage, job) if _is_called_too_large(job) else shortage]


def _check_any_launch(facts: Facts) -> list[Finding] | None:
    candidates = [] if unmanaged_environments(facts) else candidates_of(facts)
    if not candidates:
        return None
    if any(c.type.vcpus <= c.environment.max_vcpus for c in candidates):
        return []
    smallest = min(candidates, key=lambda c: c.type.vcpus)
    return [max_vcpus_too_small(smallest, "that it may launch")]


def _find_shortages_on_hosts(job: Job, facts: Facts) -> list[Finding] | None:
    """For a queue with UNMANAGED environments: examine their hosts, and types to launch if any."""
    environments = unmanaged_environments(facts)
    if _is_called_too_large(job):
        return [unmanaged_hosts.shortage_by_status_reason(job, environments)]
    if unmanaged_hosts.has_fitting_host(job, environments):
        return []
    candidates = candidates_of(facts)
    shortage = find_shortage(job, candidates) if candidates else None
    if candidates and not shortage:
        return []
    findings = unmanaged_hosts.find_shortage(job, environments)
    # Without hosts there is no finding: BY055 reports that there are none.
    return [*findings, *([shortage] if shortage else [])] or None


def _is_called_too_large(job: Job) -> bool:
    return job.status_reason.startswith((_JOB_TOO_LARGE, _MAX_VCPUS_TOO_SMALL))


def _with_status_reason(finding: Finding, job: Job) -> Finding:
    evidence = (*finding.evidence, f"AWS says: {job.status_reason}")
    return replace(finding, evidence=evidence, likelihood=100)


def _by_status_reason(job: Job) -> list[Finding]:
    """Trust AWS Batch where it calls the job too large and the numbers do not show it."""
    if job.status_reason.startswith(_MAX_VCPUS_TOO_SMALL):
        kind, cause = MAX_VCPUS_TOO_SMALL, "AWS says that maxvCpus is too small for the job"
    elif job.status_reason.startswith(_JOB_TOO_LARGE):
        kind, cause = NOT_ENOUGH_GPUS if job.gpus else NOT_ENOUGH_MEMORY, LARGER_THAN_ANY
    else:
        return []
    return [
        Finding(
            kind,
            cause,
            (job.status_reason, show_request(job)),
            ("raise maxvCpus, or name instance types that are larger, or ask for less",),
            place_of_job(job),
            likelihood=99,
        )
    ]
