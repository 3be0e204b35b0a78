"""How many children of a step may run at once while a run executes: `scale` changes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from batchyard import plan as planning
from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment
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

    def __init__(self, plan: Plan, capacity: Resources, store: Store) -> None:
        self._plan, self._store = plan, store
        self._requested = store.scales()
        self.by_step = {**planning.find_limits(plan), **self._requested}
        self.capacity = fit_capacity(plan, capacity, self._requested)
        self._allow_open_files()

    def apply_requests(self, scheduler: Scheduler, environment: str) -> None:
        """Let the scheduler follow what was requested since the last call."""
        requested = self._store.scales()
        if requested == self._requested:
            return
        self._requested = requested
        for step, limit in requested.items():
            scheduler.change_consumable(step, limit - self.by_step[step])
            self.by_step[step] = limit
        self.capacity = fit_capacity(self._plan, self.capacity, requested)
        self._allow_open_files()
        scheduler.set_environment(ComputeEnvironment(environment, self.capacity))

    def _allow_open_files(self) -> None:
        jobs = tuple(
            replace(job, max_running=self.by_step.get(job.step)) for job in self._plan.jobs
        )
        at_once = planning.max_concurrency(replace(self._plan, jobs=jobs), self.capacity)
        machine.allow_open_files(at_once * _FILES_PER_CHILD + _SPARE_FILES)


def fit_capacity(plan: Plan, capacity: Resources, scales: dict[str, int]) -> Resources:
    """Return the capacity of a run of one step, with room for as many children as requested.

    More than the machine has if that is asked for, as with `run -j`. A run of several steps keeps
    its capacity, which is for all of them.
    """
    if len(plan.jobs) > 1 or not scales:
        return capacity
    job = plan.jobs[0]
    at_once = min(scales[job.step], job.size)
    return replace(
        capacity,
        vcpus=max(capacity.vcpus, at_once * job.resources.vcpus),
        memory_mib=max(capacity.memory_mib, at_once * job.resources.memory_mib),
    )
