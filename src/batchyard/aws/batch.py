"""Operations of AWS Batch, for any number of ids. Results are in AWS's shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from batchyard.aws.session import (
    AccessDeniedError,
    AwsRefusedError,
    AwsSession,
    naming_errors,
)
from batchyard.batch.limits import MAX_DESCRIBED_JOBS


class Batch:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def describe(self, job_ids: Sequence[str]) -> dict[str, Any]:
        """Return the jobs by id; jobs that AWS no longer has are left out."""
        jobs: dict[str, Any] = {}
        for chunk in _split_by_hundred(job_ids):
            with naming_errors("describe the jobs"):
                answer = self._session.client("batch").describe_jobs(jobs=list(chunk))
            jobs.update((job["jobId"], job) for job in answer["jobs"])
        return jobs

    def children(self, array_id: str, state: str) -> Iterator[str]:
        """Yield the ids of an array's children in one state."""
        return (job["jobId"] for job in self._list_children(array_id, state))

    def started_children(self, array_id: str, state: str) -> Iterator[str]:
        """Yield the ids of an array's children in one state that have had an attempt."""
        for job in self._list_children(array_id, state):
            # A container that could not be started has a reason, and no start.
            if job.get("startedAt") or job.get("container"):
                yield job["jobId"]

    def unstarted_children(self, array_id: str, state: str) -> Iterator[str]:
        """Yield the ids of an array's children in one state that have had no attempt."""
        for job in self._list_children(array_id, state):
            if not (job.get("startedAt") or job.get("container")):
                yield job["jobId"]

    def _list_children(self, array_id: str, state: str) -> Iterator[Any]:
        with naming_errors("list an array's children"):
            pages = (
                self._session.client("batch")
                .get_paginator("list_jobs")
                .paginate(arrayJobId=array_id, jobStatus=state)
            )
            for page in pages:
                yield from page["jobSummaryList"]

    def find_by_name(self, queue: str, name: str) -> list[str]:
        """Return the ids of the queue's jobs with this name, in any state, newest first."""
        with naming_errors("look for a job"):
            answer = self._session.client("batch").list_jobs(
                jobQueue=queue, filters=[{"name": "JOB_NAME", "values": [name]}]
            )
        return [job["jobId"] for job in answer["jobSummaryList"] if job["jobName"] == name]

    def find_by_prefix(self, queue: str, prefix: str) -> dict[str, list[str]]:
        """Return name -> ids of the queue's jobs whose names begin so, in any state."""
        ids: dict[str, list[str]] = {}
        with naming_errors("look for jobs"):
            pages = (
                self._session.client("batch")
                .get_paginator("list_jobs")
                .paginate(jobQueue=queue, filters=[{"name": "JOB_NAME", "values": [f"{prefix}*"]}])
            )
            for page in pages:
                for job in page["jobSummaryList"]:
                    ids.setdefault(job["jobName"], []).append(job["jobId"])
        return ids

    def terminate(self, job_id: str, reason: str) -> None:
        with naming_errors(f"stop {job_id}"):
            self._session.client("batch").terminate_job(jobId=job_id, reason=reason)

    def cancel(self, job_id: str, reason: str) -> None:
        """Cancel a job, or the children of an array, that have not started (facts, 1.6)."""
        with naming_errors(f"cancel {job_id}"):
            self._session.client("batch").cancel_job(jobId=job_id, reason=reason)

    def active_definitions(self, names: Iterable[str]) -> dict[str, str]:
        """Return name -> `name:revision` of the active job definitions."""
        revisions = [f"{name}:{revision}" for name in names for revision in (1, 2, 3)]
        active: dict[str, str] = {}
        for chunk in _split_by_hundred(revisions):
            with naming_errors("describe job definitions"):
                # The API does not accept a status beside jobDefinitions.
                paginator = self._session.client("batch").get_paginator("describe_job_definitions")
                for page in paginator.paginate(jobDefinitions=list(chunk)):
                    for definition in page["jobDefinitions"]:
                        name, revision = definition["jobDefinitionName"], definition["revision"]
                        if definition["status"] == "ACTIVE":
                            active[name] = f"{name}:{revision}"
        return active

    def usable_definitions(self, names: Iterable[str]) -> dict[str, Any]:
        """Return name -> the job definition that SubmitJob would use; others are left out.

        A name may have a revision, or be an ARN.
        """
        definitions = {name: self._find_definition(name) for name in names}
        return {name: entry for name, entry in definitions.items() if entry is not None}

    def _find_definition(self, name: str) -> Any:
        """Return the active job definition; for a name without a revision, the newest one."""
        last = name.rpartition("/")[2]
        request: dict[str, Any] = {"jobDefinitionName": last, "status": "ACTIVE"}
        if ":" in last:
            request = {"jobDefinitions": [name]}
        with naming_errors(f"describe the job definition {name}"):
            answer = self._session.client("batch").describe_job_definitions(**request)
        active = [entry for entry in answer["jobDefinitions"] if entry["status"] == "ACTIVE"]
        return max(active, key=lambda entry: int(entry["revision"]), default=None)

    def register(self, request: dict[str, Any]) -> str:
        """Register a job definition, and return `name:revision`. Repeating it is harmless."""
        with naming_errors(f"register {request['jobDefinitionName']}"):
            answer = self._session.client("batch").register_job_definition(**request)
        return f"{answer['jobDefinitionName']}:{answer['revision']}"

    def queues(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the queues that exist, by name and by ARN."""
        queues: list[Any] = []
        for chunk in _split_by_hundred(names):
            with naming_errors("describe the job queues"):
                answer = self._session.client("batch").describe_job_queues(jobQueues=list(chunk))
            queues += answer["jobQueues"]
        return {queue[key]: queue for queue in queues for key in ("jobQueueName", "jobQueueArn")}

    def compute_environments(self, arns: Sequence[str]) -> dict[str, Any]:
        """Return the compute environments that exist, by ARN."""
        environments: list[Any] = []
        for chunk in _split_by_hundred(arns):
            with naming_errors("describe the compute environments"):
                answer = self._session.client("batch").describe_compute_environments(
                    computeEnvironments=list(chunk)
                )
            environments += answer["computeEnvironments"]
        return {entry["computeEnvironmentArn"]: entry for entry in environments}

    def make_consumable(self, name: str, quantity: int, tags: dict[str, str]) -> None:
        """Create a counter that jobs hold while they run, unless it exists."""
        client = self._session.client("batch")
        from botocore.exceptions import ClientError

        with naming_errors(f"create the consumable resource {name}"):
            try:
                client.create_consumable_resource(
                    consumableResourceName=name, totalQuantity=quantity, tags=tags
                )
            except ClientError as exc:
                if "already exists" not in str(exc):
                    raise

    def delete_consumable(self, name: str) -> None:
        """Delete a consumable resource, if it exists."""
        try:
            with naming_errors(f"delete the consumable resource {name}"):
                self._session.client("batch").delete_consumable_resource(consumableResource=name)
        except AwsRefusedError as exc:
            if "does not exist" not in exc.message and "not found" not in exc.message:
                raise

    def missing_consumables(self, names: Iterable[str]) -> set[str]:
        """Return the consumable resources that do not exist, of these names or ARNs.

        A resource that the user may not describe counts as existing.
        """
        return {name for name in names if self._is_missing(name)}

    def _is_missing(self, name: str) -> bool:
        try:
            with naming_errors(f"describe the consumable resource {name}"):
                self._session.client("batch").describe_consumable_resource(consumableResource=name)
        except AwsRefusedError as exc:
            return "does not exist" in exc.message or "not found" in exc.message
        except AccessDeniedError:
            pass
        return False

    def instance_types(self, queue: str) -> list[str]:
        """Return the instance types of all compute environments of a queue; [] without a queue."""
        order = self.queues([queue]).get(queue, {}).get("computeEnvironmentOrder", ())
        if not order:
            return []
        names = [entry["computeEnvironment"] for entry in order]
        with naming_errors("describe the compute environments"):
            answer = self._session.client("batch").describe_compute_environments(
                computeEnvironments=names
            )
        environments = answer["computeEnvironments"]
        resources = [environment.get("computeResources", {}) for environment in environments]
        return [kind for entry in resources for kind in entry.get("instanceTypes", ())]


def shape_problems(request: dict[str, Any]) -> list[str]:
    """Return the problems that botocore's model of SubmitJob finds in a request."""
    from botocore.validate import ParamValidator

    report = ParamValidator().validate(request, _submit_shape())
    return [line.strip() for line in str(report.generate_report()).splitlines() if line.strip()]


@cache
def _submit_shape() -> Any:
    """Return the shape of SubmitJob's request. Cached, since reading the model is slow."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return (
        ServiceModel(Loader().load_service_model("batch", "service-2"), "batch")
        .operation_model("SubmitJob")
        .input_shape
    )


def _split_by_hundred(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(ids), MAX_DESCRIBED_JOBS):
        yield tuple(ids[start : start + MAX_DESCRIBED_JOBS])
