"""BY039: hosts lack the awslogs driver that the job needs."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_each,
    check_facts,
    host_environments,
    job_of,
    join_names,
)
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity, Verdict

KIND = Kind("BY039", Severity.ERROR, 72, "the hosts have the job's log driver")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = job_of(facts)
    if job is not None and job.log_driver not in ("", "awslogs"):
        return None
    return check_each(host_environments(facts), _examine)


def _examine(environment: Environment) -> Findings:
    host_ids = [h.instance_id for h in require(environment.hosts) if not h.has_awslogs]
    if not host_ids:
        return
    yield Finding(
        KIND,
        f"hosts of {environment.name} lack the awslogs driver: "
        "no job that logs to CloudWatch is placed there",
        (f"{len(host_ids)} hosts without it: {join_names(host_ids)}",),
        (
            "in the image or user data: "
            'echo \'ECS_AVAILABLE_LOGGING_DRIVERS=["json-file","awslogs"]\' '
            ">> /etc/ecs/ecs.config",
        ),
    )
