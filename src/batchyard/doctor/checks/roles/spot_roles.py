"""Which environments need the service-linked roles of Spot, and a Spot fleet role."""

from __future__ import annotations

from batchyard.doctor.facts import Environment


def uses_spot_fleet(environment: Environment) -> bool:
    """Whether the environment buys through a Spot Fleet: BEST_FIT does, which is the default."""
    return (
        environment.is_spot
        and not environment.is_fargate
        and environment.strategy in ("", "BEST_FIT")
    )


def needs_spot_roles(environment: Environment) -> bool:
    """Whether the roles of Spot may be missing: an environment that has hosts has them."""
    return environment.is_spot and not (isinstance(environment.hosts, tuple) and environment.hosts)
