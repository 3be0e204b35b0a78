"""Which of a run's parts are jobs of AWS's by now, and by which ids: from its folder, and from S3 what others did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from batchyard.engines.aws import render
from batchyard.engines.aws.details import UNSUBMITTED
from batchyard.engines.aws.journal import Journal, of_another
from batchyard.engines.aws.kept import Kept
from batchyard.engines.aws.render import Part, Rendered, Target
from batchyard.plan import Plan
from batchyard.s3_layout import JOB_IDS


class Submitted:
    def __init__(
        self, plan: Plan, target: Target, path: Path, kept: Kept, clock: Callable[[], float]
    ) -> None:
        """``path``: the journal's."""
        self._plan = plan
        self._target = target
        self._path = path
        self._kept = kept
        self._clock = clock
        self._rendered: Rendered | None = None
        self._journal: Journal | None = None
        #: when this process came upon it the journal had been written last
        self.found_at = 0.0

    @property
    def rendered(self) -> Rendered:
        if self._rendered is None:
            self._rendered = render.render(self._plan, self._target)
        return self._rendered

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._path)
            self.found_at = self._journal.changed_at
            if not self.is_whole:
                # Another machine may have gone on with it.
                for name, job_id, at in of_another(self._kept.there(JOB_IDS) or {}, self._clock()):
                    if name not in self._journal.ids:
                        self._journal.submitted(name, job_id, at)
        return self._journal

    def note(self, part: Part, job_id: str) -> None:
        self.journal.submitted(part.name, job_id, self._clock())

    def keep(self) -> None:
        """For other machines."""
        self._kept.put(JOB_IDS, self.journal.to_json())

    @property
    def is_whole(self) -> bool:
        return all(part.name in self.journal.ids for part in self.rendered.parts)

    @property
    def parts(self) -> list[Part]:
        """Those that do something: no barriers."""
        return [part for part in self.rendered.parts if not part.is_barrier]

    def id_of(self, part: Part) -> str:
        return self.journal.ids.get(part.name, UNSUBMITTED + part.name)

    def parts_with_ids(self) -> list[tuple[Part, str]]:
        return [(part, self.id_of(part)) for part in self.parts]

    @property
    def ids(self) -> list[str]:
        return [self.id_of(part) for part in self.parts]
