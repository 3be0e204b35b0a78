"""DescribeJobs (facts, 1.2): the document of a job, with its status, times and attempts."""

from __future__ import annotations

from batchyard.batch.jobs import JobState
from batchyard.batch.limits import MAX_CONTAINER_REASON_CHARS, MAX_DESCRIBED_JOBS
from batchyard.embedded.store import AttemptRow
from batchyard.emulator import aws_shapes, hosts, job_cancellation, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.log_streams import stream_name
from batchyard.emulator.state import ENVIRONMENT, JOB, QUEUE, Document, EndpointState

#: Descriptions of ended children that are remembered: clients ask for the same ones repeatedly.
_MAX_REMEMBERED_ENDS = 1000


def describe(state: EndpointState, request: Document) -> Document:
    job_ids = request["jobs"]
    if not job_ids:
        raise InvalidRequestError("jobs must not be empty")
    if len(job_ids) > MAX_DESCRIBED_JOBS:
        # AWS's message has these spaces.
        raise InvalidRequestError(f"Maximum number of jobs supported is  {MAX_DESCRIBED_JOBS} .")
    details = (job_detail(state, job_id) for job_id in dict.fromkeys(job_ids))
    newest_ms = state.newest_visible_ms(state.faults.settings.describe_lag)
    return {
        "jobs": [
            detail for detail in details if detail is not None and detail["createdAt"] <= newest_ms
        ]
    }


def job_detail(state: EndpointState, job_id: str) -> Document | None:
    """Return the JobDetail of a job or child, or None if there is no such job or child."""
    detail = container_detail(state, job_id)
    document = state.get(JOB, names.split_child_id(job_id)[0])
    if detail is None or document is None or "_task" not in document:
        return detail
    return aws_shapes.describe_as_task(detail, document["_task"])


def container_detail(state: EndpointState, job_id: str) -> Document | None:
    """Return what ``job_detail`` returns, with `container` also for a job of ecsProperties."""
    parent, index = names.split_child_id(job_id)
    document = state.get(JOB, parent)
    if document is None:
        return None
    size = document.get("arrayProperties", {}).get("size")
    if index is not None and (size is None or index not in range(size)):
        return None
    detail = {key: value for key, value in document.items() if not key.startswith("_")}
    detail["isCancelled"], detail["isTerminated"] = job_cancellation.stop_verbs(
        state, parent, index
    )
    if size is not None and index is None:
        return detail | _array_status(state, parent, size)
    if index is not None:
        detail["jobId"], detail["jobArn"] = job_id, f"{document['jobArn']}:{index}"
        detail["arrayProperties"] = {"statusSummary": {}, "index": index}
        detail["tags"] = {}
    return detail | _child_status(state, document, index or 0)


def _array_status(state: EndpointState, job_id: str, size: int) -> Document:
    """Return the changing members of an array job."""
    row, summary = state.read_row(job_id), state.scheduler.summary(job_id)
    counts = {status.value: count for status, count in zip(JobState, summary.counts, strict=True)}
    members: Document = {
        "status": summary.state.value,
        "arrayProperties": {
            "size": size,
            "statusSummary": counts,
            "statusSummaryLastUpdatedAt": state.now_ms(),
        },
        "attempts": [],
    }
    if row.status_reason:
        members["statusReason"] = row.status_reason
    if summary.state.is_terminal and row.ended_ms is not None:
        members["stoppedAt"] = row.ended_ms
    return members


def _child_status(state: EndpointState, document: Document, child: int) -> Document:
    """Return the changing members of a child, or of a job without children."""
    key = (document["jobId"], child)
    described, members = state.ended_members.get(key, (None, {}))
    if described is document:  # TagResource, for one, makes a new document.
        return members
    job_state = state.scheduler.child_state(document["jobId"], child)
    rows = list(state.read_attempts(document["jobId"], child))
    attempts = [_describe_attempt(state, document, row) for row in rows if row.attempt]
    if job_state.is_terminal:
        changes = _ended_members(state, document, rows, attempts)
    else:
        changes = _unfinished_members(state, document, child, job_state)
    container = document["container"] | {"networkInterfaces": []} | changes.pop("container", {})
    members = {"status": job_state.value, "attempts": attempts, **changes, "container": container}
    if any(row.state is not None for row in rows):
        if len(state.ended_members) >= _MAX_REMEMBERED_ENDS:
            state.ended_members.clear()
        state.ended_members[key] = document, members
    return members


