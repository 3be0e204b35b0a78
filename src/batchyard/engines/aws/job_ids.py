"""The parts of a run and the ids of their jobs: from the run's journal, and from S3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from batchyard.engines.aws import render
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.render import Part, Rendered
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.aws.step_scales import StepScales
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
        scales: StepScales,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._target = target
        self._journal_path = journal_path
        self._files = files
        self._scales = scales
        self._clock = clock
        self._rendered: Rendered | None = None
        #: Parts that `scale` has added; None: not read yet.
        self._added: tuple[Part, ...] | None = None
        self._journal: Journal | None = None

    @property
    def rendered(self) -> Rendered:
        """The plan in the shapes of AWS Batch, with the parts that `scale` has added."""
        # Only dynamic steps are scaled: of other runs no journal is read for it.
        is_scalable = any(job.is_dynamic for job in self._plan.jobs)
        if self._added is None and is_scalable and self.journal.ids:
            self.refresh()
        return replace(self._own, parts=(*self._own.parts, *(self._added or ())))

    @property
    def _own(self) -> Rendered:
        """As the plan is, without added parts."""
        if self._rendered is None:
            self._rendered = render.render(self._plan, self._target)
        return self._rendered

    def refresh(self) -> None:
        """Look for parts that `scale` has added since, in another process or on another machine."""
        scales = self._scales.read_all()
        self._added = tuple(
            part
            for step, scale in scales.items()
            for part in render.render_added(
                self._own, self._plan.job(step), self._target, scale.added
            )
        )
        if not self._are_submitted(self._added):
            self._journal = Journal(self._journal_path)
        if not self._are_submitted(self._added):
            self._learn_ids(self.journal)

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._journal_path)
            if not self.is_complete:
                # Another machine may have submitted more.
                self._learn_ids(self._journal)
        return self._journal

    def _learn_ids(self, journal: Journal) -> None:
        """Add the ids that other machines have shared to the journal."""
        shared = self._files.read_remote(JOB_IDS) or {}
        for name, job_id, at_s in read_shared_ids(shared, self._clock()):
            if name not in journal.ids:
                journal.record_submitted(name, job_id, at_s)
        for name in shared.get("repeated", ()):
            journal.mark_repeated(name)

    @property
    def local_journal(self) -> Journal:
        """The journal as far as this machine has it, without a call of S3."""
        return Journal(self._journal_path) if self._journal is None else self._journal

    def record(self, part: Part, job_id: str) -> None:
        self.journal.record_submitted(part.name, job_id, self._clock())

    def share(self) -> None:
        """Write the ids to S3, for other machines, beside those that these have shared."""
        if self._added:
            self._learn_ids(self.journal)
        self._files.write(JOB_IDS, self.journal.to_json())

    @property
    def is_complete(self) -> bool:
        """Whether every part of the plan is submitted."""
        return self._are_submitted(self._own.parts)

    def _are_submitted(self, parts: Iterable[Part]) -> bool:
        return all(part.name in self.journal.ids for part in parts)

    @property
    def parts(self) -> list[Part]:
        """The parts that run commands, without the barriers.

        A part that `scale` has added counts from its submission on.
        """
        return [
            part
            for part in self.rendered.parts
            if not part.is_barrier and (not part.is_added or part.name in self.journal.ids)
        ]

    def id_of(self, part: Part) -> str:
        return self.journal.ids.get(part.name, UNSUBMITTED + part.name)

    def parts_with_ids(self) -> list[tuple[Part, str]]:
        return [(part, self.id_of(part)) for part in self.parts]

    @property
    def ids(self) -> list[str]:
        return [self.id_of(part) for part in self.parts]
