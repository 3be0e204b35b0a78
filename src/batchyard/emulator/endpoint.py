"""The endpoint below HTTP: it performs operations, and is the metadata service of each task.

Requests come from many threads. Each takes the lock of the loop while it is performed
(``Loop.call``), so the operations are written for one thread.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from batchyard.embedded.loop import LoopEndedError
from batchyard.emulator import hosts, instance_metadata, job_credentials, operations, resetting
from batchyard.emulator.api_errors import ServerError
from batchyard.emulator.ecs import lifecycle, task_metadata
from batchyard.emulator.hosts import ShownInstances
from batchyard.emulator.reclaims import Reclaims, end_hosts
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import Document, EndpointState
from batchyard.errors import BatchyardError

T = TypeVar("T")

#: Instance type of hosts whose compute environment does not name types: Fargate and UNMANAGED.
_UNKNOWN_TYPE = "m6i.large"


#: Lifetime of the credentials of jobs if the faults have no other: that of a task role.
_CREDENTIALS_S = 6 * 3600


class Endpoint:
    def __init__(
        self,
        regions: Regions,
        metadata_path: str,
        client_variables: dict[str, str],
        reclaims: Reclaims,
        make_shown_instances: Callable[[str], ShownInstances],
        report: Callable[[str], None],
    ) -> None:
        """``metadata_path``: the path above the metadata service of each task.

        ``client_variables``: environment variables that a client of the endpoint needs.
        ``make_shown_instances``: makes the instances that EC2 shows in a region.
        ``report``: tells the user of the endpoint what went wrong.
        """
        self._regions = regions
        #: The region of requests that name none.
        self.region = regions.default.region
        self.metadata_path = metadata_path
        self._client_variables = client_variables
        self._metadata_key = secrets.token_bytes(16)
        self._reclaims = reclaims
        self._make_shown_instances = make_shown_instances
        self._shown_instances: dict[str, ShownInstances] = {}
        self._report = report
        #: Region -> the error that was reported last, until its ECS advances again.
        self._ecs_errors: dict[str, str] = {}
        #: Held while EC2 is brought up to date, so that an older state never follows a newer one.
        self._shown_lock = threading.Lock()

    # -- operations of AWS ------------------------------------------------------------------------

    def perform(
        self, region: str, service: str, operation: str, request: dict[str, Any]
    ) -> Document | None:
        """Check and perform an operation. Raises ApiError. Returns None if moto is to answer."""
        checked = operations.check_request(service, operation, request)
        return self._call(
            lambda: operations.perform(self._regions.state(region), service, operation, checked)
        )

    def perform_batch(self, region: str, operation: str, request: dict[str, Any]) -> Document:
        """Check and perform an operation of AWS Batch. Raises ApiError."""
        answer = self.perform(region, "batch", operation, request)
        assert answer is not None, "moto answers no operation of AWS Batch"
        return answer

    def perform_ecs(self, region: str, operation: str, request: dict[str, Any]) -> Document:
        """Check and perform an operation of ECS. Raises ApiError.

        Returns {} if the endpoint only checks the operation, and moto is to perform it.
        """
        return self.perform(region, "ecs", operation, request) or {}

    def add_to_answer(
        self, region: str, service: str, operation: str, request: Document, answer: Document
    ) -> Document:
        """Return moto's answer to a checked request with the endpoint's own entries."""
        return self._call(
            lambda: operations.add_to_answer(
                self._regions.state(region), service, operation, request, answer
            )
        )

    # -- reclaims ---------------------------------------------------------------------------------

    def reclaim(self, job_id: str, notice_s: float) -> Document:
        """Announce that the host of a running child is reclaimed, and end the child then."""
        return self._call(lambda: self._reclaims.announce(job_id, notice_s))

    def on_tick(self) -> None:
        """Reclaim the hosts that are due, and advance ECS. The caller holds the loop's lock."""
        self._reclaims.on_tick()
        for state in self._regions.states():
            self._advance_ecs(state)

    def _advance_ecs(self, state: EndpointState) -> None:
        """Advance ECS in a region. An unexpected error there ends neither jobs nor endpoint."""
        try:
            lifecycle.advance(state)
        except BatchyardError:
            raise  # The engine fails: a full disk, for example.
        except Exception as exc:
            text = f"ECS in {state.region} does not advance: {type(exc).__name__}: {exc}"
            if self._ecs_errors.get(state.region) != text:
                self._ecs_errors[state.region] = text
                self._report(text)
        else:
            self._ecs_errors.pop(state.region, None)

    # -- reset ------------------------------------------------------------------------------------

    def reset(self) -> None:
        """End all jobs and forget all resources, in all regions."""
        self._call(lambda: resetting.end_jobs(self._regions))
        while not self._call(lambda: resetting.has_ended_jobs(self._regions)):
            time.sleep(0.01)
        self._call(lambda: resetting.forget_all(self._regions))

    # -- EC2 --------------------------------------------------------------------------------------

    def show_instances(self, region: str) -> None:
        """Show the instances of all compute environments of a region in EC2."""
        with self._shown_lock:
            instances = self._call(lambda: hosts.all_instances(self._regions.state(region)))
            if region not in self._shown_instances:
                self._shown_instances[region] = self._make_shown_instances(region)
            self._shown_instances[region].show(instances)

    def end_terminated_instances(self, region: str) -> None:
        """End the instances that a user has terminated in EC2, with their jobs."""
        with self._shown_lock:
            ended_ids = self._shown_instances[region].ended_ids()
        if ended_ids:
            self._call(lambda: end_hosts(self._regions.state(region), ended_ids))

    # -- instance metadata ------------------------------------------------------------------------

    def answer_metadata(
        self, host_id: str, method: str, path: str, headers: dict[str, str]
    ) -> instance_metadata.Answer:
        """Answer a request from a host. ``host_id``: a task id for tasks without an instance."""
        region, instance = self.region, None
        if instance_metadata.depends_on_type(path):
            region, instance = self._find_host(host_id)
        host = instance_metadata.Host(
            instance_id=instance.instance_id if instance else hosts.instance_id(host_id),
            instance_type=(instance and instance.type_name) or _UNKNOWN_TYPE,
            region=region,
            zone=instance.zone if instance else f"{region}a",
            token_key=self._metadata_key + host_id.encode(),
            reclaimed_at_s=self._reclaims.time_of(host_id),
            launched_s=instance.launched_s if instance else None,
            is_spot=instance.is_spot if instance else True,
            credentials=instance_metadata.Credentials(
                "batchyard-instance-role",
                self._client_variables["AWS_ACCESS_KEY_ID"],
                self._client_variables["AWS_SECRET_ACCESS_KEY"],
                "batchyard",
            ),
        )
        now_s = self._regions.default.clock()
        return instance_metadata.answer(host, method, path, headers, now_s)

    def answer_task_metadata(self, task_id: str, path: str) -> Document | None:
        """Answer a container of an ECS task; None for a path that does not exist."""
        return self._call(lambda: self._find_task_metadata(task_id, path))

    def _find_task_metadata(self, task_id: str, path: str) -> Document | None:
        for state in self._regions.states():
            lifecycle.advance(state)
            answer = task_metadata.answer(state, task_id, path)
            if answer is not None:
                return answer
        return None

    def issue_credentials(self, task_id: str = "") -> dict[str, str]:
        """Return new credentials for a job or ECS task, which expire."""
        state = self._regions.default
        roles = [task_metadata.role_of(state, task_id) for state in self._regions.states()]
        role = next(filter(None, roles), job_credentials.JOB_ROLE)
        lifetime_s = state.faults.settings.credentials or _CREDENTIALS_S
        return job_credentials.issue(self._client_variables, state.clock(), lifetime_s, role)

    def _find_host(self, host_id: str) -> tuple[str, hosts.Instance | None]:
        """Return the region of a host, and its instance; None for a task without an instance."""
        try:
            return self._call(lambda: self._find_host_in_regions(host_id))
        except ServerError:
            return self.region, None  # The endpoint is stopping, and the attempt with it.

    def _find_host_in_regions(self, host_id: str) -> tuple[str, hosts.Instance | None]:
        for state in self._regions.states():
            instance = (
                hosts.find_instance(state, host_id)
                or hosts.find_own_instance(state, host_id)
                or hosts.find_ecs_instance(state, host_id)
            )
            if instance is not None or hosts.is_task(state, host_id):
                return state.region, instance
        return self.region, None

    def _call(self, action: Callable[[], T]) -> T:
        """Run the action under the lock of the loop; raise ServerError if the engine fails."""
        try:
            return self._regions.default.loop.call(action)
        except LoopEndedError:
            raise ServerError("the endpoint is stopping") from None
        except BatchyardError as exc:
            raise ServerError(exc.message) from exc