def _ended_members(
    state: EndpointState, document: Document, rows: list[AttemptRow], attempts: list[Document]
) -> Document:
    job_row = state.loop.row(document["jobId"])
    # The final row is not always the last one: a child that is stopped between two attempts has a
    # final row with attempt 0.
    final = next((row for row in rows if row.state is not None), None)
    if final is None:
        ended_ms = job_row.ended_ms
        reason = job_row.rest_reason
        members: Document = {}
    else:
        ended_ms = final.ended_ms
        reason = final.status_reason
        members = {} if final.started_ms is None else {"startedAt": final.started_ms}
        if final.attempt and attempts:
            members["container"] = attempts[-1]["container"]
    members["stoppedAt"] = state.now_ms() if ended_ms is None else ended_ms
    return members | ({"statusReason": reason} if reason else {})


def _unfinished_members(
    state: EndpointState, document: Document, child: int, job_state: JobState
) -> Document:
    members: Document = {}
    task = state.loop.find_running_task(document["jobId"], child)
    if task is not None:
        key = names.AttemptKey(task.job_number, child, task.attempt)
        is_running = task.started_ms is not None and job_state is JobState.RUNNING
        members["container"] = _describe_task(
            state, document, key, (task.compute_environment, task.host_id), has_log=is_running
        )
        if is_running:
            members["startedAt"] = task.started_ms
    if job_state is JobState.RUNNABLE:
        reason = _blocked_reason(state, document, child)
        members |= {"statusReason": reason} if reason else {}
    return members


def _describe_attempt(state: EndpointState, document: Document, row: AttemptRow) -> Document:
    key = names.AttemptKey(row.job, row.child, row.attempt)
    container = _describe_task(
        state,
        document,
        key,
        (row.compute_environment, row.host_id),
        has_log=row.started_ms is not None,
    )
    if row.exit_code is not None:
        container["exitCode"] = row.exit_code
    if row.reason:
        container["reason"] = row.reason[:MAX_CONTAINER_REASON_CHARS]
    attempt: Document = {
        "container": {**container, "networkInterfaces": []},
        "stoppedAt": row.ended_ms,
        "statusReason": row.status_reason,
    }
    if row.started_ms is not None:
        attempt["startedAt"] = row.started_ms
    return attempt


def _describe_task(
    state: EndpointState,
    document: Document,
    key: names.AttemptKey,
    place: tuple[str, str],
    *,
    has_log: bool,
) -> Document:
    """Return the emulated ECS task of an attempt and, if it has started, its log stream.

    ``place``: the name of its compute environment, and the id of its instance, if any.
    """
    environment_name, host_id = place
    task = names.task_id(key, state.salt)
    # An environment that was deleted since has no document: its cluster had this name.
    deleted = {"type": "MANAGED", "ecsClusterArn": f"AWSBatch-{environment_name}"}
    environment = state.get(ENVIRONMENT, environment_name) or deleted
    cluster = names.strip_arn(environment["ecsClusterArn"])
    members = {"taskArn": names.task_arn(state.region, cluster, task)}
    container_instance = hosts.container_instance_arn(state, environment, host_id)
    if container_instance:
        members["containerInstanceArn"] = container_instance
    if has_log:
        members["logStreamName"] = stream_name(state, document, key)
    return members


def _blocked_reason(state: EndpointState, document: Document, child: int) -> str | None:
    """Return why the child at the head of its queue cannot start.

    AWS gives no reason for any other child (facts, 9.1).
    """
    queue = state.get(QUEUE, document["jobQueue"])
    head = None if queue is None else state.scheduler.blocked_head(queue["jobQueueArn"])
    return head[2] if head is not None and head[:2] == (document["jobId"], child) else None
