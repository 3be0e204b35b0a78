"""All that the endpoint knows: resources and jobs as AWS describes them, over the engine's scheduler, loop and store.

A *document* is what AWS would answer about a thing, as far as it does not change by itself: a compute environment, a
queue, a job. Documents live in memory and, as JSON, in the store: ``keep`` and ``forget`` change both, ``save`` makes
it durable. Whoever uses a yard has the loop's lock: see ``Loop.call``.
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
from batchyard.errors import BatchyardError

Document = dict[str, Any]

#: kinds of documents
ENVIRONMENT, QUEUE, POLICY, DEFINITION, CONSUMABLE, JOB, STOP = (
    "compute-environment",
    "job-queue",
    "scheduling-policy",
    "job-definition",
    "consumable-resource",
    "job",
    #: who has asked for a job's end, and why
    "stop",
)
KINDS = (ENVIRONMENT, QUEUE, POLICY, DEFINITION, CONSUMABLE, JOB, STOP)


@dataclass(slots=True)
class EndpointState:
    scheduler: Scheduler
    loop: Loop
    store: Store
    region: str
    #: what this machine gives to all compute environments together
    machine: Resources
    #: an instance type's name -> what it offers to jobs; None where nobody knows the type
    instance_type: Callable[[str], Resources | None]
    #: a family's name, as `g5` -> its types
    instance_family: Callable[[str], list[str]]
    #: makes the tasks of a job, from its number and its document
    task_maker: Callable[[int, Document], TaskMaker]
    #: ends all task ids of this endpoint
    salt: str
    clock: Callable[[], float] = time.time
    _documents: dict[str, dict[str, Document]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    #: key in the store -> text, or None to be removed
    _unsaved: dict[str, str | None] = field(default_factory=dict)
    #: what the unsaved documents were before, None where there was none
    _before: dict[tuple[str, str], Document | None] = field(default_factory=dict)

    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    def arn(self, kind: str, name: str) -> str:
        return names.arn(self.region, kind, name)

    # -- documents ------------------------------------------------------------------------------------------

    def get(self, kind: str, name_or_arn: str) -> Document | None:
        return self._documents[kind].get(names.bare(name_or_arn))

    def all(self, kind: str) -> list[Document]:
        """In the order in which they were made."""
        return list(self._documents[kind].values())

    def items(self, kind: str) -> Iterator[tuple[str, Document]]:
        yield from self._documents[kind].items()

    def keep(self, kind: str, name: str, document: Document) -> Document:
        self._before.setdefault((kind, name), self._documents[kind].get(name))
        self._documents[kind][name] = document
        self._unsaved[f"{kind}/{name}"] = json.dumps(document)
        return document

    def forget(self, kind: str, name: str) -> None:
        self._before.setdefault((kind, name), self._documents[kind].get(name))
        self._documents[kind].pop(name, None)
        self._unsaved[f"{kind}/{name}"] = None

    def save(self, new_job: JobRow | None = None) -> None:
        """Everything kept or forgotten since the last time, in one transaction; with it a new job. What cannot be saved
        has not happened."""
        values, self._unsaved = self._unsaved, {}
        before, self._before = self._before, {}
        if not values and new_job is None:
            return
        try:
            self.store.commit(new_jobs=[new_job] if new_job else (), values=values.items())
        except BatchyardError:
            for (kind, name), document in before.items():
                if document is None:
                    self._documents[kind].pop(name, None)
                else:
                    self._documents[kind][name] = document
            raise

    def load(self) -> None:
        """The documents that an earlier process saved."""
        for key, text in self.store.values():
            kind, slash, name = key.partition("/")
            if slash and kind in self._documents:
                self._documents[kind][name] = json.loads(text)
        # The store has values in the order of their keys, and ListJobs needs jobs in that of their submission.
        self._documents[JOB] = {row.id: self._documents[JOB][row.id] for row in self.store.jobs()}

    # -- jobs -----------------------------------------------------------------------------------------------

    def enter(self, job: Job, document: Document, row: JobRow) -> None:
        """A job that the scheduler knows: from now on the loop runs it."""
        self.loop.add(job, self.task_maker(row.number, document), row)
