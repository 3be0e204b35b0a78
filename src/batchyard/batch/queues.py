"""Queues and compute environments: where jobs wait, and where they run. Values only."""

from __future__ import annotations

from enum import Enum

from batchyard.batch.jobs import Resources
from batchyard.quick_dataclasses import NamedTuple, dataclass

#: statusReason of the jobs in a queue that was deleted (facts, 1.8)
QUEUE_DELETED = "JobQueue deleted"
#: statusReason of a job that a queue's time limit has cancelled; the limit's reason follows
TIME_LIMIT = "Canceled by JobStateTimeLimit action due to reason: "


class InstanceType(NamedTuple):
    name: str
    #: what an instance registers with ECS
    resources: Resources


class TypeChoice(Enum):
    """Which of the types that a child fits on is launched: the kinds of allocation strategies."""

    SMALLEST = "the smallest"
    #: the largest that the waiting children would fill, else the smallest
    BY_DEMAND = "by demand"
    FIRST = "the first of the list"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """How a compute environment launches and ends EC2 instances (facts, 8.1 and 8.2)."""

    types: tuple[InstanceType, ...]
    choice: TypeChoice = TypeChoice.SMALLEST
    min_vcpus: int = 0
    #: whether the last instance may pass the maximum
    may_pass_max: bool = False
    is_spot: bool = False
    #: time from the launch of an instance until children can start on it
    launch_s: float = 0.0
    #: an instance ends after this time without children
    idle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ComputeEnvironment:
    """A child runs in one environment and must fit in it."""

    name: str
    #: with a fleet, only the vCPUs count: the maximum of all instances together
    capacity: Resources
    #: a disabled environment starts nothing new; children that run in it go on
    is_enabled: bool = True
    #: None: capacity of fixed size, without instances
    fleet: FleetSettings | None = None


@dataclass(frozen=True, slots=True)
class FairShare:
    """A scheduling policy: the share with the least weighted use goes first (facts, 7.1)."""

    #: (share identifier, or its beginning and a final *; weight): a lower weight is a larger share
    weights: tuple[tuple[str, float], ...] = ()
    #: how long past use counts; 0: only running children count
    decay_s: int = 0
    #: 0 to 99: percentage of the vCPUs reserved for shares that are not active yet
    reservation_percent: int = 0

    def weight_of(self, share: str) -> float:
        for pattern, weight in self.weights:
            if share == pattern or (pattern.endswith("*") and share.startswith(pattern[:-1])):
                return weight
        return 1.0

    def reserved_fraction(self, active_shares: int) -> float:
        """Return the fraction of the vCPUs that is reserved, between 0 and 1."""
        if not self.reservation_percent:
            return 0.0
        return (self.reservation_percent / 100) ** active_shares


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Cancels a job that is blocked at the head of its queue for too long (facts, 7.2)."""

    reason: str
    max_time_s: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A job queue. Jobs wait in the order of submission; a child that is retried goes first."""

    name: str
    #: names of compute environments, tried in this order
    environments: tuple[str, ...]
    #: of queues that share an environment, the one with the higher priority is served first
    priority: int = 1
    #: a disabled queue accepts no new jobs; the jobs in it go on
    is_enabled: bool = True
    #: None: first in, first out
    fair_share: FairShare | None = None
    time_limits: tuple[TimeLimit, ...] = ()
