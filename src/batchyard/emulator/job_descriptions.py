"""DescribeJobs and ListJobs (facts, 1.2 and 6): what is known of a job now, in AWS's words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from batchyard.batch.jobs import JobState
from batchyard.embedded.store import AttemptRow
from batchyard.emulator import job_queues, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.paging import page, size_of_page
from batchyard.emulator.state import ENVIRONMENT, JOB, STOP, Document, EndpointState

_MOST_DESCRIBED = 100
_FILTERS = (
    "JOB_NAME",
    "JOB_DEFINITION",
    "BEFORE_CREATED_AT",
    "AFTER_CREATED_AT",
    "SHARE_IDENTIFIER",
)


def describe(yard: EndpointState, request: Document) -> Document:
    ids = request["jobs"]
    if not ids:
        raise InvalidRequestError("jobs must not be empty")
    if len(ids) > _MOST_DESCRIBED:
        raise InvalidRequestError(f"Maximum number of jobs supported is  {_MOST_DESCRIBED} .")
    yard.loop.record({names.split_child(job_id)[0] for job_id in ids})
    details = (_detail(yard, job_id) for job_id in dict.fromkeys(ids))
    return {"jobs": [detail for detail in details if detail is not None]}


def list_jobs(yard: EndpointState, request: Document) -> Document:
    given = [
        member for member in ("jobQueue", "arrayJobId", "multiNodeJobId") if request.get(member)
    ]
    if len(given) != 1:
        raise InvalidRequestError(
            "exactly one of jobQueue, arrayJobId and multiNodeJobId must be provided"
        )
    if given == ["multiNodeJobId"]:
        return {"jobSummaryList": []}
    filters = request.get("filters", [])
    if len(filters) > 1:
        raise InvalidRequestError("filters must have at most one entry")
    most = size_of_page(request, 100 if filters else 1000)
    if given == ["arrayJobId"]:
        found = _children(yard, request)
    else:
        found = _in_queue(yard, request)
    some, token = page(found, most, request.get("nextToken"))
    yard.loop.record({job_id for job_id, _ in some})
    summaries = [_summary(yard, job_id, index) for job_id, index in some]
    return {"jobSummaryList": summaries, **({"nextToken": token} if token else {})}


# -- details ----------------------------------------------------------------------------------------------------


def _detail(yard: EndpointState, job_id: str) -> Document | None:
    parent, index = names.split_child(job_id)
    document = yard.get(JOB, parent)
    if document is None:
        return None
    size = document.get("arrayProperties", {}).get("size")
    if index is not None and (size is None or index not in range(size)):
        return None
    detail = {key: value for key, value in document.items() if not key.startswith("_")}
    detail["container"] = dict(document["container"])
    stops = yard.get(STOP, parent) or {}
    key = "" if index is None else str(index)
    detail["isCancelled"] = bool({"", key} & set(stops.get("cancel", {})))
    detail["isTerminated"] = bool({"", key} & set(stops.get("terminate", {})))
    if size is not None and index is None:
        return detail | _of_parent(yard, parent, size)
    if index is not None:
        detail["jobId"], detail["jobArn"] = job_id, f"{document['jobArn']}:{index}"
        detail["arrayProperties"] = {"index": index, "size": size}
        detail["tags"] = {}
    detail |= _now(yard, document, index or 0)
    detail["container"] |= detail.pop("_container")
    return detail


def _of_parent(yard: EndpointState, job_id: str, size: int) -> Document:
    row, summary = yard.loop.row(job_id), yard.scheduler.summary(job_id)
    counts = {state.value: count for state, count in zip(JobState, summary.counts, strict=True)}
    found: Document = {
        "status": summary.state.value,
        "arrayProperties": {
            "size": size,
            "statusSummary": counts,
            "statusSummaryLastUpdatedAt": yard.now_ms(),
        },
        "attempts": [],
    }
    if row.status_reason:
        found["statusReason"] = row.status_reason
    if summary.state.is_terminal and row.ended_ms is not None:
        found["stoppedAt"] = row.ended_ms
    return found


def _now(yard: EndpointState, document: Document, child: int) -> Document:
    """What one job or child has come to: status, times, attempts; `_container` belongs into its container."""
    job_id = document["jobId"]
    row = yard.loop.row(job_id)
    state = yard.scheduler.child_state(job_id, child)
    rows = list(yard.store.attempts(row.number, child=child))
    started = [one for one in rows if one.attempt]
    found: Document = {
        "status": state.value,
        "attempts": [_attempt(yard, document, one) for one in started],
    }
    container: Document = {"networkInterfaces": []}
    running = yard.loop.running(job_id, child)
    if state.is_terminal:
        # Not always the last one: a child that is ended between two attempts has a row 0 that says so.
        last = next((one for one in rows if one.state is not None), None)
        reason = row.rest_reason if last is None else last.status_reason
        found["stoppedAt"] = row.ended_ms if last is None else last.ended_ms
        if last is not None and last.started_ms is not None:
            found["startedAt"] = last.started_ms
        if started and last is not None and last.attempt:
            container |= found["attempts"][-1]["container"]
        if found["stoppedAt"] is None:
            found["stoppedAt"] = yard.now_ms()
    else:
        reason = _blocked_reason(yard, document, child) if state is JobState.RUNNABLE else None
        if running is not None:
            container |= _whereabouts(
                yard, document, row.number, child, running.attempt, running.place
            )
            if running.started_ms is not None and state is JobState.RUNNING:
                found["startedAt"] = running.started_ms
            else:
                container.pop("logStreamName")
    if reason:
        found["statusReason"] = reason
    found["_container"] = container
    return found


def _attempt(yard: EndpointState, document: Document, row: AttemptRow) -> Document:
    container = _whereabouts(yard, document, row.job, row.child, row.attempt, row.place)
    if row.exit_code is not None:
        container["exitCode"] = row.exit_code
    if row.reason:
        container["reason"] = row.reason[:255]
    if row.started_ms is None:
        del container["logStreamName"]
    found: Document = {
        "container": {**container, "networkInterfaces": []},
        "stoppedAt": row.ended_ms,
    }
    found["statusReason"] = row.status_reason
    if row.started_ms is not None:
        found["startedAt"] = row.started_ms
    return found


def _whereabouts(
    yard: EndpointState, document: Document, number: int, child: int, attempt: int, place: str
) -> Document:
    """The ECS task that an attempt pretends to be, and where it logs."""
    task = names.task_id(names.AttemptKey(number, child, attempt), yard.salt)
    environment = yard.get(ENVIRONMENT, place)
    cluster = names.bare(environment["ecsClusterArn"]) if environment else f"AWSBatch-{place}"
    options = document["container"].get("logConfiguration", {}).get("options", {})
    return {
        "taskArn": names.task_arn(yard.region, cluster, task),
        "containerInstanceArn": names.container_instance_arn(yard.region, cluster, task),
        "logStreamName": names.log_stream(
            document["_definition"], task, options.get("awslogs-stream-prefix")
        ),
    }


def _blocked_reason(yard: EndpointState, document: Document, child: int) -> str | None:
    """Only the head of a queue says why it is stuck (facts, 9.1)."""
    queue = job_queues.find(yard, document["jobQueue"])
    head = yard.scheduler.blocked_head(queue["jobQueueName"]) if queue else None
    return head[2] if head is not None and head[:2] == (document["jobId"], child) else None


# -- lists ------------------------------------------------------------------------------------------------------


def _children(yard: EndpointState, request: Document) -> list[tuple[str, int | None]]:
    if request.get("filters"):
        raise InvalidRequestError("filters are not for the children of an array job")
    job_id = request["arrayJobId"]
    document = yard.get(JOB, job_id)
    if document is None or "arrayProperties" not in document:
        return []
    wanted = JobState(request.get("jobStatus", JobState.RUNNING))
    size = document["arrayProperties"]["size"]
    return [
        (job_id, index)
        for index in range(size)
        if yard.scheduler.child_state(job_id, index) is wanted
    ]


def _in_queue(yard: EndpointState, request: Document) -> list[tuple[str, int | None]]:
    arn = job_queues.existing(yard, request["jobQueue"])["jobQueueArn"]
    found: Iterable[Document] = [job for job in reversed(yard.all(JOB)) if job["jobQueue"] == arn]
    filter = next(iter(request.get("filters", [])), None)
    if filter is not None:
        _check_filter(filter)
        found = [job for job in found if _passes(job, filter)]
    if filter is None or (filter["name"] == "SHARE_IDENTIFIER" and "jobStatus" in request):
        wanted = JobState(request.get("jobStatus", JobState.RUNNING))
        found = [job for job in found if yard.scheduler.summary(job["jobId"]).state is wanted]
    return [(job["jobId"], None) for job in found]


def _check_filter(filter: Document) -> None:
    name, values = filter.get("name"), filter.get("values", [])
    if name not in _FILTERS:
        raise InvalidRequestError(
            f"filters: name must be one of {', '.join(_FILTERS)}; got {name!r}"
        )
    if not values:
        raise InvalidRequestError("filters: values must not be empty")


def _passes(job: Document, filter: Document) -> bool:
    return any(_matches(job, filter["name"], value) for value in filter["values"])


def _matches(job: Document, name: str, value: str) -> bool:
    if name == "JOB_NAME":
        return _is_like(job["jobName"].lower(), value.lower())
    if name == "SHARE_IDENTIFIER":
        return bool(job.get("shareIdentifier") == value)
    if name == "JOB_DEFINITION":
        # A name stands for all its revisions; an ARN for the one.
        definition: str = job["jobDefinition"]
        return (
            definition == value if value.startswith("arn:") else _is_like(job["_definition"], value)
        )
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise InvalidRequestError(f"filters: {name} must be a time in milliseconds; got {value!r}")
    created: int = job["createdAt"]
    return created < int(value) if name == "BEFORE_CREATED_AT" else created > int(value)


def _is_like(text: str, pattern: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


def _summary(yard: EndpointState, job_id: str, index: int | None) -> Document:
    child = job_id if index is None else f"{job_id}:{index}"
    detail = _detail(yard, child)
    assert detail is not None
    members = (
        "jobArn",
        "jobId",
        "jobName",
        "createdAt",
        "status",
        "statusReason",
        "startedAt",
        "stoppedAt",
    )
    found = {member: detail[member] for member in members if member in detail}
    found["jobDefinition"] = detail["jobDefinition"]
    if "shareIdentifier" in detail:
        found["shareIdentifier"] = detail["shareIdentifier"]
    array = detail.get("arrayProperties")
    if array is None or index is not None:
        container = {
            key: detail["container"][key]
            for key in ("exitCode", "reason")
            if key in detail["container"]
        }
        found["container"] = container
    if array is not None:
        found["arrayProperties"] = (
            {"index": index} if index is not None else {"size": array["size"]}
        )
    return found
