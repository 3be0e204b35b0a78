"""Where a requested shape can run: types, zones and quotas, a line for each environment."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.doctor.checks.base import ec2_environments, join_names, place_of_job
from batchyard.doctor.checks.fit import unmanaged_hosts
from batchyard.doctor.checks.fit.candidates import environment_candidates, select_fitting
from batchyard.doctor.facts import Environment, Facts, Job, Missing, MissingFactError, Quota


def describe_fit(facts: Facts) -> tuple[str, ...]:
    """Return a line for each environment where the shape fits.

    Empty where the facts are not about a shape, or the environments could not be described.
    """
    shape = facts.job
    if not isinstance(shape, Job) or shape.job_id or isinstance(facts.environments, Missing):
        return ()
    lines = [
        _describe_environment(shape, environment, facts) for environment in ec2_environments(facts)
    ]
    return (
        *(line for line in lines if line),
        *unmanaged_hosts.describe_fitting_hosts(shape, facts),
    )


def _describe_environment(shape: Job, environment: Environment, facts: Facts) -> str:
    """Return, for example, "step s fits gpu: g5.xlarge; in eu-west-1a; quota 64 vCPUs"."""
    try:
        candidates = environment_candidates(environment, facts)
    except MissingFactError:
        return ""
    types = [
        c.type.name
        for c in select_fitting(shape, candidates)
        if c.type.vcpus <= environment.max_vcpus
    ]
    if not types:
        return ""
    parts = [f"{place_of_job(shape)} fits {environment.name}: {join_names(types)}"]
    if zones := _zones_with_offers(types, environment, facts):
        parts.append(f"in {', '.join(zones)}")
    if quota := _find_quota(types[0], environment, facts):
        parts.append(_show_quota(quota))
    return "; ".join(parts)


def _zones_with_offers(types: list[str], environment: Environment, facts: Facts) -> list[str]:
    subnets = facts.subnets if isinstance(facts.subnets, tuple) else ()
    offerings = facts.offerings if isinstance(facts.offerings, tuple) else ()
    zones = {subnet.zone for subnet in subnets if subnet.id in environment.subnets}
    return sorted({o.zone for o in offerings if o.zone in zones and o.type in types})


def _find_quota(type_name: str, environment: Environment, facts: Facts) -> Quota | None:
    code = ec2_types.quota_code(type_name, environment.is_spot)
    quotas = facts.quotas if isinstance(facts.quotas, tuple) else ()
    return next((quota for quota in quotas if quota.code == code), None)


def _show_quota(quota: Quota) -> str:
    used = "" if isinstance(quota.used_vcpus, Missing) else f", {quota.used_vcpus:g} in use"
    return f"quota {quota.vcpus:g} vCPUs{used}"
