"""The state of the endpoint: its resources and jobs, and the engine that runs the jobs.

A *document* is the part of AWS's description of a resource or job that does not change by itself.
Documents are held in memory and stored as JSON: ``put`` and ``remove`` change both, ``save`` makes
the changes durable. Code that uses the state holds the lock of the loop (see ``Loop.call``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from batchyard.batch.jobs import Job, Resources
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.loop import Loop, TaskMaker
from batchyard.embedded.store import JobRow, Store
from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.log_files import LogFiles
from batchyard.errors import BatchyardError

Document = dict[str, Any]

#: Kinds of documents. All but the last are spelled as in ARNs.
ENVIRONMENT, QUEUE, POLICY, DEFINITION, CONSUMABLE, JOB, STOP_REQUESTS = (
    "compute-environment",
    "job-queue",
    "scheduling-policy",
    "job-definition",
    "consumable-resource",
    "job",
    #: The CancelJob and TerminateJob requests of a job, with their reasons.
    "stop",
)
KINDS = (ENVIRONMENT, QUEUE, POLICY, DEFINITION, CONSUMABLE, JOB, STOP_REQUESTS)


@dataclass(slots=True)
class EndpointState:
    scheduler: Scheduler
    loop: Loop
    store: Store
    log_files: LogFiles
    region: str
    #: Resources of this machine, which all compute environments share.
    machine: Resources
    #: Returns what an instance type registers with ECS, or None for an unknown type.
    instance_resources: Callable[[str], Resources | None]
    #: Returns the instance types of a family such as `g5`.
    family_types: Callable[[str], list[str]]
    #: Makes the tasks of a job from its number and its document.
    task_maker: Callable[[int, Document], TaskMaker]
    #: The last 16 digits of all task ids of this endpoint.
    salt: str
    clock: Callable[[], float] = time.time
    created_ms: int = field(init=False)
    _documents: dict[str, dict[str, Document]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    #: Unsaved changes: key in the store -> text, or None for a removed document.
    _unsaved: dict[str, str | None] = field(default_factory=dict)
    #: (kind, name) of an unsaved document -> its last saved version, None for a new document.
    _saved_versions: dict[tuple[str, str], Document | None] = field(default_factory=dict)
    _jobs_by_number: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.created_ms = self.now_ms()

    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    def arn(self, kind: str, name: str) -> str:
        return names.batch_arn(self.region, kind, name)

    # -- documents --------------------------------------------------------------------------------

    def get(self, kind: str, name_or_arn: str) -> Document | None:
        return self._documents[kind].get(names.strip_arn(name_or_arn))

    def require(self, kind: str, name_or_arn: str) -> Document:
        """Return the document; raise InvalidRequestError if it does not exist."""
        document = self.get(kind, name_or_arn)
        if document is None:
            raise InvalidRequestError(f"{name_or_arn} does not exist")
        return document

    def require_new(self, kind: str, name: str) -> None:
        """Raise InvalidRequestError if the name is in use."""
        if self.get(kind, name) is not None:
            raise InvalidRequestError("Object already exists")

    def documents(self, kind: str) -> list[Document]:
        """Return all documents of a kind, oldest first."""
        return list(self._documents[kind].values())

    def items(self, kind: str) -> Iterator[tuple[str, Document]]:
        yield from self._documents[kind].items()

    def put(self, kind: str, name: str, document: Document) -> None:
        self._saved_versions.setdefault((kind, name), self._documents[kind].get(name))
        self._documents[kind][name] = document
        self._unsaved[f"{kind}/{name}"] = json.dumps(document)

    def remove(self, kind: str, name: str) -> None:
        self._saved_versions.setdefault((kind, name), self._documents[kind].get(name))
        self._documents[kind].pop(name, None)
        self._unsaved[f"{kind}/{name}"] = None

    def save(self, new_job: JobRow | None = None) -> None:
        """Store all unsaved changes, and the row of a new job, in one transaction.

        If the transaction fails, the changes are undone in memory too.
        """
        changes, self._unsaved = self._unsaved, {}
        saved_versions, self._saved_versions = self._saved_versions, {}
        if not changes and new_job is None:
            return
        try:
            self.store.commit(new_jobs=[new_job] if new_job else (), values=changes.items())
        except BatchyardError:
            for (kind, name), document in saved_versions.items():
                if document is None:
                    self._documents[kind].pop(name, None)
                else:
                    self._documents[kind][name] = document
            raise

    def load(self) -> None:
        """Read the documents that an earlier process saved."""
        for key, text in self.store.values():
            kind, slash, name = key.partition("/")
            if slash and kind in self._documents:
                self._documents[kind][name] = json.loads(text)
        # The store orders values by key, but ListJobs needs the order of submission.
        self._documents[JOB] = {row.id: self._documents[JOB][row.id] for row in self.store.jobs()}

    # -- jobs -------------------------------------------------------------------------------------

    def add_job(self, job: Job, document: Document, row: JobRow) -> None:
        """Let the loop run a job that the scheduler has accepted."""
        self.loop.add(job, self.task_maker(row.number, document), row)

    def job_with_number(self, number: int) -> Document | None:
        """Return the document of the job that has this number in the store."""
        if number not in self._jobs_by_number:
            self._jobs_by_number = {
                self.loop.row(job_id).number: job_id for job_id in self._documents[JOB]
            }
        job_id = self._jobs_by_number.get(number)
        return None if job_id is None else self._documents[JOB][job_id]
