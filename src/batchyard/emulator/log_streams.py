"""The log streams of jobs: each attempt of each child has one (facts, 1.1).

Streams are not stored. They follow from the documents of jobs, the rows of ended attempts and the
running attempts.
"""

from __future__ import annotations

from collections.abc import Iterator

from batchyard.embedded.runner import Task
from batchyard.embedded.store import AttemptRow
from batchyard.emulator import names
from batchyard.emulator.ecs.job_members import SIBLINGS, TASK_ID
from batchyard.emulator.log_events import LATEST_MS, AttemptOutput, Stream
from batchyard.emulator.log_groups import deleted_ms, log_group_of
from batchyard.emulator.names import AttemptKey
from batchyard.emulator.state import DELETED_STREAM, JOB, Document, EndpointState


def list_streams(state: EndpointState, group: str, since_ms: int = 0) -> Iterator[Stream]:
    """Yield the streams of a group. Streams that ended before ``since_ms`` may be left out."""
    streams = _list_all_streams(state, group, since_ms)
    return (stream for stream in streams if _is_visible(state, group, stream))


def _list_all_streams(state: EndpointState, group: str, since_ms: int) -> Iterator[Stream]:
    documents = (*state.documents(JOB), *state.ecs.job_documents.values())
    jobs = [job for job in documents if log_group_of(job) == group]
    running_tasks = _running_tasks(state)
    for job in jobs:
        row = state.read_row(job["jobId"])
        if row.ended_ms is None or row.ended_ms >= since_ms:
            yield from _ended_streams(state, job, since_ms)
            for task in running_tasks.get(job["jobId"], ()):
                yield _running_stream(state, job, row.number, task)


def _running_tasks(state: EndpointState) -> dict[str, list[Task]]:
    """Return the running attempts by job id."""
    running_tasks: dict[str, list[Task]] = {}
    for job_id, child in state.scheduler.placed_children():
        task = state.loop.find_running_task(job_id, child)
        if task is not None and task.started_ms is not None:
            running_tasks.setdefault(job_id, []).append(task)
    return running_tasks


def _ended_streams(state: EndpointState, job: Document, since_ms: int) -> Iterator[Stream]:
    file_names = state.log_files.file_names(job["jobId"])
    for row in state.read_attempts(job["jobId"], started_only=True):
        if row.started_ms is not None and row.ended_ms >= since_ms:
            has_file = f"{row.child}-{row.attempt}.log" in file_names
            yield _ended_stream(state, job, row, may_have_file=has_file)


def find_stream(state: EndpointState, group: str, name: str) -> Stream | None:
    """Return the stream of this name. The task id in the name leads to its attempt."""
    key = names.parse_task_id(name.rpartition("/")[2], state.salt)
    job = None if key is None else state.job_with_number(key.job_number)
    if key is not None and job is not None and SIBLINGS in job:
        # The task id of ECS names the first container, the stream names the right one.
        container = name.rpartition("/")[0].rpartition("/")[2]
        key = key._replace(job_number=job[SIBLINGS].get(container, key.job_number))
        job = state.job_with_number(key.job_number)
    if key is None or job is None or log_group_of(job) != group:
        return None
    stream = _find_attempt_stream(state, job, key)
    if stream is None or stream.name != name or not _is_visible(state, group, stream):
        return None
    return stream


def _is_visible(state: EndpointState, group: str, stream: Stream) -> bool:
    """Return whether a stream has appeared and was not deleted."""
    newest_ms = state.newest_visible_ms(state.faults.settings.log_lag)
    if not deleted_ms(state, group) < stream.output.started_ms <= newest_ms:
        return False
    return state.get(DELETED_STREAM, f"{group}:{stream.name}") is None


def delete_stream(state: EndpointState, group: str, name: str) -> bool:
    """Delete the stream of a job; return whether there was one."""
    if find_stream(state, group, name) is None:
        return False
    state.put(DELETED_STREAM, f"{group}:{name}", {})
    state.save()
    return True


def _find_attempt_stream(state: EndpointState, job: Document, key: AttemptKey) -> Stream | None:
    for row in state.read_attempts(job["jobId"], key.child):
        if row.attempt == key.attempt and row.started_ms is not None:
            return _ended_stream(state, job, row, may_have_file=True)
    task = state.loop.find_running_task(job["jobId"], key.child)
    if task is None or task.attempt != key.attempt or task.started_ms is None:
        return None
    return _running_stream(state, job, key.job_number, task)


def _ended_stream(
    state: EndpointState, job: Document, row: AttemptRow, *, may_have_file: bool
) -> Stream:
    assert row.started_ms is not None
    key = AttemptKey(row.job, row.child, row.attempt)
    path = state.log_files.path(job["jobId"], row.child, row.attempt) if may_have_file else None
    output = AttemptOutput(
        path,
        row.started_ms,
        ended_ms=max(row.started_ms, row.ended_ms),
        short_offset=row.log_offset or 0,
        short_length=0 if row.log_offset is None else row.log_length or 0,
        drop_share=_drop_share(state, job),
        newest_ms=_newest_event_ms(state),
    )
    return Stream(key, stream_name(state, job, key), output)


def _running_stream(state: EndpointState, job: Document, number: int, task: Task) -> Stream:
    assert task.started_ms is not None
    key = AttemptKey(number, task.child, task.attempt)
    path = state.log_files.path(job["jobId"], task.child, task.attempt)
    output = AttemptOutput(
        path,
        task.started_ms,
        drop_share=_drop_share(state, job),
        newest_ms=_newest_event_ms(state),
    )
    return Stream(key, stream_name(state, job, key), output)


def _drop_share(state: EndpointState, job: Document) -> float:
    """Return the share of the job's lines that the faults of the endpoint drop.

    The mode `non-blocking`, which is the default of ECS, drops lines when its buffer is full.
    """
    options = job["container"].get("logConfiguration", {}).get("options", {})
    is_blocking = options.get("mode", "non-blocking") == "blocking"
    return 0.0 if is_blocking else state.faults.settings.drop_logs


def _newest_event_ms(state: EndpointState) -> int:
    """Return the time of the newest event that CloudWatch Logs shows."""
    return min(state.newest_visible_ms(state.faults.settings.event_lag), LATEST_MS)


def stream_name(state: EndpointState, job: Document, key: AttemptKey) -> str:
    options = job["container"].get("logConfiguration", {}).get("options", {})
    task = job[TASK_ID] if TASK_ID in job else names.task_id(key, state.salt)
    prefix = options.get("awslogs-stream-prefix")
    if "_task" not in job:
        return names.log_stream_name(job["_definition"], task, prefix)
    container: str = job["_task"]["containers"][0]["name"]
    return names.log_stream_name(job["_definition"], task, prefix, container)
