"""Reclaims of spot hosts: `batchyard emulate reclaim` announces one, and the child ends later."""

from __future__ import annotations

import time
from typing import NamedTuple

from batchyard.embedded.runner import Task
from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.state import JOB, Document, EndpointState

_MAX_NOTICE_S = 3600.0


class _Reclaim(NamedTuple):
    #: Seconds since 1970, and on the monotonic clock.
    at_s: float
    due_s: float
    job_id: str
    task: Task


class Reclaims:
    """The announced reclaims. All methods but ``time_of`` need the lock of the loop."""

    def __init__(self, state: EndpointState) -> None:
        self._state = state
        #: By task id.
        self._reclaims: dict[str, _Reclaim] = {}

    def time_of(self, task: str) -> float | None:
        """Return when the host of a task is reclaimed, in seconds since 1970."""
        reclaim = self._reclaims.get(task)
        return None if reclaim is None else reclaim.at_s

    def announce(self, job_id: str, notice_s: float) -> Document:
        """Reclaim the host of a running job or child after ``notice_s`` seconds.

        Raises InvalidRequestError if the job or child is not running.
        """
        if not 0 <= notice_s <= _MAX_NOTICE_S:
            raise InvalidRequestError(f"notice must be between 0 and {_MAX_NOTICE_S:.0f} seconds")
        state = self._state
        parent, index = names.split_child_id(job_id)
        _check_child(state.get(JOB, parent), job_id, index)
        task = state.loop.find_running_task(parent, index or 0)
        if task is None:
            raise InvalidRequestError(f"{job_id} is not running, so it has no host to reclaim")
        key = names.AttemptKey(task.job_number, task.child, task.attempt)
        task_id = names.task_id(key, state.salt)
        at_s, due_s = state.clock() + notice_s, time.monotonic() + notice_s
        self._reclaims[task_id] = _Reclaim(at_s, due_s, parent, task)
        self.end_due()
        return {"jobId": job_id, "instanceId": names.instance_id(task_id), "notice": notice_s}

    def end_due(self) -> None:
        """End the children whose notice is over."""
        if not self._reclaims:
            return
        loop, now_s = self._state.loop, time.monotonic()
        due = [task_id for task_id, reclaim in self._reclaims.items() if reclaim.due_s <= now_s]
        for task_id in due:
            reclaim = self._reclaims.pop(task_id)
            # The attempt may have ended by itself since the notice.
            if loop.find_running_task(reclaim.job_id, reclaim.task.child) is reclaim.task:
                reason = f"Host EC2 (instance {names.instance_id(task_id)}) terminated."
                loop.lose(reclaim.job_id, reclaim.task.child, reason)


def _check_child(document: Document | None, job_id: str, index: int | None) -> None:
    size = document.get("arrayProperties", {}).get("size", 0) if document else 0
    if document is None or (index is not None and index not in range(size)):
        raise InvalidRequestError(f"no job has the id {job_id}")
    if index is None and "arrayProperties" in document:
        raise InvalidRequestError(
            f"{job_id} is an array: name one of its children, as in {job_id}:0"
        )
