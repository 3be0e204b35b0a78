"""The state of one region: its resources and jobs, and the engine that runs all jobs.

The regions of an endpoint share the engine, in which queues, compute environments and consumable
resources therefore have their ARNs as names.

A *document* is the part of AWS's description of a resource or job that does not change by itself.
Documents are held in memory and stored as JSON: ``put`` and ``remove`` change both, ``save`` makes
the changes durable. Code that uses the state holds the lock of the loop (see ``Loop.call``).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from batchyard.batch.jobs import Job, Resources
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.loop import Loop, TaskMaker
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.ecs.records import EcsState
from batchyard.emulator.faults import FaultInjector, is_observing
from batchyard.emulator.log_files import LogFiles
from batchyard.emulator.user_log_groups import NoUserLogGroups, UserLogGroups
from batchyard.errors import BatchyardError

Document = dict[str, Any]

#: Kinds of documents. The first six are spelled as in ARNs.
(
    ENVIRONMENT,
    QUEUE,
    POLICY,
    DEFINITION,
    CONSUMABLE,
    JOB,
    STOP_REQUESTS,
    LOG_GROUP,
    DELETED_STREAM,
) = (
    "compute-environment",
    "job-queue",
    "scheduling-policy",
    "job-definition",
    "consumable-resource",
    "job",
    #: The CancelJob and TerminateJob requests of a job, with their reasons.
    "stop",
    "log-group",
    #: A log stream of a job that was deleted, as `<log group>:<stream>`.
    "deleted-log-stream",
)
#: Kinds of resources of AWS Batch.
ARN_KINDS = (ENVIRONMENT, QUEUE, POLICY, DEFINITION, CONSUMABLE, JOB)
KINDS = (*ARN_KINDS, STOP_REQUESTS, LOG_GROUP, DELETED_STREAM)
#: Kind -> the word for it in AWS's message about a resource that does not exist.
_NOUNS = {
    ENVIRONMENT: "ComputeEnvironment",
    QUEUE: "JobQueue",
    POLICY: "SchedulingPolicy",
    CONSUMABLE: "ConsumableResource",
}


class SavedDocument(NamedTuple):
    """A document as the store has it."""

    region: str
    kind: str
    name: str
    #: JSON
    text: str

    @classmethod
    def parse(cls, key: str, text: str, default_region: str) -> SavedDocument | None:
        """Return the document with this key in the store; None for any other value.

        Earlier endpoints had one region, which was no part of the keys.
        """
        first, _, rest = key.partition("/")
        if first in KINDS:
            return cls(default_region, first, rest, text)
        kind, slash, name = rest.partition("/")
        return cls(first, kind, name, text) if slash and kind in KINDS else None


@dataclass(frozen=True, slots=True)
class HostDelays:
    """How quickly instances come and go; on AWS, both take minutes."""

    #: Time from the launch of an instance until jobs start on it.
    launch_s: float = 0.0
    #: An instance ends after this time without jobs.
    idle_s: float = 1.0


@dataclass(slots=True)
class EndpointState:
    scheduler: Scheduler
    loop: Loop
    store: Store
    log_files: LogFiles
    region: str
    #: Resources of this machine, which all compute environments share.
    machine: Resources
    #: Makes the tasks of a job from its number and its document.
    task_maker: Callable[[int, Document], TaskMaker]
    #: The last 16 digits of all task ids of this endpoint.
    salt: str
    host_delays: HostDelays = HostDelays()
    #: Returns the availability zone of a subnet.
    zone_of_subnet: Callable[[str], str] = lambda subnet: "us-east-1a"
    clock: Callable[[], float] = time.time
    faults: FaultInjector = field(default_factory=FaultInjector)
    #: The log groups that are not of jobs.
    user_log_groups: UserLogGroups = field(default_factory=NoUserLogGroups)
    #: Tasks, task definitions and container instances of ECS.
    ecs: EcsState = field(default_factory=EcsState)
    #: Numbers of new jobs, which all regions share.
    job_numbers: Iterator[int] = field(default_factory=count)
    created_ms: int = field(init=False)
    _documents: dict[str, dict[str, Document]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    #: Unsaved changes: key in the store -> text, or None for a removed document.
    _unsaved: dict[str, str | None] = field(default_factory=dict)
    #: (kind, name) of an unsaved document -> its last saved version, None for a new document.
    _saved_versions: dict[tuple[str, str], Document | None] = field(default_factory=dict)
    _jobs_by_number: dict[int, str] = field(default_factory=dict)
    #: (job, child) that has ended -> the document of the job, and members of the description that
    #: do not change any more.
    ended_members: dict[tuple[str, int], tuple[Document, Document]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.created_ms = self.now_ms()

    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    def newest_visible_ms(self, lag_s: float) -> int:
        """Return the time of the newest event that a client sees if answers lag."""
        # Without a lag all is visible, also after the clock of the machine was set back.
        has_lag = lag_s > 0 and not is_observing.get()
        return self.now_ms() - int(lag_s * 1000) if has_lag else sys.maxsize

    def arn(self, kind: str, name: str) -> str:
        return names.batch_arn(self.region, kind, name)

    # -- ends of children -------------------------------------------------------------------------

    def read_row(self, job_id: str) -> JobRow:
        """Return the row of a job, with all that has ended until now."""
        self.loop.record([job_id])
        return self.loop.row(job_id)

    def read_attempts(
        self, job_id: str, child: int | None = None, *, started_only: bool = False
    ) -> Iterator[AttemptRow]:
        """Return the attempts of a job, or of one child, that have ended until now.

        Their output is in the files then. The loop writes while requests are answered, so that the
        store alone may lack the last ones.
        """
        number = self.read_row(job_id).number
        return self.store.attempts(number, child=child, started_only=started_only)

    # -- documents --------------------------------------------------------------------------------

    def name_of(self, kind: str, name_or_arn: str) -> str | None:
        """Return the name of a resource, or None for an ARN of another account, region or kind."""
        if not name_or_arn.startswith("arn:"):
            return name_or_arn
        name = names.strip_arn(name_or_arn)
        return name if name_or_arn == self.arn(kind, name) else None

    def get(self, kind: str, name_or_arn: str) -> Document | None:
        return self._documents[kind].get(self.name_of(kind, name_or_arn) or "")

    def require(self, kind: str, name_or_arn: str) -> Document:
        """Return the document; raise InvalidRequestError if it does not exist."""
        document = self.get(kind, name_or_arn)
        if document is None:
            raise InvalidRequestError(f"{_NOUNS.get(kind, kind)} {name_or_arn} not found.")
        return document

    def select(self, kind: str, names_or_arns: Iterable[str]) -> list[Document]:
        """Return the named documents that exist, oldest first."""
        requested = {self.name_of(kind, name) for name in names_or_arns}
        return [document for name, document in self._documents[kind].items() if name in requested]

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
        self._unsaved[self._key(kind, name)] = json.dumps(document)

    def remove(self, kind: str, name: str) -> None:
        self._saved_versions.setdefault((kind, name), self._documents[kind].get(name))
        self._documents[kind].pop(name, None)
        self._unsaved[self._key(kind, name)] = None

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

    def _key(self, kind: str, name: str) -> str:
        """Return the key of a document in the store."""
        return f"{self.region}/{kind}/{name}"

    def load(self, saved: Iterable[SavedDocument], rows: Iterable[JobRow]) -> None:
        """Take the documents of this region that an earlier process saved.

        ``rows``: the jobs of all regions in the order of submission, which ListJobs needs.
        """
        for document in saved:
            self._documents[document.kind][document.name] = json.loads(document.text)
        jobs = self._documents[JOB]
        self._documents[JOB] = {row.id: jobs[row.id] for row in rows if row.id in jobs}

    # -- jobs -------------------------------------------------------------------------------------

    def add_job(self, job: Job, document: Document, row: JobRow) -> None:
        """Let the loop run a job that the scheduler has accepted."""
        self.loop.add(job, self.task_maker(row.number, document), row)

    def forget_jobs(self) -> None:
        """Forget the numbers of jobs, whose documents have been removed."""
        self._jobs_by_number = {}
        self.ended_members.clear()

    def job_with_number(self, number: int) -> Document | None:
        """Return the document of the job, or container of ECS, with this number in the store."""
        if number in self.ecs.job_ids_by_number:
            return self.ecs.job_documents[self.ecs.job_ids_by_number[number]]
        if number not in self._jobs_by_number:
            self._jobs_by_number = {
                self.loop.row(job_id).number: job_id for job_id in self._documents[JOB]
            }
        job_id = self._jobs_by_number.get(number)
        return None if job_id is None else self._documents[JOB][job_id]
