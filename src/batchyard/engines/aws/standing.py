"""How a run stands: its jobs as AWS describes them, as they were kept when they ended, or as success records tell.

AWS forgets a job a week after its end. Whoever looks at a run that is over keeps what its jobs came to (final.json);
where nobody has looked in time, the worker's records in S3 tell what succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState
from batchyard.engines.aws import details, tally
from batchyard.engines.aws.children import number_of
from batchyard.engines.aws.definitions import needs_worker
from batchyard.engines.aws.details import UNSUBMITTED, Final
from batchyard.engines.aws.kept import Kept
from batchyard.engines.aws.records import Ledger
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.submitted import Submitted
from batchyard.engines.base import JobDetail, Overview
from batchyard.plan import Plan
from batchyard.s3_layout import FINAL_STATES, STOP_REQUEST

#: AWS Batch describes a job for at least so long after its end (facts, 1.1)
_REMEMBERED_S = 7 * 86_400
#: states of a child that nothing holds back any more: what it waited for has succeeded
_LET_GO = (JobState.RUNNABLE, JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED)


class Standing:
    def __init__(
        self,
        plan: Plan,
        batch: Batch,
        submitted: Submitted,
        kept: Kept,
        ledger: Ledger,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._batch = batch
        self._submitted = submitted
        self._kept = kept
        self._ledger = ledger
        self._clock = clock
        #: id of a job that AWS has forgotten -> its children that succeeded
        self.forgotten: dict[str, set[int]] = {}
        #: steps of which nothing tells which children succeeded
        self._untold: set[str] = set()

    def overview(self) -> Overview:
        """One DescribeJobs for each hundred jobs, at the run's end what ``tally`` takes, and none from then on."""
        final = self.final()
        if final is not None and final.was_stopped is not None:
            return details.overview(final.jobs, was_stopped=final.was_stopped)
        found = self.details()
        is_given_up = not self._submitted.is_whole and self.was_stopped
        if is_given_up:
            found = [details.given_up(detail) for detail in found]
        is_over = all(detail.state.is_terminal for detail in found)
        is_bad = any(detail.state is JobState.FAILED for detail in found)
        was_stopped = is_over and is_bad and self.was_stopped
        if is_over:
            found = self._ended(found, was_stopped)
        is_interrupted = not self._submitted.is_whole and not is_given_up and not is_over
        return details.overview(found, was_stopped=was_stopped, is_interrupted=is_interrupted)

    @property
    def was_stopped(self) -> bool:
        """Somebody asked for the end of all of it: what is not submitted never will be."""
        return self._kept.get(STOP_REQUEST) is not None

    @property
    def source(self) -> str:
        """Where what was said of the run comes from, in a sentence; empty where it is AWS Batch's own word."""
        said = []
        if self.forgotten:
            count = f"{len(self.forgotten)} of the run's {len(self._submitted.ids)} jobs"
            said.append(
                f"AWS Batch has forgotten {count}: what succeeded is told by {self._ledger.name}"
            )
        if self._untold:
            steps = ", ".join(sorted(self._untold))
            said.append(
                f"nothing tells what succeeded of {steps}: a plain command leaves no record"
            )
        return "; ".join(said)

    def details(self) -> list[JobDetail]:
        final = self.final()
        if final is not None:
            return list(final.jobs)
        parts = self._submitted.parts_with_ids()
        asked = [job_id for _, job_id in parts if not job_id.startswith(UNSUBMITTED)]
        # An array's first child tells when it began, in the same call.
        firsts = [f"{job_id}:0" for part, job_id in parts if part.size > 1 and job_id in asked]
        known = self._batch.describe(asked + firsts)
        gone = [part for part, job_id in parts if self._is_forgotten(part, job_id, known)]
        if asked and (gone or not known):
            # Whoever saw the run end has kept what its jobs came to.
            final = self.final(everywhere=True)
            if final is not None:
                return list(final.jobs)
        found = [
            details.job_detail(part, job_id, known.get(job_id), known.get(f"{job_id}:0"))
            for part, job_id in parts
        ]
        return self._by_records(found, gone) if gone else found

    def unfinished(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """(step -> children without success, by their numbers in the step; step -> commands that did succeed)."""
        ran, told = self._succeeded()
        jobs = [job for job in self._plan.jobs if len(ran[job.step]) < job.size]
        by_records = self._ledger.succeeded([job.step for job in jobs], ran)
        children_left: dict[str, list[int]] = {job.step: [] for job in self._plan.jobs}
        for job in jobs:
            done = ran[job.step] | told[job.step] | by_records[job.step]
            children_left[job.step] = [
                job.index_in_step(child) for child in range(job.size) if child not in done
            ]
        with_records = [job.step for job in jobs if children_left[job.step] and needs_worker(job)]
        return children_left, {step: self._ledger.done(step) for step in with_records}

    def final(self, *, everywhere: bool = False) -> Final | None:
        """How the run ended, as it is kept here, or ``everywhere``, in S3."""
        kept = self._kept.here(FINAL_STATES)
        if kept is not None:
            return details.final_from_json(kept)
        kept = self._kept.there(FINAL_STATES) if everywhere else None
        final = None if kept is None else details.final_from_json(kept)
        # Who stopped the run may not have known all that was being submitted just then.
        is_of_these = (
            final is not None and [detail.id for detail in final.jobs] == self._submitted.ids
        )
        return final if is_of_these else None

    # -- what AWS has forgotten -------------------------------------------------------------------------------

    def _is_forgotten(self, part: Part, job_id: str, known: Mapping[str, Any]) -> bool:
        """Not merely unknown, as a job may be in its first seconds, or to another account."""
        at = self._submitted.journal.submitted_at.get(part.name)
        return at is not None and job_id not in known and self._clock() - at > _REMEMBERED_S

    def _by_records(self, found: Sequence[JobDetail], gone: Sequence[Part]) -> list[JobDetail]:
        """The jobs, those that AWS has forgotten by what else tells of them."""
        begun = {
            detail.step
            for detail in found
            if detail.count(*_LET_GO) or detail.started_ms is not None
        }
        told = self._ledger.succeeded({part.step for part in gone}, {}, begun)
        by_id = {detail.id: detail for detail in found}
        for part in gone:
            job_id = self._submitted.id_of(part)
            has_records = needs_worker(self._plan.job(part.step))
            good = {child for child in range(part.size) if part.offset + child in told[part.step]}
            self.forgotten[job_id] = good
            if len(good) < part.size and not has_records:
                self._untold.add(part.step)
            last_ms = self._ledger.of(part.step).last_ms if has_records else None
            by_id[job_id] = details.forgotten(part, job_id, len(good), has_records, last_ms)
        return list(by_id.values())

    # -- what it came to --------------------------------------------------------------------------------------

    def _ended(self, found: list[JobDetail], was_stopped: bool) -> list[JobDetail]:
        """The jobs of a run that is over, kept from now on."""
        # One without a time is forgotten already, or was never submitted.
        is_known = all(detail.created_ms or detail.id.startswith(UNSUBMITTED) for detail in found)
        if not is_known or self.final() is not None:
            return found
        final = self.final(everywhere=True)
        if final is None or final.was_stopped is None:
            jobs, succeeded = tally.tally(self._batch, self._plan, self._submitted.parts, found)
            final = Final(tuple(jobs), was_stopped, succeeded)
        self._kept.put(FINAL_STATES, details.final_to_json(final))
        return list(final.jobs)

    def _succeeded(self) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
        """Step -> its children that succeeded, by their positions in the plan's job: by AWS's word or what is kept of
        it, so that they have run; and those of forgotten jobs, of which some may have had nothing to run."""
        known = self.details()
        final = self.final(everywhere=True)
        ran: dict[str, set[int]] = {job.step: set() for job in self._plan.jobs}
        told: dict[str, set[int]] = {job.step: set() for job in self._plan.jobs}
        for part, detail in zip(self._submitted.parts, known, strict=True):
            if detail.id in self.forgotten:
                told[part.step].update(part.offset + child for child in self.forgotten[detail.id])
            else:
                own = self._succeeded_of(part, detail, final)
                ran[part.step].update(part.offset + child for child in own)
        return ran, told

    def _succeeded_of(self, part: Part, detail: JobDetail, final: Final | None) -> Iterable[int]:
        if detail.count(JobState.SUCCEEDED) == part.size:
            return range(part.size)
        if part.size == 1 or detail.id.startswith(UNSUBMITTED):
            return ()
        kept = tally.positions(final.succeeded, detail.id) if final is not None else None
        if kept is not None:
            return kept
        if final is not None and not self._batch.describe([detail.id]):
            # Of more children than are tallied, or by an older batchyard: the counts alone were kept.
            if not needs_worker(self._plan.job(part.step)):
                self._untold.add(part.step)
            return ()
        return map(number_of, self._batch.children(detail.id, JobState.SUCCEEDED))
