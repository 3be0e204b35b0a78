"""The AWS engine's part of a run's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchyard import environments
from batchyard.environments import Environment


@dataclass(frozen=True, slots=True)
class Target:
    """Where a run goes on AWS: everything that the plan does not say."""

    environment: Environment
    run_id: str
    #: Step -> image.
    images: Mapping[str, str]
    #: The s3:// prefix of the files that the steps share.
    workspace: str
    user: str
    on_demand: bool = False
    #: Queues with a scheduling policy, by the name that the plan uses.
    fair_queues: frozenset[str] = frozenset()

    @property
    def address(self) -> str:
        """The s3:// prefix of the run."""
        return self.environment.run_address(self.run_id)


def to_json(target: Target) -> dict[str, Any]:
    return {
        "environment": environments.to_json(target.environment),
        "run_id": target.run_id,
        "images": dict(target.images),
        "workspace": target.workspace,
        "user": target.user,
        "on_demand": target.on_demand,
        "fair_queues": sorted(target.fair_queues),
    }


def from_json(document: Mapping[str, Any]) -> Target:
    return Target(
        **{
            **document,
            "environment": environments.from_json(document["environment"]),
            "fair_queues": frozenset(document["fair_queues"]),
        }
    )
