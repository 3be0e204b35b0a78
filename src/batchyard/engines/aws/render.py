"""A plan in the shapes of AWS Batch: job definitions, and parts that each become one job. Pure.

A step is one part, or several: where its array is larger than AWS Batch accepts, and where a retry
repeats children of steps that wait child by child, a part for each group (see paired_children).
What differs from run to run is in the request, all else in the definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from batchyard import plan as planning
from batchyard.batch import limits
from batchyard.engines.aws import definitions, refusals, submit_requests
from batchyard.engines.aws.target import Target
from batchyard.engines.base import ServiceRequest
from batchyard.errors import InputError
from batchyard.plan import Plan, PlannedJob
from batchyard.worker.scale import AddedJob


class PartNeed(NamedTuple):
    """A part waits for another one."""

    name: str
    #: Whether child i waits for child i only.
    is_each: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One job that is to be submitted."""

    #: Unique to the run, so that the job can be found again by its name.
    name: str
    step: str
    size: int
    #: Position of its first child in the plan's job.
    offset: int
    #: Name of the job definition.
    definition: str
    #: The SubmitJob request, without the revision of jobDefinition and without dependsOn.
    request: Mapping[str, Any]
    needs: tuple[PartNeed, ...] = ()
    #: Whether the job only waits: AWS Batch accepts 20 dependencies of one job.
    is_barrier: bool = False
    #: Whether `scale` has added its children to the step.
    is_added: bool = False

    def complete_request(self, definition: str, job_ids: Mapping[str, str]) -> dict[str, Any]:
        """Return the whole SubmitJob request.

        ``definition``: the job definition with its revision. ``job_ids``: name of a part -> id.
        """
        depends_on = [
            {"jobId": job_ids[need.name], **({"type": "N_TO_N"} if need.is_each else {})}
            for need in self.needs
        ]
        return {**self.request, "jobDefinition": definition, "dependsOn": depends_on}


@dataclass(frozen=True, slots=True)
class Rendered:
    #: Name -> RegisterJobDefinition request.
    definitions: Mapping[str, dict[str, Any]]
    #: Each part after the parts that it waits for.
    parts: tuple[Part, ...]
    #: Name -> quantity of the consumable resources that hold max_running.
    counters: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def render(plan: Plan, target: Target) -> Rendered:
    """Return the requests of a plan. Raises InputError, with all problems at once."""
    problems = refusals.find_problems(plan, target)
    if problems:
        raise InputError("AWS Batch cannot run this as it is:\n  " + "\n  ".join(problems))
    requests: dict[str, dict[str, Any]] = {}
    parts: list[Part] = []
    by_step: dict[str, dict[_PartKey, Part]] = {}
    counters = {}
    ranges = _divide_steps(plan, target)
    steps = frozenset(job.step for job in plan.jobs)
    for job in plan.jobs:
        if job.max_running is not None:
            counters[submit_requests.counter_name(target.run_id, job.step)] = job.max_running
        step_parts = _StepParts(job, target, by_step, steps)
        step_parts.make(ranges[job.step])
        requests |= step_parts.definitions
        parts += step_parts.parts
        by_step[job.step] = step_parts.by_key
    notes = (*refusals.make_notes(plan, target), *_make_barrier_notes(parts))
    return Rendered(requests, tuple(parts), counters, notes)


def render_added(
    rendered: Rendered, job: PlannedJob, target: Target, added: Sequence[AddedJob]
) -> Iterator[Part]:
    """Return the parts of the children that `scale` has added to a dynamic step."""
    own_parts = (part for part in rendered.parts if part.step == job.step and not part.is_barrier)
    own_part = next(own_parts)
    steps = {part.step for part in rendered.parts}
    for number, (offset, size, has_needs) in enumerate(added):
        name = _make_part_name(target.run_id, job.step, f"-added{number}", steps)
        request = submit_requests.make_request(name, job, offset, size, target)
        needs = own_part.needs if has_needs else ()
        definition = own_part.definition
        yield Part(name, job.step, size, offset, definition, request, needs, is_added=True)


