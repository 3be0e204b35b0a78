"""The facts about a job, a queue, a compute environment, or several of them. Read-only; asks in the order of worth."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from batchyard.aws.ecs import Ecs
from batchyard.aws.session import AwsSession
from batchyard.doctor.checks.base import RUNNING_OR_OVER
from batchyard.doctor.facts import (
    Consumable,
    Environment,
    Facts,
    FrontJob,
    Job,
    Missing,
    Policy,
    Queue,
    Subject,
)
from batchyard.doctor.gather import environments, queue_shapes, surroundings
from batchyard.doctor.gather.asking import Asker
from batchyard.doctor.gather.batch_calls import BatchCalls
from batchyard.doctor.gather.job_shapes import bare, job_id_of, job_of, state_of
from batchyard.doctor.gather.market import PriceList

#: for a job, whatever its size
MOST_CALLS = 25
#: for a queue or an environment, about which more is worth knowing before anything is stuck
MOST_CALLS_OF_A_PLACE = 50
_MOST_CONSUMABLES = 2
_JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:[0-9]+)?")
_GONE = "it may be of another region or account, or have ended more than a week ago"
_NO_ID = "it takes the id of a job, not of a run; `batchyard status last` shows those that wait"
_NO_ENVIRONMENT = "AWS Batch has no compute environment"


class Gatherer:
    """``now_ms``: a clock; ``prices``: On-Demand prices, for bids. A gatherer is for one examination."""

    def __init__(
        self,
        session: AwsSession,
        now_ms: Callable[[], int],
        most_calls: int = MOST_CALLS,
        prices: PriceList | None = None,
    ) -> None:
        self.asker = Asker(session, most_calls)
        self._batch = BatchCalls(session)
        self._now_ms = now_ms
        self._prices = prices or PriceList()

    # -- subjects ------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Facts:
        detail = self._detail(job_id)
        now_ms = self._now_ms()
        if isinstance(detail, Missing):
            return Facts(Subject("job", job_id), now_ms, job=detail)
        subject = Subject("job", job_id, self._batch.region)
        counts = detail.get("arrayProperties", {}).get("statusSummary", {})
        status = state_of(detail["status"], counts)
        failed = self._children(job_id, "FAILED") if counts.get("FAILED") else []
        runnable = self._children(job_id, "RUNNABLE") if status == "RUNNABLE" and counts else []
        runnable = [] if isinstance(runnable, Missing) else runnable
        depends_on = [entry["jobId"] for entry in detail.get("dependsOn", ()) if entry.get("jobId")]
        if status in RUNNING_OR_OVER:
            return Facts(subject, now_ms, job=job_of(detail, self._jobs(depends_on), failed))
        queue = bare(detail["jobQueue"])
        snapshot = (
            self._snapshot(queue) if status == "RUNNABLE" else Missing("the job is not RUNNABLE")
        )
        others = {job_id: detail} | self._jobs(
            [*depends_on, *(one for one in _heads(snapshot) if one != job_id)]
        )
        job = job_of(
            detail,
            others,
            failed,
            runnable,
            self._starting_since(detail) if status == "STARTING" else None,
        )
        document = self._queue_document(queue)
        facts = Facts(
            subject,
            now_ms,
            job,
            queue=document if isinstance(document, Missing) else queue_shapes.queue_of(document),
            front=_front(snapshot, others),
            consumables=self._consumables(job),
            policy=self._policy(document, snapshot, job.share),
        )
        return self._with_environments(facts)

    def queue(self, name: str, shape: Job | None = None) -> Facts:
        document = self._queue_document(name)
        queue = document if isinstance(document, Missing) else queue_shapes.queue_of(document)
        subject = Subject("queue", bare(name), self._batch.region)
        return self._with_environments(Facts(subject, self._now_ms(), shape, queue))

    def environment(self, name: str, shape: Job | None = None) -> Facts:
        these, around = self._environments([name])
        if these == ():
            these = Missing(f"{_NO_ENVIRONMENT} {name} here")
        subject = Subject("env", bare(name), self._batch.region)
        return _with_parts(Facts(subject, self._now_ms(), shape), these, around)

    def _with_environments(self, facts: Facts) -> Facts:
        """Those of the queue."""
        if not isinstance(facts.queue, Queue):
            return replace(facts, environments=facts.queue or Missing())
        return _with_parts(facts, *self._environments(facts.queue.environments))

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _detail(self, job_id: str) -> Any | Missing:
        found = self.asker.ask("batch:DescribeJobs", lambda: self._batch.jobs([job_id]))
        if isinstance(found, Missing):
            return found
        gone = _GONE if _JOB_ID.fullmatch(job_id) else _NO_ID
        return found.get(job_id) or Missing(f"AWS Batch does not know the job {job_id}: {gone}")

    def _jobs(self, ids: Sequence[str]) -> dict[str, Any]:
        if not ids:
            return {}
        found = self.asker.ask(
            "batch:DescribeJobs", lambda: self._batch.jobs(list(dict.fromkeys(ids)))
        )
        return {} if isinstance(found, Missing) else found

    def _children(self, job_id: str, state: str) -> list[Any] | Missing:
        return self.asker.ask("batch:ListJobs", lambda: self._batch.children(job_id, state))

    def _starting_since(self, detail: Any) -> int | None:
        """When its task was made: AWS Batch itself does not say since when a job is STARTING."""
        task = detail.get("container", {}).get("taskArn", "")
        cluster = task.rpartition("/")[0].rpartition("/")[2]
        if not cluster:
            return None
        found = self.asker.find(
            "ecs:DescribeTasks", lambda: Ecs(self.asker.session).task(cluster, task), ()
        )
        made = None if isinstance(found, Missing) or not found else found.get("createdAt")
        return round(made.timestamp() * 1000) if made else None

    def _consumables(self, job: Job) -> tuple[Consumable, ...] | Missing:
        found = []
        for wanted in job.consumables[:_MOST_CONSUMABLES]:
            ask = partial(self._batch.consumable, wanted.resource)
            document = self.asker.ask("batch:DescribeConsumableResource", ask)
            if isinstance(document, Missing):
                return document
            found.append(queue_shapes.consumable_of(document))
        return tuple(found)

    # -- queues --------------------------------------------------------------------------------------------------

    def _queue_document(self, name: str) -> Any | Missing:
        found = self.asker.find("batch:DescribeJobQueues", lambda: self._batch.queue(name), ())
        return (
            Missing(f"AWS Batch has no job queue {name} here{self._near(name)}")
            if found is None
            else found
        )

    def _near(self, name: str) -> str:
        """The queue that was perhaps meant."""
        names = self.asker.ask("batch:DescribeJobQueues", self._batch.queue_names)
        near = [] if isinstance(names, Missing) else get_close_matches(bare(name), names, 1)
        return f"; did you mean {near[0]}?" if near else ""

    def _environments(
        self, names: Sequence[str]
    ) -> tuple[tuple[Environment, ...] | Missing, surroundings.OperationalError]:
        """In this order."""
        if not names:
            return (), surroundings.OperationalError()
        documents = self.asker.ask(
            "batch:DescribeComputeEnvironments", lambda: self._batch.environments(names)
        )
        if isinstance(documents, Missing):
            return documents, surroundings.OperationalError()
        by_name = {document["computeEnvironmentName"]: document for document in documents}
        in_order = [by_name[bare(name)] for name in names if bare(name) in by_name]
        now_ms = self._now_ms()
        these = environments.complete(self.asker, in_order, now_ms)
        around, up = surroundings.gathered(
            self.asker, these, self._prices, self._batch.region, now_ms
        )
        return environments.with_launch_times(these, up), around

    def _snapshot(self, queue: str) -> Any | Missing:
        return self.asker.ask("batch:GetJobQueueSnapshot", lambda: self._batch.snapshot(queue))

    def _policy(
        self, queue: Any | Missing, snapshot: Any | Missing, share: str
    ) -> Policy | Missing | None:
        arn = "" if isinstance(queue, Missing) else queue.get("schedulingPolicyArn", "")
        if not arn:
            return None
        if isinstance(snapshot, Missing):
            return snapshot
        document = self.asker.ask(
            "batch:DescribeSchedulingPolicies", lambda: self._batch.policy(arn)
        )
        if isinstance(document, Missing):
            return document
        return queue_shapes.policy_of(document or {}, snapshot, share)


def is_absent(facts: Facts) -> bool:
    """Whether there is no such compute environment, as far as AWS was asked."""
    return isinstance(facts.environments, Missing) and facts.environments.reason.startswith(
        _NO_ENVIRONMENT
    )


def _with_parts(
    facts: Facts, these: tuple[Environment, ...] | Missing, around: surroundings.OperationalError
) -> Facts:
    parts: dict[str, Any] = {part.name: getattr(around, part.name) for part in fields(around)}
    return replace(facts, environments=these, **parts)


def _heads(snapshot: Any | Missing) -> list[str]:
    """The job at the very front: only that one is told by AWS why it is blocked."""
    jobs = [] if isinstance(snapshot, Missing) else snapshot.get("frontOfQueue", {}).get("jobs", [])
    return [job_id_of(job["jobArn"]) for job in jobs[:1]]


def _front(snapshot: Any | Missing, others: dict[str, Any]) -> tuple[FrontJob, ...] | Missing:
    return snapshot if isinstance(snapshot, Missing) else queue_shapes.front_of(snapshot, others)
