"""The operations of AWS Batch that the doctor uses: one call per method, AWS's shapes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.aws.session import AwsSession, naming_errors
from batchyard.batch.limits import MAX_DESCRIBED_JOBS
from batchyard.errors import OperationalError

#: Largest page of ListJobs.
MAX_LISTED_JOBS = 1000


class BatchCalls:
    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._batch = Batch(session)

    @property
    def region(self) -> str:
        """The region; empty if no client can be created (the first call reports why)."""
        try:
            return self._session.region or str(self._session.client("batch").meta.region_name)
        except OperationalError:
            return ""

    def jobs(self, ids: Sequence[str]) -> dict[str, Any]:
        """Return the first hundred of the jobs by id; jobs that do not exist are left out."""
        return self._batch.describe(list(ids)[:MAX_DESCRIBED_JOBS])

    def children(self, array_id: str, state: str) -> list[Any]:
        """Return the first page of an array's children in one state."""
        with naming_errors("list the array's children"):
            answer = self._session.client("batch").list_jobs(
                arrayJobId=array_id, jobStatus=state, maxResults=MAX_LISTED_JOBS
            )
        return list(answer["jobSummaryList"])

    def queue(self, name: str) -> Any | None:
        return self._batch.queues([name]).get(name)

    def queue_names(self) -> list[str]:
        """Return the names of the first hundred queues of the region."""
        with naming_errors("list the job queues"):
            answer = self._session.client("batch").describe_job_queues(maxResults=100)
        return [str(queue["jobQueueName"]) for queue in answer["jobQueues"]]

    def environments(self, names: Sequence[str]) -> list[Any]:
        with naming_errors("describe the compute environments"):
            answer = self._session.client("batch").describe_compute_environments(
                computeEnvironments=list(names)
            )
        return list(answer["computeEnvironments"])

    def snapshot(self, queue: str) -> Any:
        with naming_errors("read the front of the queue"):
            return self._session.client("batch").get_job_queue_snapshot(jobQueue=queue)

    def policy(self, arn: str) -> Any | None:
        with naming_errors("describe the scheduling policy"):
            answer = self._session.client("batch").describe_scheduling_policies(arns=[arn])
        return next(iter(answer["schedulingPolicies"]), None)

    def consumable(self, name: str) -> Any:
        with naming_errors(f"describe the consumable resource {name}"):
            return self._session.client("batch").describe_consumable_resource(
                consumableResource=name
            )

    # -- changes that --fix makes ----------------------------------------------------------------

    def enable_queue(self, name: str) -> None:
        with naming_errors(f"enable the queue {name}"):
            self._session.client("batch").update_job_queue(jobQueue=name, state="ENABLED")

    def enable_environment(self, name: str) -> None:
        with naming_errors(f"enable the compute environment {name}"):
            self._session.client("batch").update_compute_environment(
                computeEnvironment=name, state="ENABLED"
            )

    def cancel(self, job_id: str, reason: str) -> None:
        """Cancel a job that has not started. A job that has started keeps running."""
        with naming_errors(f"cancel {job_id}"):
            self._session.client("batch").cancel_job(jobId=job_id, reason=reason)
