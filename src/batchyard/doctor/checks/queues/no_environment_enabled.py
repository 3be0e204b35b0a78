"""BY004: no compute environment of the queue is enabled, or the queue has none."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_facts,
    environments_of,
    is_running_or_over,
    place_of,
    update_command,
)
from batchyard.doctor.facts import Facts, Queue
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY004", Severity.ERROR, 94, "the queue has a compute environment that is enabled")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    if is_running_or_over(facts):
        return None
    environments = environments_of(facts)
    if any(environment.state == "ENABLED" for environment in environments):
        return []
    if not environments:
        return [_no_environment(facts)]
    return [
        Finding(
            KIND,
            f"the compute environment {environment.name} is {environment.state}, "
            "and no other is enabled",
            (f"state {environment.state}", f"0 of {len(environments)} enabled"),
            (update_command(environment, "--state ENABLED"),),
            place_of(environment),
        )
        for environment in environments
    ]


def _no_environment(facts: Facts) -> Finding:
    queue = facts.queue.name if isinstance(facts.queue, Queue) else "QUEUE"
    return Finding(
        KIND,
        "the queue has no compute environment",
        ("0 compute environments in its order",),
        (
            "aws batch describe-compute-environments "
            "--query 'computeEnvironments[?state==`ENABLED`].computeEnvironmentName'"
            "   # those that can be named",
            f"aws batch update-job-queue --job-queue {queue} "
            "--compute-environment-order order=1,computeEnvironment=NAME   # NAME: one of them",
        ),
    )
