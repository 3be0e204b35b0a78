"""A pipeline as values: the content of a valid pipeline file. Pure.

``pipeline_file`` reads a file into these values, and ``plan`` compiles them to jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path

from batchyard.errors import Mistake
from batchyard.quick_dataclasses import dataclass
from batchyard.shard import DYNAMIC, STATIC

MAX_NAME_LENGTH = 40
MAX_STEP_NAME_LENGTH = 32
MAX_ARRAY_SIZE = 1_000_000
MAX_RETRIES = 9  # AWS Batch allows 10 attempts

#: largest amount of `max_cost`
MAX_COST_USD = 10_000_000

#: words of retry_on and fail_on that are not exit codes
RETRY_WORDS = ("spot", "oom", "image", "any")


@dataclass(frozen=True, slots=True)
class Need:
    """A dependency on ``step``. With ``each``, child i waits only for child i of that step."""

    step: str
    each: bool = False


@dataclass(frozen=True, slots=True)
class ExitRule:
    """A set of endings of an attempt: a word of RETRY_WORDS, or the exit codes first to last."""

    word: str = ""
    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        if self.word:
            return self.word
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class SpotRule:
    """When children go on, on demand: after reclaims, or after a time without a start."""

    #: reclaims of one child
    reclaims: int | None = None
    #: time in which no child of a step has started
    wait_s: int | None = None

    def __str__(self) -> str:
        return f"{self.wait_s}s" if self.reclaims is None else str(self.reclaims)


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the container, from one of ``efs``, ``host`` and ``instance_store``."""

    path: str
    #: id of an EFS file system
    efs: str | None = None
    #: folder of the file system
    folder: str = "/"
    access_point: str | None = None
    #: folder of the host
    host: str | None = None
    #: whether it is the NVMe disks of the host
    instance_store: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a pipeline, with the defaults of the file applied."""

    name: str
    #: the command of every child; None if the step has a list
    command: str | None = None
    #: the list that the children share; None if the step has one command
    commands: Sequence[str] | None = None
    #: number of children; None is one child that is no array
    array: int | None = None
    needs: tuple[Need, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    #: globs of the files that are saved when a reclaim is announced
    checkpoint: tuple[str, ...] = ()
    cpus: int = 1
    memory_mib: int = 512
    gpus: int = 0
    timeout_s: int | None = None
    #: usual seconds of a command, for estimates; None if nobody says
    expect_s: int | None = None
    #: number of attempts - 1
    retries: int = 0
    retry_on: tuple[ExitRule, ...] = (ExitRule(word="any"),)
    fail_on: tuple[ExitRule, ...] = ()
    max_running: int | None = None
    #: how the children share the list: a word of shard.SHARE_OUTS
    share_out: str = STATIC
    #: how much work each command of the list is, in any unit; empty if nobody says
    weight: tuple[float, ...] = ()
    keep_going: bool = False
    image: str | None = None
    #: the file's env, overridden by the env of the step
    env: Mapping[str, str] = field(default_factory=dict)
    #: variable -> ARN; AWS only
    secrets: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    share: str | None = None
    priority: int | None = None
    shm_mib: int | None = None
    #: what a full buffer of output does: `blocking` stops the command, `non-blocking` drops lines
    log_mode: str = "blocking"
    mounts: tuple[Mount, ...] = ()
    #: name of a limit -> "soft:hard"
    ulimits: Mapping[str, str] = field(default_factory=dict)
    #: user of the container; None is that of the image
    user: str | None = None

    @property
    def size(self) -> int:
        return self.array or 1

    @property
    def is_dynamic(self) -> bool:
        """Whether the children take the commands of the list as they get free."""
        return self.share_out == DYNAMIC and self.commands is not None


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    steps: tuple[Step, ...]
    #: the file of the pipeline; None if it was made in Python
    path: Path | None = None
    #: as written, relative to the file; None is the folder of the file
    workspace: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    fail_fast: bool = False
    #: when children on spot instances go on, on demand; None is never
    spot: SpotRule | None = None
    #: the most that a run may cost, in US dollars; None is no limit
    max_cost_usd: float | None = None
    warnings: tuple[Mistake, ...] = ()
    #: (step, `cpus`, `memory` or `gpus`) -> `FILE:LINE:COLUMN`, where the file asks for it
    resource_places: Mapping[tuple[str, str], str] = field(default_factory=dict, compare=False)

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def locate(self, step: str, key: str) -> str:
        """Return `FILE:LINE:COLUMN: ` of a step's resource; empty if it is in no file."""
        place = self.resource_places.get((step, key))
        return f"{place}: " if place else ""

    @property
    def folder(self) -> Path:
        return self.path.resolve().parent if self.path else Path.cwd()


def sort_by_needs(steps: Iterable[Step]) -> list[Step]:
    """Return the steps so that each is after the steps it needs, otherwise in the order given.

    A need of a step that is not among them is ignored. Raises ValueError for a cycle.
    """
    steps = list(steps)
    positions = {step.name: position for position, step in enumerate(steps)}
    sorter = TopologicalSorter(
        {
            position: [positions[need.step] for need in step.needs if need.step in positions]
            for position, step in enumerate(steps)
        }
    )
    try:
        sorter.prepare()
    except CycleError as exc:
        names = [steps[position].name for position in sorted(set(exc.args[1]))]
        raise ValueError("cycle among steps: " + ", ".join(names)) from None
    # A heap of positions: of the ready steps, the first in the file comes first.
    ready = sorted(sorter.get_ready())
    ordered: list[Step] = []
    while ready:
        position = heappop(ready)
        ordered.append(steps[position])
        sorter.done(position)
        for next_position in sorter.get_ready():
            heappush(ready, next_position)
    return ordered
