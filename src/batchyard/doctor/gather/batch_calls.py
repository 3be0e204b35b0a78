"""What the doctor asks AWS Batch. Every method is one call; AWS's own shapes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.aws.session import AwsSession, naming_errors
from batchyard.errors import OperationalError

#: ListJobs gives so many at once
MOST_LISTED = 1000


class BatchCalls:
    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._batch = Batch(session)

    @property
    def region(self) -> str:
        """Empty where no client can be made; the first question says why."""
        try:
            return self._session.region or str(self._session.client("batch").meta.region_name)
        except OperationalError:
            return ""

    def jobs(self, ids: Sequence[str]) -> dict[str, Any]:
        """By id, at most a hundred; what AWS does not know is not there."""
        return self._batch.describe(list(ids)[:100])

    def children(self, array_id: str, state: str) -> list[Any]:
        """A page of an array's children in one state."""
        with naming_errors("list the array's children"):
            answer = self._session.client("batch").list_jobs(
                arrayJobId=array_id, jobStatus=state, maxResults=MOST_LISTED
            )
        return list(answer["jobSummaryList"])

    def queue(self, name: str) -> Any | None:
        return self._batch.queues([name]).get(name)

    def queue_names(self) -> list[str]:
        """The first hundred of the account."""
        with naming_errors("ask which job queues there are"):
            found = self._session.client("batch").describe_job_queues(maxResults=100)["jobQueues"]
        return [str(queue["jobQueueName"]) for queue in found]

    def environments(self, names: Sequence[str]) -> list[Any]:
        with naming_errors("ask about the compute environments"):
            answer = self._session.client("batch").describe_compute_environments(
                computeEnvironments=list(names)
            )
        return list(answer["computeEnvironments"])

    def snapshot(self, queue: str) -> Any:
        with naming_errors("ask what is at the front of the queue"):
            return self._session.client("batch").get_job_queue_snapshot(jobQueue=queue)

    def policy(self, arn: str) -> Any | None:
        with naming_errors("ask about the scheduling policy"):
            found = self._session.client("batch").describe_scheduling_policies(arns=[arn])[
                "schedulingPolicies"
            ]
        return found[0] if found else None

    def consumable(self, name: str) -> Any:
        with naming_errors(f"ask about the consumable resource {name}"):
            return self._session.client("batch").describe_consumable_resource(
                consumableResource=name
            )

    # -- what --fix does -----------------------------------------------------------------------------------------

    def enable_queue(self, name: str) -> None:
        with naming_errors(f"enable the queue {name}"):
            self._session.client("batch").update_job_queue(jobQueue=name, state="ENABLED")

    def enable_environment(self, name: str) -> None:
        with naming_errors(f"enable the compute environment {name}"):
            self._session.client("batch").update_compute_environment(
                computeEnvironment=name, state="ENABLED"
            )

    def cancel(self, job_id: str, reason: str) -> None:
        """Ends a job that has not started; one that has goes on."""
        with naming_errors(f"cancel {job_id}"):
            self._session.client("batch").cancel_job(jobId=job_id, reason=reason)