def list_requests(
    rendered: Rendered, target: Target, active: Mapping[str, str]
) -> Iterator[ServiceRequest]:
    """Return the requests that would submit the run, in order.

    ``active``: name -> `name:revision` of the job definitions that exist, which are not registered
    again. Ids of jobs are not known yet; `<id of NAME>` stands for the id of a job.
    """
    for name, request in rendered.definitions.items():
        if name not in active:
            yield ServiceRequest("batch", "RegisterJobDefinition", request)
    for name, quantity in rendered.counters.items():
        counter = submit_requests.make_counter(name, quantity, target)
        yield ServiceRequest("batch", "CreateConsumableResource", counter)
    job_ids = {part.name: f"<id of {part.name}>" for part in rendered.parts}
    for part in rendered.parts:
        definition = active.get(part.definition, part.definition)
        yield ServiceRequest("batch", "SubmitJob", part.complete_request(definition, job_ids))


def find_ready_times(parts: Sequence[Part], ended_ms: Mapping[str, int]) -> dict[str, int]:
    """Return name of a part -> when the last of the jobs that it waits for ended; 0: unknown.

    ``parts``: all parts of a run, each after those that it waits for. ``ended_ms``: name -> when
    its job ended, of parts that are no barriers.
    """
    ready_ms: dict[str, int] = {}
    barriers = {part.name for part in parts if part.is_barrier}
    for part in parts:
        names = [need.name for need in part.needs]
        ends_ms = [ready_ms[name] if name in barriers else ended_ms.get(name, 0) for name in names]
        ready_ms[part.name] = max(ends_ms, default=0)
    return ready_ms


class _PartKey(NamedTuple):
    """Tells which parts of two steps that wait child by child belong together."""

    group: int
    #: Number of the part in its group.
    number: int


class _PartRange(NamedTuple):
    """The children of a part, by their positions in the plan's job."""

    key: _PartKey
    offset: int
    size: int


def _divide_steps(plan: Plan, target: Target) -> dict[str, list[_PartRange]]:
    """Return step -> the ranges of its parts, as few as AWS Batch allows.

    A group of children gets the same number of parts in all steps, so that its parts are pairs.
    """
    groups = planning.find_paired_groups(plan)
    counts: dict[int, int] = {}
    for job in plan.jobs:
        for group, offset, size in groups[job.step]:
            count = _count_parts(job, offset, size, target)
            counts[group] = max(counts.get(group, 1), count)
    return {
        step: [
            _PartRange(_PartKey(group, number), offset + start, length)
            for group, offset, size in ranges
            for number, (start, length) in enumerate(_split(size, counts[group]))
        ]
        for step, ranges in groups.items()
    }


