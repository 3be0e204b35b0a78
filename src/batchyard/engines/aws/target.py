"""The AWS engine's part of a run's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batchyard import environments, s3_layout
from batchyard.engines.base import HostChoice
from batchyard.environments import Environment
from batchyard.plan import PlannedJob


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
    #: Queues whose jobs run on Fargate, by the name that the plan uses.
    fargate_queues: frozenset[str] = frozenset()
    #: Queue -> its hosts when the run was prepared. Not part of the record.
    hosts: Mapping[str, tuple[HostChoice, ...]] = field(default_factory=dict, compare=False)

    def queue_of(self, job: PlannedJob) -> str:
        """Return the queue that the step's jobs go to. Raises InputError if there is none."""
        return job.queue or self.environment.queue(
            needs_gpu=bool(job.resources.gpus), on_demand=self.is_on_demand(job)
        )

    def is_on_demand(self, job: PlannedJob) -> bool:
        return self.on_demand or job.step in self.on_demand_steps

    def is_on_fargate(self, job: PlannedJob) -> bool:
        # An environment may have a cluster and no queues.
        return bool(self.fargate_queues) and self.queue_of(job) in self.fargate_queues

    #: Ids of the runs that this one is a retry of, directly and indirectly; the last one first.
    earlier_runs: tuple[str, ...] = ()
    #: Steps whose children go on, on demand, because spot instances did not finish them.
    on_demand_steps: frozenset[str] = frozenset()
    #: Reclaims after which a child is not tried on spot again; None for as many as fit.
    max_reclaims: int | None = None
    #: Whether the worker takes samples of what commands use.
    is_sampled: bool = True

    @property
    def has_own_workspace(self) -> bool:
        """Whether the files of the run come from a folder, and not from a workspace in S3."""
        environment = self.environment
        runs = s3_layout.runs_address(environment.bucket, environment.prefix)
        return self.workspace.startswith(runs)

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
        "fargate_queues": sorted(target.fargate_queues),
        "earlier_runs": list(target.earlier_runs),
        "on_demand_steps": sorted(target.on_demand_steps),
        "max_reclaims": target.max_reclaims,
        "is_sampled": target.is_sampled,
    }


def from_json(document: Mapping[str, Any]) -> Target:
    return Target(
        **{
            **document,
            "environment": environments.from_json(document["environment"]),
            "fair_queues": frozenset(document["fair_queues"]),
            "fargate_queues": frozenset(document.get("fargate_queues", ())),
            # Older versions of batchyard did not write it.
            "earlier_runs": tuple(document.get("earlier_runs", ())),
            "on_demand_steps": frozenset(document.get("on_demand_steps", ())),
        }
    )
