"""Ends of hosts that run jobs: reclaims, and updates of compute environments.

`batchyard emulate reclaim` announces a reclaim, or chance does (--reclaims).

All jobs that run on a host end with it. A job on Fargate ends alone, and so does a job of an
UNMANAGED environment, since this machine goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from batchyard.batch.fleets import Host
from batchyard.embedded.runner import Task
from batchyard.emulator import hosts, job_definitions, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.ecs import interruptions
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import JOB, Document, EndpointState

_MAX_NOTICE_S = 3600.0
#: statusReason of a task that Fargate Spot has reclaimed.
_FARGATE_SPOT = "Your Spot Task was interrupted."


@dataclass(slots=True)
class RandomReclaims:
    """Reclaims of Spot instances that chance chooses."""

    #: How many reclaims an instance would get in a minute, on average.
    per_minute: float
    notice_s: float
    generator: random.Random = field(default_factory=random.Random)

    def chooses(self, elapsed_s: float) -> bool:
        """Return whether an instance is reclaimed within the last ``elapsed_s`` seconds."""
        return self.generator.random() < self.per_minute / 60 * elapsed_s


class _Reclaim(NamedTuple):
    #: Seconds since 1970, and on the monotonic clock.
    at_s: float
    due_s: float
    #: Empty for a task on Fargate.
    instance_id: str
    #: None for a task that ends alone: on Fargate, or on this machine (UNMANAGED).
    host: Host | None
    task: Task | None


class Reclaims:
    """The announced reclaims. All methods but ``time_of`` need the lock of the loop."""

    def __init__(self, regions: Regions, at_random: RandomReclaims | None = None) -> None:
        self._regions = regions
        #: For what all regions share: the engine and the clock.
        self._state = regions.default
        self._at_random = at_random
        self._last_draw_s = time.monotonic()
        #: By the id of the instance, or of the task if it has no instance.
        self._reclaims: dict[str, _Reclaim] = {}

    def time_of(self, host_id: str) -> float | None:
        """Return when a host is reclaimed, in seconds since 1970; None if no reclaim is due."""
        reclaim = self._reclaims.get(host_id)
        if reclaim is not None:
            return reclaim.at_s
        instances = (state.ecs.instances.get(host_id) for state in self._regions.states())
        return next((instance.reclaimed_at_s for instance in instances if instance), None)

    def announce(self, job_id: str, notice_s: float) -> Document:
        """Reclaim the host of a running job, child or task of ECS after ``notice_s`` seconds.

        ``job_id``: the id of a job or child, or the id or ARN of a task. Raises InvalidRequestError
        if it is not running.
        """
        if not 0 <= notice_s <= _MAX_NOTICE_S:
            raise InvalidRequestError(f"notice must be between 0 and {_MAX_NOTICE_S:.0f} seconds")
        for state in self._regions.states():
            ecs_task = interruptions.find_task(state, job_id)
            if ecs_task is not None:
                return interruptions.announce(state, ecs_task, notice_s)
        parent, index = names.split_child_id(job_id)
        state = self._regions.state_of_job(parent) or self._state
        _check_child(state.get(JOB, parent), job_id, index)
        task = state.loop.find_running_task(parent, index or 0)
        if task is None:
            raise InvalidRequestError(f"{job_id} is not running, so it has no host to reclaim")
        host = state.scheduler.host_of(parent, index or 0)
        key = names.AttemptKey(task.job_number, task.child, task.attempt)
        host_id = names.task_id(key, state.salt) if host is None else host.host_id
        instance_id = _find_instance_id(state, parent, host_id)
        self._reclaims[host_id] = self._due_in(notice_s, instance_id, host, task)
        self.end_due()
        return {"jobId": job_id, "instanceId": instance_id, "notice": notice_s}

    def _due_in(
        self, notice_s: float, instance_id: str, host: Host | None, task: Task | None = None
    ) -> _Reclaim:
        at_s, due_s = self._state.clock() + notice_s, time.monotonic() + notice_s
        return _Reclaim(at_s, due_s, instance_id, host, task)

    def on_tick(self) -> None:
        """Let chance announce reclaims, and end the hosts whose time is over."""
        self._announce_at_random()
        self.end_due()
        for fleet in self._state.scheduler.fleets():
            for host in fleet.expired_hosts():
                end_host(self._state, host)

    def _announce_at_random(self) -> None:
        now_s = time.monotonic()
        elapsed_s, self._last_draw_s = now_s - self._last_draw_s, now_s
        if self._at_random is None:
            return
        for fleet in self._state.scheduler.fleets():
            for host in fleet.hosts:
                is_new = host.is_spot and host.host_id not in self._reclaims
                if is_new and self._at_random.chooses(elapsed_s):
                    reclaim = self._due_in(self._at_random.notice_s, host.host_id, host)
                    self._reclaims[host.host_id] = reclaim
        for state in self._regions.states():
            for instance in state.ecs.instances.values():
                is_new = instance.is_spot and instance.reclaimed_at_s is None
                if is_new and self._at_random.chooses(elapsed_s):
                    notice_s = self._at_random.notice_s
                    interruptions.announce_for_instance(state, instance, notice_s)

    def end_due(self) -> None:
        """End the hosts whose notice is over, with all their jobs."""
        now_s = time.monotonic()
        due_ids = [host_id for host_id, reclaim in self._reclaims.items() if reclaim.due_s <= now_s]
        for host_id in due_ids:
            reclaim = self._reclaims.pop(host_id)
            if reclaim.host is not None:
                reclaim.host.was_reclaimed = reclaim.host.ended_ms is None
                end_host(self._state, reclaim.host)
            elif reclaim.task is not None:
                self._end_task(reclaim.task, reclaim.instance_id)

    def _end_task(self, task: Task, instance_id: str) -> None:
        loop = self._state.loop
        reason = f"Host EC2 (instance {instance_id}) terminated." if instance_id else _FARGATE_SPOT
        # The attempt may have ended by itself since the notice.
        if loop.find_running_task(task.job_id, task.child) is task:
            loop.lose(task.job_id, task.child, reason)


def _find_instance_id(state: EndpointState, job_id: str, host_id: str) -> str:
    """Return the id of the instance of a running job; empty on Fargate, which shows none."""
    if job_definitions.is_fargate(state.require(JOB, job_id)):
        return ""
    own_instance = hosts.find_own_instance(state, host_id)
    return own_instance.instance_id if own_instance else hosts.instance_id(host_id)


def end_hosts(state: EndpointState, host_ids: Collection[str]) -> None:
    """End the instances with these ids, if they have not ended yet."""
    for fleet in state.scheduler.fleets():
        for host in list(fleet.hosts):
            if host.host_id in host_ids:
                end_host(state, host)


def end_host(state: EndpointState, host: Host) -> None:
    """End an instance with all jobs on it; do nothing if it has ended since."""
    if host.ended_ms is not None:
        return
    children = state.scheduler.children_on(host)
    host.fleet.end(host)
    for job_id, child in children:
        state.loop.lose(job_id, child, f"Host EC2 (instance {host.host_id}) terminated.")


def _check_child(document: Document | None, job_id: str, index: int | None) -> None:
    size = document.get("arrayProperties", {}).get("size", 0) if document else 0
    if document is None or (index is not None and index not in range(size)):
        raise InvalidRequestError(f"no job has the id {job_id}")
    if index is None and "arrayProperties" in document:
        raise InvalidRequestError(
            f"{job_id} is an array: name one of its children, as in {job_id}:0"
        )