def _count_parts(job: PlannedJob, offset: int, size: int, target: Target) -> int:
    """Return the number of parts that these children of a step need by themselves.

    In a retry, the command of each part also lists the numbers of its children, which must fit.
    """
    count = -(-size // limits.MAX_CHILDREN)
    if job.indices is None or definitions.needs_worker(job):
        return count
    max_chars = submit_requests.MAX_OVERRIDE_CHARS
    fixed = submit_requests.count_override_chars(job, offset, 1, target)
    room = max_chars - fixed
    while count < size:
        longest = max(
            submit_requests.count_override_chars(job, offset + start, length, target)
            for start, length in _split(size, count)
        )
        if longest <= max_chars:
            break
        count = max(count + 1, -(-count * (longest - fixed) // room)) if room > 0 else size
    return min(count, size)


def _split(size: int, count: int) -> list[tuple[int, int]]:
    """Return (offset, size) of the parts of an array. Their sizes differ by one child at most."""
    bounds = [size * number // count for number in range(count + 1)]
    return [(start, end - start) for start, end in pairwise(bounds)]


def _find_needs(
    job: PlannedJob, key: _PartKey, by_step: Mapping[str, Mapping[_PartKey, Part]]
) -> tuple[list[PartNeed], list[PartNeed]]:
    """Return what a part of the step waits for: parts that are its own pairs, and whole steps."""
    pairs, wholes = [], []
    for need in job.needs:
        needed = by_step[need.step]
        if not need.each:
            wholes += [PartNeed(part.name, False) for part in needed.values()]
        elif key in needed:
            pairs.append(PartNeed(needed[key].name, needed[key].size > 1))
    return pairs, wholes


# -- the parts of a step -----------------------------------------------------------------------


def _make_part_name(run_id: str, step: str, ending: str, steps: Set[str]) -> str:
    """Return the name of a part. Another step may be named like this step with the ending."""
    if ending and f"{step}{ending}" in steps:
        ending += "_"  # no step has it in its name
    return f"{run_id}-{step}{ending}"


class _StepParts:
    """Makes the parts of one step, each after its barriers.

    A barrier is a job that does nothing but wait for 20 others. All parts of a step use the same
    barriers for the steps that they wait for as a whole. Needs child by child are joined by arrays
    of the same size, for each part.
    """

    def __init__(
        self,
        job: PlannedJob,
        target: Target,
        by_step: Mapping[str, Mapping[_PartKey, Part]],
        steps: Set[str],
    ) -> None:
        """``by_step``: the parts of earlier steps; ``steps``: all steps of the plan."""
        self.parts: list[Part] = []
        #: The parts without the barriers.
        self.by_key: dict[_PartKey, Part] = {}
        self.definitions: dict[str, dict[str, Any]] = {}
        self._job = job
        self._target = target
        self._by_step = by_step
        self._steps = steps
        #: Names of the parts that a barrier waits for -> the barrier.
        self._barriers: dict[tuple[PartNeed, ...], Part] = {}

    def make(self, ranges: Sequence[_PartRange]) -> None:
        job, target = self._job, self._target
        definition = self._add_definition(definitions.make_definition(job, target))
        for number, (key, offset, size) in enumerate(ranges):
            name = self._make_name(f"-{number}" if len(ranges) > 1 else "")
            needs = self._join(*_find_needs(job, key, self._by_step), size)
            request = submit_requests.make_request(name, job, offset, size, target)
            part = Part(name, job.step, size, offset, definition, request, needs)
            self.parts.append(part)
            self.by_key[key] = part

    def _make_name(self, ending: str) -> str:
        return _make_part_name(self._target.run_id, self._job.step, ending, self._steps)

    def _join(
        self, pairs: list[PartNeed], wholes: list[PartNeed], size: int
    ) -> tuple[PartNeed, ...]:
        """Return at most 20 needs that wait for all of these; ``size`` is that of the part.

        The two are joined apart, since all parts of a step have the same ``wholes``.
        """
        while len(pairs) + len(wholes) > limits.MAX_DEPENDENCIES:
            longer = pairs if len(pairs) > len(wholes) else wholes
            joined = tuple(longer[: limits.MAX_DEPENDENCIES])
            is_each = joined[0].is_each
            if joined not in self._barriers:
                self._barriers[joined] = self._make_barrier(joined, size if is_each else 1)
            name = self._barriers[joined].name
            longer[:] = [*longer[limits.MAX_DEPENDENCIES :], PartNeed(name, is_each)]
        return (*pairs, *wholes)

    def _make_barrier(self, needs: tuple[PartNeed, ...], size: int) -> Part:
        job, target = self._job, self._target
        name = self._make_name(f"-wait{len(self._barriers)}")
        request = {
            "jobName": name,
            "jobQueue": target.queue_of(job),
            "tags": submit_requests.make_tags(job.step, target),
            **({"arrayProperties": {"size": size}} if needs[0].is_each else {}),
            **submit_requests.make_share(job, target),
        }
        definition = self._add_definition(definitions.make_barrier_definition(job, target))
        barrier = Part(name, job.step, size, 0, definition, request, needs, is_barrier=True)
        self.parts.append(barrier)
        return barrier

    def _add_definition(self, request: dict[str, Any]) -> str:
        name = str(request["jobDefinitionName"])
        self.definitions[name] = request
        return name


def _make_barrier_notes(parts: Sequence[Part]) -> Iterator[str]:
    by_step: dict[str, int] = {}
    for part in parts:
        if part.is_barrier and part.size > 1:
            by_step[part.step] = by_step.get(part.step, 0) + part.size
    for step, count in by_step.items():
        yield (
            f"{step}: waits child by child for more than {limits.MAX_DEPENDENCIES} steps, which "
            f"AWS Batch refuses: {count:,} children that do nothing join them, in its image"
        )
