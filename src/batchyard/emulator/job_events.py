"""Events of EventBridge about jobs: "Batch Job State Change" (facts, 1.1).

The engine reports changed jobs ten times a second. A job may have passed several states since then:
each of them has its event.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from batchyard.batch.jobs import JobState
from batchyard.embedded.store import JobRow
from batchyard.emulator import names
from batchyard.emulator.job_descriptions import job_detail
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import JOB, Document, EndpointState

_ORDER = (JobState.RUNNABLE, JobState.STARTING, JobState.RUNNING)
#: Members of a JobDetail, and of its container, that a job has only after it has run.
_LATER_MEMBERS = ("startedAt", "stoppedAt", "statusReason")
_LATER_CONTAINER_MEMBERS = ("exitCode", "reason", "logStreamName")


class RegionalJobEvents:
    """Sends the events of the jobs of each region to the rules of that region."""

    def __init__(
        self,
        regions: Regions,
        has_rules: Callable[[str], bool],
        send: Callable[[list[Document]], None],
    ) -> None:
        """``has_rules`` returns whether a region has rules that may want events."""
        self._regions = regions
        self._has_rules = has_rules
        self._send = send
        self._by_region: dict[str, JobEvents] = {}

    def on_changes(self, rows: list[JobRow]) -> None:
        """Send the events of changed jobs. The caller holds the lock of the loop."""
        for state in self._regions.states():
            region = state.region
            if region not in self._by_region:
                has_rules = partial(self._has_rules, region)
                self._by_region[region] = JobEvents(state, has_rules, self._send)
            own_rows = [row for row in rows if state.get(JOB, row.id) is not None]
            self._by_region[region].on_changes(own_rows)


class JobEvents:
    """Sends an event for each change of the state of a job or child of one region."""

    def __init__(
        self,
        state: EndpointState,
        has_rules: Callable[[], bool],
        send: Callable[[list[Document]], None],
    ) -> None:
        """``has_rules`` returns whether any rule may want events; without rules nothing is done."""
        self._state = state
        self._has_rules = has_rules
        self._send = send
        #: Number of the newest job that was reported before. Newer jobs began as SUBMITTED.
        self._newest_number = -1
        #: Job or child id -> the state of its last event, for jobs that are not over.
        self._last_states: dict[str, JobState] = {}
        #: Ids of the jobs whose last events were sent.
        self._ended_ids: set[str] = set()

    def on_changes(self, rows: list[JobRow]) -> None:
        """Send the events of changed jobs. The caller holds the lock of the loop."""
        if not rows:
            return
        if self._has_rules():
            events = [event for row in rows for event in self._job_events(row)]
            if events:
                self._send(events)
        else:
            self._last_states.clear()
            self._ended_ids.clear()
        self._newest_number = max(self._newest_number, *(row.number for row in rows))

    def _job_events(self, row: JobRow) -> Iterator[Document]:
        job_id = row.id
        document = self._state.get(JOB, job_id)
        if document is None or job_id in self._ended_ids:
            return
        first_state = JobState.SUBMITTED if row.number > self._newest_number else None
        scheduler = self._state.scheduler
        size = document.get("arrayProperties", {}).get("size", 0)
        child_ids = [f"{job_id}:{index}" for index in range(size)]
        for index, child_id in enumerate(child_ids):
            child_state = scheduler.child_state(job_id, index)
            if self._last_states.get(child_id) is not child_state:
                yield from self._state_events(child_id, child_state, first_state)
        job_state = scheduler.summary(job_id).state if size else scheduler.child_state(job_id, 0)
        yield from self._state_events(job_id, job_state, first_state)
        if job_state.is_terminal:
            self._ended_ids.add(job_id)
            for ended_id in (job_id, *child_ids):
                self._last_states.pop(ended_id, None)

    def _state_events(
        self, job_id: str, job_state: JobState, first_state: JobState | None
    ) -> Iterator[Document]:
        """Yield the events since the last one; ``first_state`` is for a job without events."""
        last_state = self._last_states.get(job_id, first_state)
        self._last_states[job_id] = job_state
        if last_state is job_state:
            return
        detail = job_detail(self._state, job_id)
        if detail is None:
            return
        is_parent = "size" in detail.get("arrayProperties", {})
        has_run = not is_parent and "startedAt" in detail
        for passed in list_passed_states(last_state, job_state, has_run, is_parent):
            yield self._make_event(_describe_earlier(detail, passed))
        yield self._make_event(detail)

    def _make_event(self, detail: Document) -> Document:
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Batch Job State Change",
            "source": "aws.batch",
            "account": names.ACCOUNT_ID,
            "time": datetime.fromtimestamp(self._state.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": self._state.region,
            "resources": [detail["jobArn"]],
            "detail": detail,
        }


def list_passed_states(
    last: JobState | None, current: JobState, has_run: bool, is_parent: bool
) -> list[JobState]:
    """Return the states between two observed ones; None stands for an unknown state."""
    if last is None:
        return []
    if is_parent:
        is_skipped = last is JobState.SUBMITTED and current.is_terminal
        return [JobState.PENDING] if is_skipped else []
    start = _ORDER.index(last) + 1 if last in _ORDER else 0
    if current in _ORDER:
        return list(_ORDER[start : _ORDER.index(current)])
    return list(_ORDER[start:]) if current.is_terminal and has_run else []


def _describe_earlier(detail: Document, status: JobState) -> Document:
    """Return the description of a job as it was in an earlier state."""
    earlier = {**detail, "status": status.value}
    if "container" in detail:
        earlier["container"] = {
            member: value
            for member, value in detail["container"].items()
            if member not in _LATER_CONTAINER_MEMBERS
        }
    if status is not JobState.RUNNING:
        for member in _LATER_MEMBERS:
            earlier.pop(member, None)
    earlier.pop("stoppedAt", None)
    earlier.pop("statusReason", None)
    if detail["status"] in ("SUCCEEDED", "FAILED"):
        earlier["attempts"] = detail["attempts"][:-1]
    return earlier
