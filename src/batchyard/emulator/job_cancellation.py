"""CancelJob, CancelJobs, TerminateJob and TerminateJobs (facts, 1.6 and 1.7)."""

from __future__ import annotations

from batchyard.batch.jobs import JobState
from batchyard.emulator import names
from batchyard.emulator.api_errors import RequestExecutionError
from batchyard.emulator.state import JOB, STOP_REQUESTS, Document, EndpointState

_MAX_REASON_CHARS = 1024
#: Jobs in one CancelJobs or TerminateJobs request.
_MAX_JOBS = 50
#: CancelJob does not touch jobs in these states.
_STARTED = (JobState.STARTING, JobState.RUNNING)
_CANCEL, _TERMINATE = "cancel", "terminate"


def cancel_job(state: EndpointState, request: Document) -> Document:
    _stop_job(state, request["jobId"], _read_reason(request), _CANCEL)
    return {}


def terminate_job(state: EndpointState, request: Document) -> Document:
    _stop_job(state, request["jobId"], _read_reason(request), _TERMINATE)
    return {}


def cancel_jobs(state: EndpointState, request: Document) -> Document:
    return _stop_jobs(state, request, _CANCEL)


def terminate_jobs(state: EndpointState, request: Document) -> Document:
    return _stop_jobs(state, request, _TERMINATE)


def repeat_requests(state: EndpointState, job_id: str, stop_requests: Document) -> None:
    """Perform the saved requests of a job again, in a scheduler that was restored."""
    for verb in (_CANCEL, _TERMINATE):
        for index, reason in stop_requests.get(verb, {}).items():
            _stop(state, job_id, int(index) if index else None, reason, verb)


def stop_verbs(state: EndpointState, job_id: str, index: int | None) -> tuple[bool, bool]:
    """Return whether a job or child was cancelled, and whether it was terminated."""
    stop_requests = state.get(STOP_REQUESTS, job_id) or {}
    keys = {"", _key(index)}
    is_cancelled = not keys.isdisjoint(stop_requests.get(_CANCEL, {}))
    return is_cancelled, not keys.isdisjoint(stop_requests.get(_TERMINATE, {}))


def _stop_jobs(state: EndpointState, request: Document, verb: str) -> Document:
    job_ids: list[str] = request["jobs"]
    if not 1 <= len(job_ids) <= _MAX_JOBS:
        raise RequestExecutionError(f"there must be 1 to {_MAX_JOBS} jobs; got {len(job_ids)}")
    reason = _read_reason(request)
    for job_id in job_ids:
        _stop_job(state, job_id, reason, verb)
    return {"successful": job_ids, "errors": []}


def _stop_job(state: EndpointState, job_id: str, reason: str, verb: str) -> None:
    """Save and perform a request. AWS accepts a request that has no effect (facts, 1.6)."""
    if not job_id:
        raise RequestExecutionError("jobId must not be empty")
    parent, index = names.split_child_id(job_id)
    job_state = _find_state(state, parent, index)
    if job_state is None or job_state.is_terminal:
        return
    if verb == _CANCEL and job_state in _STARTED:
        return
    stop_requests = state.get(STOP_REQUESTS, parent) or {}
    reasons: dict[str, str] = {**stop_requests.get(verb, {})}
    reasons.setdefault(_key(index), reason)
    state.put(STOP_REQUESTS, parent, {**stop_requests, verb: reasons})
    state.save()
    _stop(state, parent, index, reason, verb)


def _find_state(state: EndpointState, parent: str, index: int | None) -> JobState | None:
    """Return the state of a job or child, or None if there is no such job or child."""
    document = state.get(JOB, parent)
    if document is None:
        return None
    if index is None:
        return state.scheduler.summary(parent).state
    if index not in range(document.get("arrayProperties", {}).get("size", 0)):
        return None
    return state.scheduler.child_state(parent, index)


def _stop(state: EndpointState, job_id: str, index: int | None, reason: str, verb: str) -> None:
    act = state.scheduler.cancel if verb == _CANCEL else state.scheduler.terminate
    state.loop.perform(act(job_id, reason, index))


def _key(index: int | None) -> str:
    """Return the key of a child in the saved requests of its job; empty for the job itself."""
    return "" if index is None else str(index)


def _read_reason(request: Document) -> str:
    reason: str = request["reason"]
    if not 1 <= len(reason) <= _MAX_REASON_CHARS:
        raise RequestExecutionError(
            f"reason must have 1 to {_MAX_REASON_CHARS} characters; got {len(reason)}"
        )
    return reason
