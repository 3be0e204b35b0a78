"""Gather the facts about a job, a queue or a compute environment. Read-only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from batchyard.aws.ecs import Ecs
from batchyard.aws.logs import Logs
from batchyard.aws.session import AwsSession
from batchyard.doctor.checks.base import RUNNING_OR_OVER
from batchyard.doctor.facts import (
    Consumable,
    Ending,
    Environment,
    Facts,
    FrontJob,
    Job,
    Missing,
    Policy,
    Queue,
    Subject,
)
from batchyard.doctor.gather import environments, queue_shapes, shared_facts
from batchyard.doctor.gather.aws_calls import AwsCalls
from batchyard.doctor.gather.batch_calls import BatchCalls
from batchyard.doctor.gather.job_shapes import job_id_of, job_of, name_of, state_of
from batchyard.doctor.gather.shared_facts import SharedFacts
from batchyard.ec2_prices import Prices

#: Calls for a job, whatever its size.
MAX_CALLS = 25
#: Calls for a queue or an environment: more facts are useful before any job waits.
MAX_CALLS_WITHOUT_JOB = 50
_MAX_CONSUMABLES = 2
#: Groups of failed attempts whose logs are read, and lines of each.
_MAX_LOGS = 3
_LOG_LINES = 10
_JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:[0-9]+)?")
_GONE = "it may be of another region or account, or have ended more than a week ago"
_NO_ID = "it takes the id of a job, not of a run; `batchyard status last` shows those that wait"
_NO_ENVIRONMENT = "AWS Batch has no compute environment"


class Gatherer:
    """Gathers the facts for one examination.

    ``now_ms`` is a clock; ``prices`` are On-Demand prices, to compare Spot bids with.
    """

    def __init__(
        self,
        session: AwsSession,
        now_ms: Callable[[], int],
        max_calls: int = MAX_CALLS,
        prices: Prices | None = None,
    ) -> None:
        self.calls = AwsCalls(session, max_calls)
        self._batch = BatchCalls(session)
        self._now_ms = now_ms
        self._prices = prices or Prices({})

    # -- subjects --------------------------------------------------------------------------------

    def job(self, job_id: str) -> Facts:
        detail = self._describe_job(job_id)
        now_ms = self._now_ms()
        if isinstance(detail, Missing):
            return Facts(Subject("job", job_id), now_ms, job=detail)
        subject = Subject("job", job_id, self._batch.region)
        counts = detail.get("arrayProperties", {}).get("statusSummary", {})
        status = state_of(detail["status"], counts)
        failed_children = self._list_children(job_id, "FAILED") if counts.get("FAILED") else []
        depends_on = [entry["jobId"] for entry in detail.get("dependsOn", ()) if entry.get("jobId")]
        if status in RUNNING_OR_OVER:
            job = job_of(detail, self._describe_jobs(depends_on), failed_children)
            return Facts(subject, now_ms, job=self._add_logs(job))
        runnable_children = self._list_runnable(job_id) if status == "RUNNABLE" and counts else []
        queue = name_of(detail["jobQueue"])
        snapshot = self._read_snapshot(queue, status)
        front_ids = [front_id for front_id in _front_ids(snapshot) if front_id != job_id]
        details = {job_id: detail} | self._describe_jobs([*depends_on, *front_ids])
        starting_ms = self._find_starting_time(detail) if status == "STARTING" else None
        job = job_of(detail, details, failed_children, runnable_children, starting_ms)
        document = self._describe_queue(queue)
        facts = Facts(
            subject,
            now_ms,
            job,
            queue=_to_queue(document),
            front=_to_front(snapshot, details),
            consumables=self._describe_consumables(job),
            policy=self._describe_policy(document, snapshot, job.share),
        )
        return self._add_environments(facts)

    def queue(self, name: str, shape: Job | None = None) -> Facts:
        queue = _to_queue(self._describe_queue(name))
        subject = Subject("queue", name_of(name), self._batch.region)
        facts = Facts(subject, self._now_ms(), shape, queue)
        if isinstance(queue, Queue):
            snapshot = self._read_snapshot(queue.name, "RUNNABLE")
            details = self._describe_jobs(_front_ids(snapshot))
            facts = replace(facts, front=_to_front(snapshot, details))
        return self._add_environments(facts)

    def environment(self, name: str, shape: Job | None = None) -> Facts:
        described, shared = self._describe_environments([name])
        if described == ():
            described = Missing(f"{_NO_ENVIRONMENT} {name} here")
        subject = Subject("env", name_of(name), self._batch.region)
        return _add_parts(Facts(subject, self._now_ms(), shape), described, shared)

    def _add_environments(self, facts: Facts) -> Facts:
        """Add the compute environments of the queue."""
        if not isinstance(facts.queue, Queue):
            return replace(facts, environments=facts.queue or Missing())
        return _add_parts(facts, *self._describe_environments(facts.queue.environments))

    # -- jobs ------------------------------------------------------------------------------------

    def _describe_job(self, job_id: str) -> Any | Missing:
        jobs = self.calls.call("batch:DescribeJobs", lambda: self._batch.jobs([job_id]))
        if isinstance(jobs, Missing):
            return jobs
        reason = _GONE if _JOB_ID.fullmatch(job_id) else _NO_ID
        return jobs.get(job_id) or Missing(f"AWS Batch does not know the job {job_id}: {reason}")

    def _describe_jobs(self, ids: Sequence[str]) -> dict[str, Any]:
        if not ids:
            return {}
        unique_ids = list(dict.fromkeys(ids))
        jobs = self.calls.call("batch:DescribeJobs", lambda: self._batch.jobs(unique_ids))
        return {} if isinstance(jobs, Missing) else jobs

    def _add_logs(self, job: Job) -> Job:
        """Add the last lines of the logs of the largest groups of failed attempts."""
        if job.status == "SUCCEEDED" or isinstance(job.endings, Missing):
            return job
        logged_endings = [ending for ending in job.endings if ending.exit_code is not None][
            :_MAX_LOGS
        ]
        # ListJobs does not return the log streams of an array's children.
        unnamed = [
            ending.example for ending in logged_endings if not ending.log_stream and ending.example
        ]
        details = self._describe_jobs(unnamed)
        logs = Logs(self.calls.session)

        def add_lines(ending: Ending) -> Ending:
            container = details.get(ending.example, {}).get("container", {})
            stream = ending.log_stream or container.get("logStreamName", "")
            if ending not in logged_endings or not stream:
                return ending
            lines = self.calls.call(
                "logs:GetLogEvents", lambda: logs.last_lines(job.log_group, stream, _LOG_LINES)
            )
            known_lines = () if isinstance(lines, Missing) else tuple(lines)
            return replace(ending, log_stream=stream, log_lines=known_lines)

        return replace(job, endings=tuple(map(add_lines, job.endings)))

    def _list_children(self, job_id: str, state: str) -> list[Any] | Missing:
        return self.calls.call("batch:ListJobs", lambda: self._batch.children(job_id, state))

    def _list_runnable(self, job_id: str) -> list[Any]:
        children = self._list_children(job_id, "RUNNABLE")
        return [] if isinstance(children, Missing) else children

    def _find_starting_time(self, detail: Any) -> int | None:
        """Return when the job's ECS task was created, in milliseconds since 1970.

        AWS Batch does not report when a job became STARTING.
        """
        task_arn = detail.get("container", {}).get("taskArn", "")
        cluster = task_arn.rpartition("/")[0].rpartition("/")[2]
        if not cluster:
            return None
        ecs = Ecs(self.calls.session)
        task = self.calls.call_optional(
            "ecs:DescribeTasks", lambda: ecs.task(cluster, task_arn), ()
        )
        created = None if isinstance(task, Missing) or not task else task.get("createdAt")
        return round(created.timestamp() * 1000) if created else None

    def _describe_consumables(self, job: Job) -> tuple[Consumable, ...] | Missing:
        consumables = []
        for request in job.consumables[:_MAX_CONSUMABLES]:
            describe = partial(self._batch.consumable, request.resource)
            document = self.calls.call("batch:DescribeConsumableResource", describe)
            if isinstance(document, Missing):
                return document
            consumables.append(queue_shapes.consumable_of(document))
        return tuple(consumables)

    # -- queues ----------------------------------------------------------------------------------

    def _describe_queue(self, name: str) -> Any | Missing:
        document = self.calls.call_optional(
            "batch:DescribeJobQueues", lambda: self._batch.queue(name), ()
        )
        if document is None:
            return Missing(f"AWS Batch has no job queue {name} here{self._suggest_queue(name)}")
        return document

    def _suggest_queue(self, name: str) -> str:
        names = self.calls.call("batch:DescribeJobQueues", self._batch.queue_names)
        if isinstance(names, Missing):
            return ""
        matches = get_close_matches(name_of(name), names, 1)
        return f"; did you mean {matches[0]}?" if matches else ""

    def _describe_environments(
        self, names: Sequence[str]
    ) -> tuple[tuple[Environment, ...] | Missing, SharedFacts]:
        """Return the environments, in the order of their names here, and what they share."""
        if not names:
            return (), SharedFacts()
        documents = self.calls.call(
            "batch:DescribeComputeEnvironments", lambda: self._batch.environments(names)
        )
        if isinstance(documents, Missing):
            return documents, SharedFacts()
        by_name = {document["computeEnvironmentName"]: document for document in documents}
        in_order = [by_name[name_of(name)] for name in names if name_of(name) in by_name]
        now_ms = self._now_ms()
        described = environments.gather(self.calls, in_order, now_ms)
        shared, instances = shared_facts.gather(
            self.calls, described, self._prices, self._batch.region, now_ms
        )
        return environments.add_launch_times(described, instances), shared

    def _read_snapshot(self, queue: str, status: str) -> Any | Missing:
        if status != "RUNNABLE":
            return Missing("the job is not RUNNABLE")
        return self.calls.call("batch:GetJobQueueSnapshot", lambda: self._batch.snapshot(queue))

    def _describe_policy(
        self, queue: Any | Missing, snapshot: Any | Missing, share: str
    ) -> Policy | Missing | None:
        arn = "" if isinstance(queue, Missing) else queue.get("schedulingPolicyArn", "")
        if not arn:
            return None
        if isinstance(snapshot, Missing):
            return snapshot
        document = self.calls.call(
            "batch:DescribeSchedulingPolicies", lambda: self._batch.policy(arn)
        )
        if isinstance(document, Missing):
            return document
        return queue_shapes.policy_of(document or {}, snapshot, share)


def is_absent(facts: Facts) -> bool:
    """Return whether AWS Batch has answered that the compute environment does not exist."""
    missing = facts.environments
    return isinstance(missing, Missing) and missing.reason.startswith(_NO_ENVIRONMENT)


def _add_parts(
    facts: Facts, described: tuple[Environment, ...] | Missing, shared: SharedFacts
) -> Facts:
    parts: dict[str, Any] = {part.name: getattr(shared, part.name) for part in fields(shared)}
    return replace(facts, environments=described, **parts)


def _front_ids(snapshot: Any | Missing) -> list[str]:
    """Return the id of the first job: AWS reports only of that job why it is blocked."""
    jobs = [] if isinstance(snapshot, Missing) else snapshot.get("frontOfQueue", {}).get("jobs", [])
    return [job_id_of(job["jobArn"]) for job in jobs[:1]]


def _to_queue(document: Any | Missing) -> Queue | Missing:
    return document if isinstance(document, Missing) else queue_shapes.queue_of(document)


def _to_front(
    snapshot: Any | Missing, details: Mapping[str, Any]
) -> tuple[FrontJob, ...] | Missing:
    return snapshot if isinstance(snapshot, Missing) else queue_shapes.front_of(snapshot, details)
