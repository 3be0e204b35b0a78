"""The log streams of jobs: each attempt of each child has one (facts, 1.1).

Streams are not stored. They follow from the documents of jobs, the rows of ended attempts and the
running attempts.
"""

from __future__ import annotations

from collections.abc import Iterator

from batchyard.embedded.runner import Task
from batchyard.embedded.store import AttemptRow
from batchyard.emulator import names
from batchyard.emulator.log_events import AttemptOutput, Stream
from batchyard.emulator.log_groups import log_group_of
from batchyard.emulator.names import AttemptKey
from batchyard.emulator.state import JOB, Document, EndpointState


def list_streams(state: EndpointState, group: str, since_ms: int = 0) -> Iterator[Stream]:
    """Yield the streams of a group. Streams that ended before ``since_ms`` may be left out."""
    jobs = [job for job in state.documents(JOB) if log_group_of(job) == group]
    state.loop.record({job["jobId"] for job in jobs})
    running_tasks = _running_tasks(state)
    for job in jobs:
        row = state.loop.row(job["jobId"])
        if row.ended_ms is None or row.ended_ms >= since_ms:
            yield from _ended_streams(state, job, row.number, since_ms)
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


def _ended_streams(
    state: EndpointState, job: Document, number: int, since_ms: int
) -> Iterator[Stream]:
    file_names = state.log_files.file_names(job["jobId"])
    for row in state.store.attempts(number, started_only=True):
        if row.started_ms is not None and row.ended_ms >= since_ms:
            has_file = f"{row.child}-{row.attempt}.log" in file_names
            yield _ended_stream(state, job, row, may_have_file=has_file)


def find_stream(state: EndpointState, group: str, name: str) -> Stream | None:
    """Return the stream of this name. The task id in the name leads to its attempt."""
    key = names.parse_task_id(name.rpartition("/")[2], state.salt)
    job = None if key is None else state.job_with_number(key.job_number)
    if key is None or job is None or log_group_of(job) != group:
        return None
    stream = _find_attempt_stream(state, job, key)
    return stream if stream is not None and stream.name == name else None


def _find_attempt_stream(state: EndpointState, job: Document, key: AttemptKey) -> Stream | None:
    state.loop.record([job["jobId"]])
    for row in state.store.attempts(key.job_number, child=key.child):
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
    )
    return Stream(key, stream_name(state, job, key), output)


def _running_stream(state: EndpointState, job: Document, number: int, task: Task) -> Stream:
    assert task.started_ms is not None
    key = AttemptKey(number, task.child, task.attempt)
    path = state.log_files.path(job["jobId"], task.child, task.attempt)
    return Stream(key, stream_name(state, job, key), AttemptOutput(path, task.started_ms))


def stream_name(state: EndpointState, job: Document, key: AttemptKey) -> str:
    options = job["container"].get("logConfiguration", {}).get("options", {})
    task = names.task_id(key, state.salt)
    return names.log_stream_name(job["_definition"], task, options.get("awslogs-stream-prefix"))
