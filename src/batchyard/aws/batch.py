"""AWS Batch: lists of ids in, AWS's own shapes out."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from batchyard.aws.session import (
    THROTTLED,
    AccessDeniedError,
    AwsRefusedError,
    AwsSession,
    from_client_error,
    naming_errors,
)
from batchyard.errors import OperationalError

_MOST_AT_ONCE = 100
_MOST_ATTEMPTS = 15
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 10.0


class Batch:
    def __init__(
        self,
        session: AwsSession,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._session = session
        self._sleep = sleep
        self._jitter = jitter

    def describe(self, job_ids: Sequence[str]) -> dict[str, Any]:
        """By id; what AWS does not know any more is not there."""
        found: dict[str, Any] = {}
        for some in _hundreds(job_ids):
            with naming_errors("ask about the jobs"):
                answer = self._session.client("batch").describe_jobs(jobs=list(some))
            found.update((job["jobId"], job) for job in answer["jobs"])
        return found

    def children(self, array_id: str, state: str) -> Iterator[str]:
        """The ids of an array's children in one state."""
        with naming_errors("list an array's children"):
            pages = (
                self._session.client("batch")
                .get_paginator("list_jobs")
                .paginate(arrayJobId=array_id, jobStatus=state)
            )
            for page in pages:
                yield from (job["jobId"] for job in page["jobSummaryList"])

    def named(self, queue: str, name: str) -> list[str]:
        """The ids of the queue's jobs of this name, whatever their state; the newest first."""
        with naming_errors("look for a job"):
            answer = self._session.client("batch").list_jobs(
                jobQueue=queue, filters=[{"name": "JOB_NAME", "values": [name]}]
            )
        return [job["jobId"] for job in answer["jobSummaryList"] if job["jobName"] == name]

    def find(self, queue: str, name: str, others: Container[str] = ()) -> str | None:
        """The id of the queue's newest job of this name that is none of the others."""
        return next((job_id for job_id in self.named(queue, name) if job_id not in others), None)

    def submit(self, request: dict[str, Any], others: Container[str] = ()) -> str:
        """One job, once. AWS has no token for this: what broke off in the middle is looked for by its name.
        ``others``: the jobs that had this name before, where it is not unique."""
        doing = f"submit {request['jobName']}"
        with naming_errors(doing):
            return self._submitted(request, others, doing)

    def _submitted(self, request: dict[str, Any], others: Container[str], doing: str) -> str:
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

        name, queue = request["jobName"], request["jobQueue"]
        problem: Exception | None = None
        for attempt in range(_MOST_ATTEMPTS):
            if attempt:
                self._sleep(self._delay(attempt))
            try:
                with_no_repeats = self._session.client("batch", repeats=False)
                return str(with_no_repeats.submit_job(**request)["jobId"])
            except ClientError as exc:
                problem = exc
                status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
                if exc.response.get("Error", {}).get("Code") in THROTTLED or status == 429:
                    continue
                if status < 500:
                    raise from_client_error(exc, doing) from exc
            except (HTTPClientError, ConnectionError) as exc:
                problem = exc
            # It may have been accepted, and only the answer lost.
            self._sleep(self._delay(attempt + 1))
            there = self.find(queue, name, others)
            if there is not None:
                return there
        raise OperationalError(
            f"could not {doing}: {problem}", hint="`batchyard resume` goes on where it stopped"
        )

    def _delay(self, attempt: int) -> float:
        longest: float = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2**attempt)
        return longest * (0.5 + self._jitter() / 2)

    def terminate(self, job_id: str, reason: str) -> None:
        with naming_errors(f"stop {job_id}"):
            self._session.client("batch").terminate_job(jobId=job_id, reason=reason)

    def active_definitions(self, names: Iterable[str]) -> dict[str, str]:
        """name -> `name:revision` of those that can be used."""
        wanted = [f"{name}:{revision}" for name in names for revision in (1, 2, 3)]
        found: dict[str, str] = {}
        for some in _hundreds(wanted):
            with naming_errors("ask about job definitions"):
                # No status beside jobDefinitions: the API does not allow it.
                paginator = self._session.client("batch").get_paginator("describe_job_definitions")
                for page in paginator.paginate(jobDefinitions=list(some)):
                    for one in page["jobDefinitions"]:
                        if one["status"] == "ACTIVE":
                            found[one["jobDefinitionName"]] = (
                                f"{one['jobDefinitionName']}:{one['revision']}"
                            )
        return found

    def usable_definitions(self, names: Iterable[str]) -> dict[str, Any]:
        """Those of the names, with or without a revision, or ARNs, that a job can be submitted with."""
        found = ((name, self._usable(name)) for name in names)
        return {name: definition for name, definition in found if definition is not None}

    def _usable(self, name: str) -> Any:
        # `name:3`, and an ARN, are asked for as they are; a bare name, also at the end of an ARN, has some revision.
        last = name.rpartition("/")[2]
        by_name = {"jobDefinitionName": last, "status": "ACTIVE"}
        asked: dict[str, Any] = {"jobDefinitions": [name]} if ":" in last else by_name
        with naming_errors(f"ask about the job definition {name}"):
            answer = self._session.client("batch").describe_job_definitions(**asked)
        active = [one for one in answer["jobDefinitions"] if one["status"] == "ACTIVE"]
        return max(active, key=lambda one: int(one["revision"]), default=None)

    def register(self, request: dict[str, Any]) -> str:
        """Returns `name:revision`. Twice is harmless: a second revision of the same content."""
        with naming_errors(f"register {request['jobDefinitionName']}"):
            answer = self._session.client("batch").register_job_definition(**request)
        return f"{answer['jobDefinitionName']}:{answer['revision']}"

    def queues(self, names: Sequence[str]) -> dict[str, Any]:
        """By name and by ARN."""
        found: list[Any] = []
        for some in _hundreds(names):
            with naming_errors("ask about the job queues"):
                found += self._session.client("batch").describe_job_queues(jobQueues=list(some))[
                    "jobQueues"
                ]
        return {queue[key]: queue for queue in found for key in ("jobQueueName", "jobQueueArn")}

    def make_consumable(self, name: str, quantity: int, tags: dict[str, str]) -> None:
        """A counter that jobs hold while they run; it may be there already."""
        client = self._session.client("batch")
        from botocore.exceptions import ClientError

        with naming_errors(f"make the consumable resource {name}"):
            try:
                client.create_consumable_resource(
                    consumableResourceName=name, totalQuantity=quantity, tags=tags
                )
            except ClientError as exc:
                if "already exists" not in str(exc):
                    raise

    def delete_consumable(self, name: str) -> None:
        """It may be gone already."""
        try:
            with naming_errors(f"delete the consumable resource {name}"):
                self._session.client("batch").delete_consumable_resource(consumableResource=name)
        except AwsRefusedError as exc:
            if "does not exist" not in exc.message and "not found" not in exc.message:
                raise

    def missing_consumables(self, names: Iterable[str]) -> set[str]:
        """Those of the names, or ARNs, that AWS does not know; none of which it will not tell us."""
        return {name for name in names if self._is_missing(name)}

    def _is_missing(self, name: str) -> bool:
        try:
            with naming_errors(f"ask about the consumable resource {name}"):
                self._session.client("batch").describe_consumable_resource(consumableResource=name)
        except AwsRefusedError as exc:
            return "does not exist" in exc.message or "not found" in exc.message
        except AccessDeniedError:
            pass
        return False

    def instance_types(self, queue: str) -> list[str]:
        """Of all compute environments of a queue; none where there is no such queue."""
        order = self.queues([queue]).get(queue, {}).get("computeEnvironmentOrder", ())
        if not order:
            return []
        names = [one["computeEnvironment"] for one in order]
        with naming_errors("ask about the compute environments"):
            answer = self._session.client("batch").describe_compute_environments(
                computeEnvironments=names
            )
        found = [one.get("computeResources", {}) for one in answer["computeEnvironments"]]
        return [one for resources in found for one in resources.get("instanceTypes", ())]


def shape_problems(request: dict[str, Any]) -> list[str]:
    """What botocore's own model of SubmitJob finds wrong."""
    from botocore.validate import ParamValidator

    report = ParamValidator().validate(request, _submit_shape())
    return [line.strip() for line in str(report.generate_report()).splitlines() if line.strip()]


@cache
def _submit_shape() -> Any:
    """Reading the model takes a while."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return (
        ServiceModel(Loader().load_service_model("batch", "service-2"), "batch")
        .operation_model("SubmitJob")
        .input_shape
    )


def _hundreds(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(ids), _MOST_AT_ONCE):
        yield tuple(ids[start : start + _MOST_AT_ONCE])
