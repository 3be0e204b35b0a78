"""The room that EC2 quotas leave for the instances of an environment."""

from __future__ import annotations

from collections.abc import Callable

from batchyard import ec2_types
from batchyard.doctor.checks.base import job_of
from batchyard.doctor.checks.fit.candidates import Candidate, environment_candidates, select_fitting
from batchyard.doctor.facts import Environment, Facts, Missing, MissingFactError, Quota, require


def find_exhausted_quota(
    facts: Facts, environment: Environment, free_vcpus: Callable[[Quota], float]
) -> tuple[Candidate, Quota] | None:
    """Return the smallest type that the job fits on, and its quota, where no quota has room.

    None where one of the fitting types can be launched. Raises MissingFactError where a quota
    that may have room could not be read.
    """
    quotas = {quota.code: quota for quota in require(facts.quotas)}
    exhausted: list[tuple[Candidate, Quota]] = []
    error: MissingFactError | None = None
    for candidate in _fitting_candidates(facts, environment):
        code = ec2_types.quota_code(candidate.type.name, environment.is_spot)
        try:
            quota = require(quotas.get(code) or _missing_quota(code, candidate.type.name))
            if free_vcpus(quota) >= candidate.type.vcpus:
                return None
            exhausted.append((candidate, quota))
        except MissingFactError as exc:
            error = exc
    if error:
        raise error
    return exhausted[0] if exhausted else None


def _fitting_candidates(facts: Facts, environment: Environment) -> list[Candidate]:
    """Return the types that the job fits on, or all types without a job, smallest first."""
    candidates = environment_candidates(environment, facts)
    job = job_of(facts)
    return select_fitting(job, candidates) if job else candidates


def _missing_quota(code: str, type_name: str) -> Missing:
    if not code:
        return Missing(f"it is not known which quota {type_name} counts against")
    return Missing(f"the quota {code} was not read", "servicequotas:GetServiceQuota")


def show_need(candidate: Candidate) -> str:
    return f"{candidate.type.name} needs {candidate.type.vcpus}"


def increase_command(quota: Quota, vcpus: float) -> str:
    return (
        "aws service-quotas request-service-quota-increase --service-code ec2 "
        f"--quota-code {quota.code} --desired-value {vcpus:g}"
    )
