"""Jobs, states, dependencies, retry strategies and outcomes, in AWS Batch's words. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum

from batchyard.quick_dataclasses import dataclass


class JobState(StrEnum):
    """State of a job or of an array's child, in the order in which a job goes through them."""

    #: accepted; the scheduler has not looked at it yet
    SUBMITTED = "SUBMITTED"
    #: waits for its dependencies; an array's parent is PENDING for nearly its whole life
    PENDING = "PENDING"
    #: its dependencies are met; waits for capacity
    RUNNABLE = "RUNNABLE"
    #: placed; its process or container is being started
    STARTING = "STARTING"
    #: executes; the timeout counts from here
    RUNNING = "RUNNING"
    #: ended with exit code 0
    SUCCEEDED = "SUCCEEDED"
    #: ended in another way, and has no attempt left
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED})


class StatusReason:
    """Values of AWS Batch's statusReason (facts, 1.8)."""

    EXITED = "Essential container in task exited"
    NOT_STARTED = "Task failed to start"
    TIMEOUT = "Job attempt duration exceeded timeout"
    DEPENDENCY_FAILED = "Dependent Job failed"
    CHILD_FAILED = "Array Child Job failed"


#: container.reason of an attempt that the kernel killed because of its memory use
OUT_OF_MEMORY = "OutOfMemoryError: Container killed due to memory usage"


@dataclass(frozen=True, slots=True)
class Resources:
    """What a child requests, or what a compute environment has."""

    vcpus: int
    memory_mib: int
    gpus: int = 0

    def __str__(self) -> str:
        parts = [f"{self.vcpus} vCPU{'s' * (self.vcpus != 1)}", f"{self.memory_mib} MiB"]
        if self.gpus:
            parts.append(f"{self.gpus} GPU{'s' * (self.gpus != 1)}")
        return ", ".join(parts)

    def fits_in(self, capacity: Resources) -> bool:
        return (
            self.vcpus <= capacity.vcpus
            and self.memory_mib <= capacity.memory_mib
            and self.gpus <= capacity.gpus
        )


class DependencyType(Enum):
    #: the whole job, all children of an array included (no `type` in SubmitJob)
    WHOLE = None
    #: child i of this array waits for child i of the other array
    N_TO_N = "N_TO_N"
    #: child i of this array waits for child i-1 of the same array
    SEQUENTIAL = "SEQUENTIAL"


#: In the pairs of a dependency: no child waits.
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Dependency:
    #: a job's id, or one child's `<id>:<index>`; None only with SEQUENTIAL
    job_id: str | None = None
    type: DependencyType = DependencyType.WHOLE
    #: with N_TO_N, if the arrays differ, which AWS Batch does not allow: for each child of the
    #: other job, the child of this job that waits for it, or NOBODY
    pairs: Sequence[int] | None = None


class Action(Enum):
    RETRY = "retry"
    EXIT = "exit"


@dataclass(frozen=True, slots=True)
class EvaluateOnExit:
    """A rule of a retry strategy. All conditions must match; a final * matches any ending."""

    action: Action
    on_status_reason: str | None = None
    on_reason: str | None = None
    on_exit_code: str | None = None


@dataclass(frozen=True, slots=True)
class RetryStrategy:
    #: attempts of a child, the first one included: 1 to 10
    attempts: int = 1
    evaluate_on_exit: tuple[EvaluateOnExit, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended."""

    #: None if no process exited: the host was lost, or the container never started
    exit_code: int | None
    status_reason: str = StatusReason.EXITED
    #: container.reason: why the container ended; empty for an ordinary exit
    reason: str = ""

    @property
    def is_success(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Job:
    """The part of a SubmitJob request that the scheduler uses."""

    id: str
    name: str
    queue: str
    resources: Resources
    #: number of children; None for a job that is not an array
    array_size: int | None = None
    depends_on: tuple[Dependency, ...] = ()
    retry: RetryStrategy = RetryStrategy()
    timeout_s: int | None = None
    #: share identifier, in a queue with a fair-share policy
    share: str = ""
    #: within its share, jobs with a higher priority start first
    priority: int = 0
    #: (consumable resource, quantity) that each child holds while it runs
    consumables: tuple[tuple[str, int], ...] = ()
    #: order in which the children become RUNNABLE; None: by number
    start_order: Sequence[int] | None = None

    @property
    def size(self) -> int:
        return self.array_size if self.array_size is not None else 1

    def child_id(self, index: int) -> str:
        return self.id if self.array_size is None else f"{self.id}:{index}"
