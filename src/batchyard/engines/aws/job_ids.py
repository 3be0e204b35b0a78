"""The parts of a run and the ids of their jobs: from the run's journal, and from S3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from batchyard.engines.aws import render
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.render import Part, Rendered
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.aws.submission_journal import Journal, read_shared_ids
from batchyard.engines.aws.target import Target
from batchyard.plan import Plan
from batchyard.s3_layout import JOB_IDS


class JobIds:
    """Which parts of a run are jobs of AWS Batch, and by which ids."""

    def __init__(
        self,
        plan: Plan,
        target: Target,
        journal_path: Path,
        files: RunFiles,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._target = target
        self._journal_path = journal_path
        self._files = files
        self._clock = clock
        self._rendered: Rendered | None = None
        self._journal: Journal | None = None

    @property
    def rendered(self) -> Rendered:
        if self._rendered is None:
            self._rendered = render.render(self._plan, self._target)
        return self._rendered

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._journal_path)
            if not self.is_complete:
                # Another machine may have submitted more.
                shared = self._files.read_remote(JOB_IDS) or {}
                for name, job_id, at_s in read_shared_ids(shared, self._clock()):
                    if name not in self._journal.ids:
                        self._journal.record_submitted(name, job_id, at_s)
                for name in shared.get("repeated", ()):
                    self._journal.mark_repeated(name)
        return self._journal

    @property
    def local_journal(self) -> Journal:
        """The journal as far as this machine has it, without a call of S3."""
        return Journal(self._journal_path) if self._journal is None else self._journal

    def record(self, part: Part, job_id: str) -> None:
        self.journal.record_submitted(part.name, job_id, self._clock())

    def share(self) -> None:
        """Write the ids to S3, for other machines."""
        self._files.write(JOB_IDS, self.journal.to_json())

    @property
    def is_complete(self) -> bool:
        """Whether every part is submitted."""
        return all(part.name in self.journal.ids for part in self.rendered.parts)

    @property
    def parts(self) -> list[Part]:
        """The parts that run commands, without the barriers."""
        return [part for part in self.rendered.parts if not part.is_barrier]

    def id_of(self, part: Part) -> str:
        return self.journal.ids.get(part.name, UNSUBMITTED + part.name)

    def parts_with_ids(self) -> list[tuple[Part, str]]:
        return [(part, self.id_of(part)) for part in self.parts]

    @property
    def ids(self) -> list[str]:
        return [self.id_of(part) for part in self.parts]
