"""A service as values: the content of a valid service file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchyard.infra.catalogue import SERVICE_MARK
from batchyard.pipeline import Mount

#: The stacks whose clusters run services; the first one that is deployed is the default.
CLUSTERS = ("ecs", "spotfleet")
NETWORKS = ("bridge", "host", "awsvpc")


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A shell command in the container that succeeds while the service works."""

    command: str
    interval_s: int = 30
    timeout_s: int = 5
    #: Failures in a row after which ECS replaces the task.
    retries: int = 3
    #: Failures in this time after the start do not count.
    start_s: int = 0


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    image: str
    #: Words of the command; empty for the image's own.
    command: tuple[str, ...] = ()
    #: Tasks that are kept running; None keeps the number that is deployed, at first 1.
    count: int | None = None
    cpus: int = 1
    memory_mib: int = 2048
    gpus: int = 0
    #: Ports of the container.
    ports: tuple[int, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    #: variable -> ARN of a secret or parameter
    secrets: Mapping[str, str] = field(default_factory=dict)
    shm_mib: int | None = None
    volumes: tuple[Mount, ...] = ()
    health: HealthCheck | None = None
    network: str = "bridge"
    #: One of CLUSTERS; None for the first that is deployed.
    cluster: str | None = None
    #: `FILE:LINE:COLUMN` of keys, for messages about values that do not fit the cluster.
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    path: Path | None = field(default=None, compare=False)

    def stack_of(self, environment: str) -> str:
        return stack_name(environment, self.name)


def stack_name(environment: str, service: str) -> str:
    return f"{environment}-{template_name(service)}"


def template_name(service: str) -> str:
    """Return the name of a service's stack without the environment's.

    It ends with a word that no template ends with, so that no service is taken for a template.
    """
    return f"{service}-service"


def stack_title(environment: str, service: str) -> str:
    """Return the description of a service's stack.

    The stack's name alone does not tell `a-b` of environment `lab` from `b` of `lab-a`.
    """
    return f"{SERVICE_MARK}{service} of {environment}"
