"""BY054: the environment uses the allocation strategy BEST_FIT. Also used for templates."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY054", Severity.WARNING, 25, "the allocation strategy is not BEST_FIT")


def examine(environment: Environment) -> Findings:
    if environment.is_fargate or not environment.is_managed:
        return
    if environment.strategy not in ("", "BEST_FIT"):
        return
    strategy = "SPOT_PRICE_CAPACITY_OPTIMIZED" if environment.is_spot else "BEST_FIT_PROGRESSIVE"
    yield Finding(
        KIND,
        f"{environment.name} waits for the one best type (BEST_FIT), "
        "and its infrastructure cannot be updated",
        (f"allocationStrategy: {environment.strategy or 'none given, which means BEST_FIT'}",),
        (
            f"make a new environment with allocationStrategy {strategy}: "
            "it cannot be changed in this one",
        ),
    )


check = check_environments(KIND)(lambda environment, facts: examine(environment))
