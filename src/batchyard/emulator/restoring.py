"""The start of an endpoint on the files of an earlier one: resources, jobs and their attempts."""

from __future__ import annotations

from batchyard.batch.jobs import JobState
from batchyard.batch.queues import Queue
from batchyard.embedded.store import JobRow
from batchyard.emulator import (
    compute_environments,
    consumable_resources,
    job_cancellation,
    job_queues,
    job_submission,
)
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import (
    CONSUMABLE,
    ENVIRONMENT,
    JOB,
    QUEUE,
    STOP_REQUESTS,
    Document,
    EndpointState,
)


def restore(regions: Regions) -> None:
    """Load all documents, and bring a new scheduler and loop to where the earlier ones stopped."""
    regions.load()
    for state in regions.states():
        _restore_region(state)


def _restore_region(state: EndpointState) -> None:
    for document in state.documents(ENVIRONMENT):
        state.scheduler.set_environment(compute_environments.to_environment(state, document))
    for document in state.documents(CONSUMABLE):
        consumable_resources.add_to_scheduler(state, document)
    rows = [row for row in state.store.jobs() if state.get(JOB, row.id) is not None]
    deleted_queues = _open_all_queues(state, rows)
    _submit_all(state, rows)
    for row in rows:
        _restore_attempts(state, row)
    for row in reversed(rows):
        if row.rest_reason is not None:
            state.loop.perform(state.scheduler.terminate(row.id, row.rest_reason))
    for job_id, stop_requests in state.items(STOP_REQUESTS):
        job_cancellation.repeat_requests(state, job_id, stop_requests)
    for arn in deleted_queues:
        state.loop.perform(state.scheduler.delete_queue(arn))
    for document in state.documents(QUEUE):
        state.scheduler.set_queue(job_queues.to_queue(state, document))


def _open_all_queues(state: EndpointState, rows: list[JobRow]) -> list[str]:
    """Enable all queues, as they were when their jobs were submitted.

    Returns the ARNs of queues that have jobs and were deleted since.
    """
    for document in state.documents(QUEUE):
        state.scheduler.set_queue(job_queues.to_queue(state, {**document, "state": "ENABLED"}))
    used_arns = {_job_document(state, row)["jobQueue"] for row in rows}
    deleted_arns = sorted(arn for arn in used_arns if state.get(QUEUE, arn) is None)
    for arn in deleted_arns:
        state.scheduler.set_queue(Queue(arn, ()))
    return deleted_arns


def _submit_all(state: EndpointState, rows: list[JobRow]) -> None:
    for row in rows:
        document = _job_document(state, row)
        job = job_submission.to_job(document)
        changes = state.scheduler.submit(job)
        state.add_job(job, document, row)
        state.loop.perform(changes)


def _restore_attempts(state: EndpointState, row: JobRow) -> None:
    changes = []
    for attempt in state.store.attempts(row.number):
        child_state = None if attempt.state is None else JobState(attempt.state)
        changes += state.scheduler.restore(
            row.id, attempt.child, attempt.attempt, child_state, attempt.status_reason
        )
    state.loop.perform(changes)


def _job_document(state: EndpointState, row: JobRow) -> Document:
    document = state.get(JOB, row.id)
    assert document is not None, "a job and its document are saved in one transaction"
    return document
