"""Jobs that AWS Batch has besides the recorded ones, because their SubmitJob was repeated.

SubmitJob is repeated if its answer was lost and no job appeared in the time that AWS may need to
show it. If one appears even later, the step has two jobs. The recorded one counts, since other jobs
depend on it; the second one is terminated by whoever looks at the run.
"""

from __future__ import annotations

from collections.abc import Callable

from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState
from batchyard.engines.aws.job_ids import JobIds
from batchyard.errors import BatchyardError

_REASON = "a second job of the same step: {recorded_id} counts"
#: Seconds after the last SubmitJob of a step in which its second job may still appear.
_APPEARS_S = 3600.0


class RepeatedJobs:
    def __init__(self, batch: Batch, job_ids: JobIds, clock: Callable[[], float]) -> None:
        self._batch = batch
        self._job_ids = job_ids
        self._clock = clock
        #: Id of a second job -> a sentence about it.
        self._sentences: dict[str, str] = {}
        self._problem = ""

    @property
    def sentence(self) -> str:
        """What was seen of second jobs; empty if there are none."""
        return "; ".join(filter(None, [*self._sentences.values(), self._problem]))

    def terminate(self, *, is_run_over: bool = False) -> None:
        """Terminate second jobs that are not over.

        No call if no SubmitJob was repeated. A short run can be over before its second job appears,
        so the machine that submitted it looks for these during an hour. A user who may not list or
        terminate jobs gets a sentence instead.
        """
        self._problem = ""
        journal = self._job_ids.local_journal if is_run_over else self._job_ids.journal
        for part in self._job_ids.rendered.parts:
            recorded_id = journal.ids.get(part.name)
            if part.name not in journal.repeated or recorded_id is None:
                continue
            if is_run_over and not self._may_appear(journal.intended_at.get(part.name, 0.0)):
                continue
            try:
                job_ids = self._batch.find_by_name(str(part.request["jobQueue"]), part.name)
                self._terminate_others(part.step, recorded_id, job_ids)
            except BatchyardError as exc:
                self._problem = f"{part.step} may have a second job: {exc.message}"

    def _may_appear(self, submitted_s: float) -> bool:
        return self._clock() - submitted_s < _APPEARS_S

    def _terminate_others(self, step: str, recorded_id: str, job_ids: list[str]) -> None:
        new_ids = [
            job_id for job_id in job_ids if job_id != recorded_id and job_id not in self._sentences
        ]
        jobs = self._batch.describe(new_ids) if new_ids else {}
        for job_id in new_ids:
            is_over = job_id in jobs and JobState(jobs[job_id]["status"]).is_terminal
            if not is_over:
                self._batch.terminate(job_id, _REASON.format(recorded_id=recorded_id))
            self._sentences[job_id] = (
                f"AWS had a second job of {step}, {job_id}, since an answer to SubmitJob was lost: "
                f"it {'has ended' if is_over else 'is terminated'}, and {recorded_id} counts"
            )
