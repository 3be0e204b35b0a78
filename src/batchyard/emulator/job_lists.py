"""ListJobs (facts, 6)."""

from __future__ import annotations

import re

from batchyard.batch.jobs import JobState
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.job_descriptions import container_detail
from batchyard.emulator.paging import MAX_RESULTS, cut_page, next_token
from batchyard.emulator.state import JOB, QUEUE, Document, EndpointState

_PARENTS = ("jobQueue", "arrayJobId", "multiNodeJobId")
_MAX_RESULTS_WITHOUT_FILTER = 1000
_FILTERS = (
    "JOB_NAME",
    "JOB_DEFINITION",
    "BEFORE_CREATED_AT",
    "AFTER_CREATED_AT",
    "SHARE_IDENTIFIER",
)
_SUMMARY_MEMBERS = (
    "jobArn",
    "jobId",
    "jobName",
    "createdAt",
    "status",
    "statusReason",
    "startedAt",
    "stoppedAt",
    "jobDefinition",
    "shareIdentifier",
    "isCancelled",
    "isTerminated",
)

#: A job, or with an index its child.
_Entry = tuple[str, int | None]


def list_jobs(state: EndpointState, request: Document) -> Document:
    parents = [member for member in _PARENTS if request.get(member)]
    if len(parents) != 1:
        raise InvalidRequestError(
            "exactly one of jobQueue, arrayJobId and multiNodeJobId must be provided"
        )
    if parents == ["multiNodeJobId"]:
        return {"jobSummaryList": []}
    filters = request.get("filters", [])
    if len(filters) > 1:
        raise InvalidRequestError("filters must have at most one entry")
    list_entries = _list_children if parents == ["arrayJobId"] else _list_queue
    max_results = MAX_RESULTS if filters else _MAX_RESULTS_WITHOUT_FILTER
    page, token = cut_page(list_entries(state, request), request, max_results)
    summaries = [_summarize(state, job_id, index) for job_id, index in page]
    return {"jobSummaryList": summaries} | next_token(token)


def _list_children(state: EndpointState, request: Document) -> list[_Entry]:
    if request.get("filters"):
        raise InvalidRequestError("filters are not for the children of an array job")
    job_id = request["arrayJobId"]
    document = state.get(JOB, job_id)
    newest_ms = state.newest_visible_ms(state.faults.settings.list_lag)
    is_visible = document is not None and document["createdAt"] <= newest_ms
    if document is None or not is_visible or "arrayProperties" not in document:
        return []
    job_state = JobState(request.get("jobStatus", JobState.RUNNING))
    return [
        (job_id, index)
        for index in range(document["arrayProperties"]["size"])
        if state.scheduler.child_state(job_id, index) is job_state
    ]


def _list_queue(state: EndpointState, request: Document) -> list[_Entry]:
    arn = state.require(QUEUE, request["jobQueue"])["jobQueueArn"]
    newest_ms = state.newest_visible_ms(state.faults.settings.list_lag)
    jobs = [
        job
        for job in reversed(state.documents(JOB))
        if job["jobQueue"] == arn and job["createdAt"] <= newest_ms
    ]
    job_filter = next(iter(request.get("filters", [])), None)
    if job_filter is not None:
        _check_filter(job_filter)
        jobs = [job for job in jobs if _passes(job, job_filter)]
    has_share_filter = job_filter is not None and job_filter["name"] == "SHARE_IDENTIFIER"
    if job_filter is None or (has_share_filter and "jobStatus" in request):
        job_state = JobState(request.get("jobStatus", JobState.RUNNING))
        jobs = [job for job in jobs if state.scheduler.summary(job["jobId"]).state is job_state]
    return [(job["jobId"], None) for job in jobs]


def _check_filter(job_filter: Document) -> None:
    name, values = job_filter.get("name"), job_filter.get("values", [])
    if name not in _FILTERS:
        raise InvalidRequestError(
            f"filters: name must be one of {', '.join(_FILTERS)}; got {name!r}"
        )
    if not values:
        raise InvalidRequestError("filters: values must not be empty")


def _passes(job: Document, job_filter: Document) -> bool:
    return any(_matches(job, job_filter["name"], value) for value in job_filter["values"])


def _matches(job: Document, filter_name: str, value: str) -> bool:
    if filter_name == "JOB_NAME":
        return matches_prefix(job["jobName"].lower(), value.lower())
    if filter_name == "SHARE_IDENTIFIER":
        return bool(job.get("shareIdentifier") == value)
    if filter_name == "JOB_DEFINITION":
        # A name stands for all revisions, an ARN for one of them.
        if value.startswith("arn:"):
            return bool(job["jobDefinition"] == value)
        return matches_prefix(job["_definition"], value)
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise InvalidRequestError(
            f"filters: {filter_name} must be a time in milliseconds; got {value!r}"
        )
    created_ms: int = job["createdAt"]
    if filter_name == "BEFORE_CREATED_AT":
        return created_ms < int(value)
    return created_ms > int(value)


def matches_prefix(text: str, pattern: str) -> bool:
    """Return whether the text is the pattern, or, if the pattern ends in *, begins with it."""
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


def _summarize(state: EndpointState, job_id: str, index: int | None) -> Document:
    detail = container_detail(state, job_id if index is None else f"{job_id}:{index}")
    assert detail is not None
    summary = {member: detail[member] for member in _SUMMARY_MEMBERS if member in detail}
    array = detail.get("arrayProperties")
    if array is None or index is not None:
        container = detail["container"]
        members = ("exitCode", "reason")
        summary["container"] = {key: container[key] for key in members if key in container}
    if array is not None:
        is_child = index is not None
        summary["arrayProperties"] = {"index": index} if is_child else {"size": array["size"]}
    return summary
