"""Queues and compute environments: where jobs wait, and what there is to run them on. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.batch.jobs import Resources


@dataclass(frozen=True, slots=True)
class ComputeEnvironment:
    """A room of fixed size. A child runs in one environment and must fit in it whole."""

    name: str
    capacity: Resources
    #: a disabled environment takes nothing new; what runs in it goes on
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs wait here in the order of their submission; a child that is tried again goes to the front."""

    name: str
    #: names of compute environments, tried in this order
    environments: tuple[str, ...]
    #: where queues share an environment, the higher is served first
    priority: int = 1
    #: a disabled queue takes no new jobs; what it holds goes on
    is_enabled: bool = True
