"""The endpoint itself: the embedded engine and what is known, put together; what the HTTP side may ask of it.

Requests come in on many threads. Each takes the loop's lock for as long as it needs (``Loop.call``), so that everything
below is written as if there were one thread.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from botocore import xform_name  # type: ignore[import-untyped]

from batchyard.batch.jobs import JobState
from batchyard.batch.queues import Queue
from batchyard.embedded.loop import LoopIsOver
from batchyard.embedded.runner import Task
from batchyard.embedded.store import JobRow
from batchyard.emulator import (
    api_models,
    compute_environments,
    consumable_resources,
    ecs_clusters,
    instance_metadata,
    job_queues,
    job_submission,
    names,
    operations,
)
from batchyard.emulator.api_errors import ApiError, InvalidRequestError, ServerError
from batchyard.emulator.log_streams import LogStreams
from batchyard.emulator.state import (
    CONSUMABLE,
    ENVIRONMENT,
    JOB,
    QUEUE,
    STOP,
    Document,
    EndpointState,
)
from batchyard.errors import BatchyardError
from batchyard.folder import RunFolder

T = TypeVar("T")

_MOST_NOTICE_S = 3600.0
#: where a compute environment does not say what its hosts are: Fargate, and this machine as an UNMANAGED one
_UNKNOWN_TYPE = "m6i.large"


class _Notice(NamedTuple):
    #: when, on the clock and on the monotonic one
    at: float
    due: float
    job_id: str
    task: Task


class Endpoint:
    def __init__(
        self, yard: EndpointState, folder: RunFolder, metadata_path: str, aws: dict[str, str]
    ) -> None:
        """``metadata_path``: the address's path under which each task's metadata service is."""
        self._yard = yard
        self.region = yard.region
        self.metadata_path = metadata_path
        self._aws = aws
        self._logs = LogStreams(yard, folder)
        self._token_key = secrets.token_bytes(16)
        #: task id -> that its host is taken away
        self._notices: dict[str, _Notice] = {}
        self._monotonic = time.monotonic

    # -- asked by the HTTP side -------------------------------------------------------------------------------

    def batch(self, operation: str, request: dict[str, Any]) -> Document:
        """An operation of AWS Batch. Raises ApiError."""
        return self._called(lambda: operations.perform(self._yard, operation, request))

    def logs(self, operation: str, request: dict[str, Any]) -> Document:
        """GetLogEvents, FilterLogEvents or DescribeLogStreams, of a group that it owns. Raises ApiError."""
        known = _checked("logs", operation, request)
        act: Callable[[Document], Document] = getattr(self._logs, xform_name(operation))
        return self._called(lambda: act(known))

    def owns_logs(self, group: str) -> bool:
        return self._called(lambda: self._logs.owns(group))

    def log_groups(self, request: dict[str, Any]) -> list[Document]:
        """Those of jobs with the prefix that DescribeLogGroups asks for."""
        known = _checked("logs", "DescribeLogGroups", request)
        return self._called(lambda: self._logs.groups(known.get("logGroupNamePrefix", "")))

    def ecs(self, operation: str, request: dict[str, Any]) -> Document | None:
        """One of ``ecs_clusters.OPERATIONS``; None where it is about a cluster of others. Raises ApiError."""
        known = _checked("ecs", operation, request)
        return self._called(lambda: ecs_clusters.answer(self._yard, operation, known))

    def metadata(
        self, task: str, method: str, path: str, headers: dict[str, str]
    ) -> instance_metadata.Answer:
        notice = self._notices.get(task)
        host = instance_metadata.Host(
            instance_id=names.instance_id(task),
            instance_type=self._instance_type(task)
            if instance_metadata.tells_type(path)
            else _UNKNOWN_TYPE,
            region=self.region,
            zone=f"{self.region}a",
            token_key=self._token_key + task.encode(),
            notice=None if notice is None else notice.at,
            credentials=instance_metadata.Credentials(
                "batchyard-instance-role",
                self._aws["AWS_ACCESS_KEY_ID"],
                self._aws["AWS_SECRET_ACCESS_KEY"],
                "batchyard",
            ),
        )
        return instance_metadata.answer(host, method, path, headers, self._yard.clock())

    def _instance_type(self, task: str) -> str:
        """Of the host that an attempt under way pretends to be on."""
        try:
            return self._called(lambda: self._landed_on(task)) or _UNKNOWN_TYPE
        except ServerError:
            return _UNKNOWN_TYPE  # whoever asks while the endpoint goes down is about to end too

    def _landed_on(self, task: str) -> str | None:
        key = names.attempt_of(task, self._yard.salt)
        job = None if key is None else self._logs.job(key.job_number)
        attempt = (
            None if key is None or job is None else self._yard.loop.running(job["jobId"], key.child)
        )
        environment = None if attempt is None else self._yard.get(ENVIRONMENT, attempt.place)
        if attempt is None or environment is None:
            return None
        return compute_environments.smallest_type(self._yard, environment, attempt.resources)

    def reclaim(self, job_id: str, notice_s: float) -> Document:
        """Announces that the host of a running child is taken away, and takes it when the time has come."""
        if not 0 <= notice_s <= _MOST_NOTICE_S:
            raise InvalidRequestError(f"notice must be between 0 and {_MOST_NOTICE_S:.0f} seconds")
        return self._called(lambda: self._reclaim(job_id, notice_s))

    def _called(self, action: Callable[[], T]) -> T:
        try:
            return self._yard.loop.call(action)
        except LoopIsOver:
            raise ServerError("the endpoint is going down") from None
        except BatchyardError as exc:
            raise ServerError(exc.message) from exc

    # -- reclaims ---------------------------------------------------------------------------------------------

    def _reclaim(self, job_id: str, notice_s: float) -> Document:
        parent, index = names.split_child(job_id)
        document = self._yard.get(JOB, parent)
        size = document.get("arrayProperties", {}).get("size", 0) if document else 0
        if document is None or (index is not None and index not in range(size)):
            raise InvalidRequestError(f"no job has the id {job_id}")
        if index is None and "arrayProperties" in document:
            raise InvalidRequestError(
                f"{job_id} is an array: name one of its children, as in {job_id}:0"
            )
        task = self._yard.loop.running(parent, index or 0)
        if task is None:
            raise InvalidRequestError(
                f"{job_id} is not running, so it has no host to be taken away"
            )
        key = names.task_id(
            names.AttemptKey(task.job_number, task.child, task.attempt), self._yard.salt
        )
        at, due = self._yard.clock() + notice_s, self._monotonic() + notice_s
        self._notices[key] = _Notice(at, due, parent, task)
        self.take_hosts()
        return {"jobId": job_id, "instanceId": names.instance_id(key), "notice": notice_s}

    def take_hosts(self) -> None:
        """Takes away those whose time has come; called ten times a second, with the lock held."""
        if not self._notices:
            return
        now = self._monotonic()
        for key in [key for key, notice in self._notices.items() if notice.due <= now]:
            notice = self._notices.pop(key)
            task = notice.task
            # It may have ended by itself in the meantime.
            if self._yard.loop.running(notice.job_id, task.child) is task:
                reason = f"Host EC2 (instance {names.instance_id(key)}) terminated."
                self._yard.loop.lose(notice.job_id, task.child, reason)


def _checked(service: str, operation: str, request: dict[str, Any]) -> Document:
    """The request to CloudWatch Logs or ECS, if it has the right shape."""
    shape = api_models.service_model(service).operation_model(operation).input_shape
    try:
        api_models.check_shape(shape, request)
    except InvalidRequestError as exc:
        raise ApiError("InvalidParameterException", exc.message) from None
    known: Document = api_models.drop_unknown_members(shape, request)
    return known


# -- what an earlier process left -------------------------------------------------------------------------------


def restore(yard: EndpointState) -> None:
    """Puts everything back as it was: resources, jobs, what they have come to, what was asked of them."""
    yard.load()
    for document in yard.all(ENVIRONMENT):
        yard.scheduler.set_environment(compute_environments.core(yard, document))
    for document in yard.all(CONSUMABLE):
        consumable_resources.enter(yard, document)
    rows = yard.store.jobs()
    gone = _open_all_queues(yard, rows)
    for row in rows:
        document = _document(yard, row)
        job = job_submission.core(document)
        changes = yard.scheduler.submit(job)
        yard.enter(job, document, row)
        yard.loop.perform(changes)
    for row in rows:
        changes = []
        for attempt in yard.store.attempts(row.number):
            state = None if attempt.state is None else JobState(attempt.state)
            changes += yard.scheduler.restore(
                row.id, attempt.child, attempt.attempt, state, attempt.status_reason
            )
        yard.loop.perform(changes)
    for row in reversed(rows):
        if row.rest_reason is not None:
            yard.loop.perform(yard.scheduler.terminate(row.id, row.rest_reason))
    for job_id, wanted in yard.items(STOP):
        job_submission.stop_again(yard, job_id, wanted)
    for name in gone:
        yard.loop.perform(yard.scheduler.delete_queue(name))
    for document in yard.all(QUEUE):
        yard.scheduler.set_queue(job_queues.core(yard, document))


def _open_all_queues(yard: EndpointState, rows: list[JobRow]) -> list[str]:
    """Queues as they were when they took their jobs: enabled. Returns the names of those that are there no more."""
    for document in yard.all(QUEUE):
        yard.scheduler.set_queue(job_queues.core(yard, {**document, "state": "ENABLED"}))
    used = {names.bare(_document(yard, row)["jobQueue"]) for row in rows}
    gone = sorted(name for name in used if yard.get(QUEUE, name) is None)
    for name in gone:
        yard.scheduler.set_queue(Queue(name, ()))
    return gone


def _document(yard: EndpointState, row: JobRow) -> Document:
    document = yard.get(JOB, row.id)
    assert document is not None, "a job and its document are saved in one transaction"
    return document
