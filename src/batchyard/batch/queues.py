"""Queues and compute environments: where jobs wait, and what there is to run them on. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.batch.jobs import Resources

#: statusReason of what was in a queue that was deleted (facts, 1.8)
QUEUE_DELETED = "JobQueue deleted"
#: and of what one of a queue's time limits has cancelled: this, and the limit's reason
TIME_LIMIT = "Canceled by JobStateTimeLimit action due to reason: "


@dataclass(frozen=True, slots=True)
class ComputeEnvironment:
    """A room of fixed size. A child runs in one environment and must fit in it whole."""

    name: str
    capacity: Resources
    #: the largest of its instance types; a child must fit in one of them. Empty: any child that fits the capacity
    instances: tuple[Resources, ...] = ()
    #: a disabled environment takes nothing new; what runs in it goes on
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class FairShare:
    """A scheduling policy: who has used least, by weight, goes first (facts, 7.1)."""

    #: (share identifier, or the beginning of one with a final *; weight): a lower weight is a larger share
    weights: tuple[tuple[str, float], ...] = ()
    #: how long past use counts; 0: only what runs now does
    decay_s: int = 0
    #: 0 to 99: how much of the environments is held back for shares that are not active yet
    reservation_percent: int = 0

    def weight_of(self, share: str) -> float:
        for pattern, weight in self.weights:
            if share == pattern or (pattern.endswith("*") and share.startswith(pattern[:-1])):
                return weight
        return 1.0

    def reserved(self, active_shares: int) -> float:
        """The part of the vCPUs that is held back."""
        return (
            (self.reservation_percent / 100) ** active_shares if self.reservation_percent else 0.0
        )


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """A job at the head of its queue that shows this blocked reason for so long is cancelled (facts, 7.2)."""

    reason: str
    max_time_s: int


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
    #: None: first in, first out
    fair_share: FairShare | None = None
    time_limits: tuple[TimeLimit, ...] = ()
