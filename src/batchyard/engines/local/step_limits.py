"""How many children of a step may run at once while a run executes: `scale` changes it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING

from batchyard import plan as planning
from batchyard.batch.jobs import Resources
from batchyard.embedded import machine
from batchyard.embedded.store import Store
from batchyard.plan import Plan

if TYPE_CHECKING:
    # `status` imports this module, and needs no scheduler.
    from batchyard.batch.scheduler import Scheduler

#: Open files that the process needs beside those of its children.
_SPARE_FILES = 64
#: The pipe and the file of the output, the pidfd; with docker two pipes to the shell.
_FILES_PER_CHILD = 6


class StepLimits:
    """The limits of a run's steps: those of the plan, or those that were requested since."""

    def __init__(
        self,
        plan: Plan,
        capacity: Resources,
        store: Store,
        *,
        limited: Container[str] = (),
        open_files: int | None = None,
    ) -> None:
        """``limited``: see LocalSettings. ``open_files``: the hard limit; None: this process's."""
        self._plan, self._store, self._limited = plan, store, limited
        self._most = max_children(open_files or machine.max_open_files())
        self._requested = store.scales()
        self.by_step = planning.find_limits(plan)
        self.capacity = capacity
        self._change(self._requested)

    def apply_requests(self, scheduler: Scheduler, environment: str) -> None:
        """Let the scheduler follow what was requested since the last call."""
        requested = self._store.scales()
        if requested == self._requested:
            return
        from batchyard.batch.queues import ComputeEnvironment

        self._requested, old = requested, dict(self.by_step)
        self._change(requested)
        for step in requested:
            scheduler.change_consumable(step, self.by_step[step] - old[step])
        scheduler.set_environment(ComputeEnvironment(environment, self.capacity))

    def _change(self, requested: dict[str, int]) -> None:
        """Set the limits, lower than requested where that needs more files than may be open."""
        old, limits = self.capacity, {**self.by_step, **requested}
        capacity = fit_capacity(self._plan, old, requested, self._limited)
        if self._count_at_once(limits, capacity) > self._most:
            limits = self._lower(requested)
            lowered = {step: limits[step] for step in requested}
            capacity = fit_capacity(self._plan, old, lowered, self._limited)
        at_once = self._count_at_once(limits, capacity)
        machine.allow_open_files(at_once * _FILES_PER_CHILD + _SPARE_FILES)
        self.by_step, self.capacity = limits, capacity

    def _lower(self, requested: dict[str, int]) -> dict[str, int]:
        """Return limits of all steps: each request gets what the other steps leave."""
        limits = dict(self.by_step)
        # Steps that shrink are first, and leave more for the others.
        for step in sorted(requested, key=lambda step: requested[step] - limits[step]):
            others = sum(
                min(job.size, limits.get(job.step, job.size))
                for job in self._plan.jobs
                if job.step != step
            )
            limits[step] = max(1, min(requested[step], self._most - others))
        return limits

    def _count_at_once(self, limits: dict[str, int], capacity: Resources) -> int:
        jobs = tuple(replace(job, max_running=limits.get(job.step)) for job in self._plan.jobs)
        return planning.max_concurrency(replace(self._plan, jobs=jobs), capacity)


def max_children(open_files: int) -> int:
    """Return how many children can run at once in a process with that limit of open files."""
    return (open_files - _SPARE_FILES) // _FILES_PER_CHILD


def fit_capacity(
    plan: Plan, capacity: Resources, scales: dict[str, int], limited: Container[str] = ()
) -> Resources:
    """Return the capacity of a run of one step, with room for as many children as requested.

    More than the machine has if that is asked for, as with `run -j`. A run of several steps keeps
    its capacity, which is for all of them. ``limited``: amounts that are kept, as the user has
    limited them.
    """
    if len(plan.jobs) > 1 or not scales:
        return capacity
    job = plan.jobs[0]
    at_once = min(scales[job.step], job.size)
    vcpus, memory_mib = at_once * job.resources.vcpus, at_once * job.resources.memory_mib
    return replace(
        capacity,
        vcpus=capacity.vcpus if "vcpus" in limited else max(capacity.vcpus, vcpus),
        memory_mib=(
            capacity.memory_mib if "memory_mib" in limited else max(capacity.memory_mib, memory_mib)
        ),
    )
