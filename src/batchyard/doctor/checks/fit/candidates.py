"""The instance types that AWS Batch may launch for a job, and which of them the job fits on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from batchyard.batch.hosts import registered_mib
from batchyard.doctor.checks.base import ec2_environments, types_of
from batchyard.doctor.facts import Environment, Facts, Job
from batchyard.ec2_types import InstanceType


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance type that an environment may launch."""

    environment: Environment
    type: InstanceType

    @property
    def memory_mib(self) -> int:
        """The memory that a host of this type registered; an estimate where no host is up."""
        return self.registered_mib or registered_mib(self.type.memory_mib, self.type.name)

    @property
    def registered_mib(self) -> int:
        """The memory that a host of this type registered; 0 where no host is up."""
        hosts = self.environment.hosts if isinstance(self.environment.hosts, tuple) else ()
        return max((h.memory_mib for h in hosts if h.type == self.type.name), default=0)

    @property
    def memory_text(self) -> str:
        verb = "registers" if self.registered_mib else "registers about"
        return f"{self.type.name} {verb} {self.memory_mib:,} MiB"


def candidates_of(facts: Facts) -> list[Candidate]:
    """Return the types of all managed EC2 environments.

    Raises MissingFactError where an environment names a type that is not known.
    """
    return [
        candidate
        for environment in ec2_environments(facts)
        for candidate in environment_candidates(environment, facts)
    ]


def environment_candidates(environment: Environment, facts: Facts) -> list[Candidate]:
    """Return the types of one environment, smallest first."""
    return [Candidate(environment, t) for t in types_of(environment, facts)]


def select_fitting(job: Job, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates with enough GPUs, vCPUs and memory for the job."""
    return [
        c
        for c in candidates
        if c.type.gpus >= job.gpus and c.type.vcpus >= job.vcpus and c.memory_mib >= job.memory_mib
    ]
