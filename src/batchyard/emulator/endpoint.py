"""The endpoint below HTTP: it performs operations, and is the metadata service of each task.

Requests come from many threads. Each takes the lock of the loop while it is performed
(``Loop.call``), so the operations are written for one thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from batchyard.embedded.loop import LoopEndedError
from batchyard.emulator import compute_environments, instance_metadata, names, operations
from batchyard.emulator.api_errors import ServerError
from batchyard.emulator.reclaims import Reclaims
from batchyard.emulator.state import ENVIRONMENT, Document, EndpointState
from batchyard.errors import BatchyardError

T = TypeVar("T")

#: Instance type of hosts whose compute environment does not name types: Fargate and UNMANAGED.
_UNKNOWN_TYPE = "m6i.large"


class Endpoint:
    def __init__(
        self, state: EndpointState, metadata_path: str, client_variables: dict[str, str]
    ) -> None:
        """``metadata_path``: the path above the metadata service of each task.

        ``client_variables``: environment variables that a client of the endpoint needs.
        """
        self._state = state
        self.region = state.region
        self.metadata_path = metadata_path
        self._client_variables = client_variables
        self._metadata_key = secrets.token_bytes(16)
        self._reclaims = Reclaims(state)

    # -- operations of AWS ------------------------------------------------------------------------

    def perform(self, service: str, operation: str, request: dict[str, Any]) -> Document | None:
        """Check and perform an operation. Raises ApiError. Returns None if moto is to answer."""
        checked = operations.check_request(service, operation, request)
        return self._call(lambda: operations.perform(self._state, service, operation, checked))

    def perform_batch(self, operation: str, request: dict[str, Any]) -> Document:
        """Check and perform an operation of AWS Batch. Raises ApiError."""
        answer = self.perform("batch", operation, request)
        assert answer is not None, "moto answers no operation of AWS Batch"
        return answer

    def add_to_answer(
        self, service: str, operation: str, request: Document, answer: Document
    ) -> Document:
        """Return moto's answer to a checked request with the endpoint's own entries."""
        return self._call(
            lambda: operations.add_to_answer(self._state, service, operation, request, answer)
        )

    # -- reclaims ---------------------------------------------------------------------------------

    def reclaim(self, job_id: str, notice_s: float) -> Document:
        """Announce that the host of a running child is reclaimed, and end the child then."""
        return self._call(lambda: self._reclaims.announce(job_id, notice_s))

    def end_reclaimed(self) -> None:
        """End the children whose hosts are due. The caller holds the lock of the loop."""
        self._reclaims.end_due()

    # -- instance metadata ------------------------------------------------------------------------

    def answer_metadata(
        self, task: str, method: str, path: str, headers: dict[str, str]
    ) -> instance_metadata.Answer:
        is_typed = instance_metadata.depends_on_type(path)
        host = instance_metadata.Host(
            instance_id=names.instance_id(task),
            instance_type=self._instance_type(task) if is_typed else _UNKNOWN_TYPE,
            region=self.region,
            zone=f"{self.region}a",
            token_key=self._metadata_key + task.encode(),
            reclaimed_at_s=self._reclaims.time_of(task),
            credentials=instance_metadata.Credentials(
                "batchyard-instance-role",
                self._client_variables["AWS_ACCESS_KEY_ID"],
                self._client_variables["AWS_SECRET_ACCESS_KEY"],
                "batchyard",
            ),
        )
        return instance_metadata.answer(host, method, path, headers, self._state.clock())

    def _instance_type(self, task: str) -> str:
        """Return the instance type of the emulated host of a running attempt."""
        try:
            return self._call(lambda: self._find_instance_type(task)) or _UNKNOWN_TYPE
        except ServerError:
            return _UNKNOWN_TYPE  # The endpoint is stopping, and the attempt with it.

    def _find_instance_type(self, task: str) -> str | None:
        state = self._state
        key = names.parse_task_id(task, state.salt)
        job = None if key is None else state.job_with_number(key.job_number)
        if key is None or job is None:
            return None
        attempt = state.loop.find_running_task(job["jobId"], key.child)
        if attempt is None:
            return None
        environment = state.get(ENVIRONMENT, attempt.compute_environment)
        if environment is None:
            return None
        return compute_environments.smallest_type(state, environment, attempt.resources)

    def _call(self, action: Callable[[], T]) -> T:
        """Run the action under the lock of the loop; raise ServerError if the engine fails."""
        try:
            return self._state.loop.call(action)
        except LoopEndedError:
            raise ServerError("the endpoint is stopping") from None
        except BatchyardError as exc:
            raise ServerError(exc.message) from exc
