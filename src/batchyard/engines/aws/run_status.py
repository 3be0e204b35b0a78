"""The state of a run's jobs: from AWS Batch, from the stored end states, or from success records.

AWS Batch forgets a job a week after its end. Whoever looks at a run that is over stores the end
states of its jobs (final.json). Where nobody has looked in time, the worker's records in S3 show
which children succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState
from batchyard.batch.limits import MAX_DESCRIBED_JOBS
from batchyard.engines.aws import attempt_counts, from_aws
from batchyard.engines.aws.changed_children import number_of
from batchyard.engines.aws.definitions import needs_worker
from batchyard.engines.aws.from_aws import UNSUBMITTED, EndStates
from batchyard.engines.aws.job_ids import JobIds
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.aws.success_records import SuccessRecords
from batchyard.engines.base import CommandCounts, JobDetail, Overview, Unfinished
from batchyard.plan import Plan
from batchyard.s3_layout import FINAL_STATES, HELD, STOP_REQUEST

#: AWS Batch describes a job for at least so long after its end (facts, 1.1).
_REMEMBERED_S = 7 * 86_400
_BEGUN = (JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED)
#: States of a child whose dependencies have all succeeded.
_UNBLOCKED = (JobState.RUNNABLE, JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED)


class RunStatusReader:
    def __init__(
        self,
        plan: Plan,
        batch: Batch,
        job_ids: JobIds,
        files: RunFiles,
        records: SuccessRecords,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._batch = batch
        self._job_ids = job_ids
        self._files = files
        self._records = records
        self._clock = clock
        #: Id of a job that AWS has forgotten -> its children that succeeded.
        self.forgotten: dict[str, set[int]] = {}
        #: Steps of which nothing shows which children succeeded.
        self._unknown_steps: set[str] = set()
        #: Id -> description, of the other children that the last overview has described.
        self.described_children: Mapping[str, Any] = {}

    def overview(self, child_ids: Sequence[str] = ()) -> Overview:
        """Return the state of the run.

        One DescribeJobs for each hundred jobs; at the end of the run also the calls of
        ``attempt_counts``; none once the end states are stored. ``child_ids``: children that are
        described, too, as far as the last of these calls has room.
        """
        self.described_children = {}
        stored = self.end_states()
        if stored is not None and stored.was_stopped is not None:
            return from_aws.make_overview(stored.jobs, was_stopped=stored.was_stopped)
        jobs = self.describe_jobs(child_ids)
        is_given_up = not self._job_ids.is_complete and self.was_stopped
        if is_given_up:
            jobs = [from_aws.give_up(job) for job in jobs]
        if all(job.state.is_terminal for job in jobs):
            return self._end_run(jobs)
        is_interrupted = not self._job_ids.is_complete and not is_given_up
        return from_aws.make_overview(jobs, was_stopped=False, is_interrupted=is_interrupted)

    def _end_run(self, jobs: list[JobDetail]) -> Overview:
        """Store the end states of the jobs and return the state of the run, which is over."""
        if any(from_aws.has_unfinished_commands(job) for job in jobs):
            reason = self.held_reason
            jobs = jobs if reason is None else [from_aws.hold_back(job, reason) for job in jobs]
        has_failures = any(job.state is JobState.FAILED for job in jobs)
        was_stopped = has_failures and self.was_stopped
        end_states = self._store_end_states(jobs, was_stopped)
        return from_aws.make_overview(end_states, was_stopped=was_stopped)

    @property
    def was_stopped(self) -> bool:
        """Whether a user has stopped the whole run: no further job of it is submitted."""
        return self._files.read(STOP_REQUEST) is not None

    @property
    def held_reason(self) -> str | None:
        """Why no further child starts; None if the run is not held."""
        document = self._files.read(HELD)
        return None if document is None else str(document["reason"])

    @property
    def answer_source(self) -> str:
        """Where the answers came from, in a sentence; empty where from AWS Batch itself."""
        sentences = []
        if self.forgotten:
            count = f"{len(self.forgotten)} of the run's {len(self._job_ids.ids)} jobs"
            sentences.append(
                f"AWS Batch has forgotten {count}: the success records in "
                f"{self._records.address} show what succeeded"
            )
        if self._unknown_steps:
            steps = ", ".join(sorted(self._unknown_steps))
            sentences.append(
                f"nothing shows what succeeded of {steps}: a plain command leaves no record"
            )
        return "; ".join(sentences)

    def describe_jobs(self, child_ids: Sequence[str] = ()) -> list[JobDetail]:
        """Return the jobs of all parts, in order. ``child_ids``: see ``overview``."""
        stored = self.end_states()
        if stored is not None:
            return list(stored.jobs)
        parts = self._job_ids.parts_with_ids()
        submitted = [(part, job_id) for part, job_id in parts if not job_id.startswith(UNSUBMITTED)]
        answers = self._describe_submitted(submitted, child_ids)
        gone = [part for part, job_id in parts if self._is_forgotten(part, job_id, answers)]
        if submitted and (gone or not answers):
            # Another machine may have stored the end states.
            stored = self.end_states(in_s3=True)
            if stored is not None:
                return list(stored.jobs)
        jobs = [
            from_aws.make_job_detail(part, job_id, answers.get(job_id), answers.get(f"{job_id}:0"))
            for part, job_id in parts
        ]
        jobs = self._replace_forgotten(jobs, gone) if gone else jobs
        return [
            self._add_command_counts(part, job) for (part, _), job in zip(parts, jobs, strict=True)
        ]

    def _add_command_counts(self, part: Part, job: JobDetail) -> JobDetail:
        """Return the job with the numbers of its commands, where workers record them in blocks.

        The first part of a step has the commands of all its parts.
        """
        planned = self._plan.job(part.step)
        if not planned.is_dynamic or part.is_barrier:
            return job
        if part.offset:
            return replace(job, commands=CommandCounts(0, 0, 0))
        counts = CommandCounts(planned.command_count, 0, 0)
        if job.count(*_BEGUN) or job.started_ms is not None:
            with self._files.tolerate_missing_bucket():
                counts = self._records.blocks_of_step(part.step).counts()
        return replace(job, commands=counts)

    def _describe_submitted(
        self, parts: Sequence[tuple[Part, str]], child_ids: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return job id -> description, for the jobs of the parts and the first child of arrays.

        The first child of an array tells when the array began.
        """
        job_ids = [job_id for _, job_id in parts]
        job_ids += [f"{job_id}:0" for part, job_id in parts if part.size > 1]
        room = -len(job_ids) % MAX_DESCRIBED_JOBS
        other_ids = [child_id for child_id in child_ids if child_id not in job_ids][:room]
        answers = self._batch.describe([*job_ids, *other_ids])
        self.described_children = {
            child_id: answers[child_id] for child_id in child_ids if child_id in answers
        }
        return answers

    def unfinished(self) -> Unfinished:
        described = self.describe_jobs()
        ran, presumed = self._succeeded_children(described)
        sizes = dict.fromkeys(ran, 0)
        for job_detail in described:
            sizes[job_detail.step] += job_detail.size
        # Children of dynamic steps end well when a run is held, before their commands are done.
        has_dynamic = any(job.is_dynamic for job in self._plan.jobs)
        was_held = has_dynamic and self.held_reason is not None
        jobs = [
            job
            for job in self._plan.jobs
            if len(ran[job.step]) < sizes[job.step] or (was_held and job.is_dynamic)
        ]
        by_records = self._records.find_succeeded([job.step for job in jobs], ran)
        children: dict[str, list[int]] = {job.step: [] for job in self._plan.jobs}
        for job in jobs:
            if job.is_dynamic:
                unfinished_count = job.command_count - len(
                    self._records.finished_commands(job.step)
                )
                children[job.step] = list(range(min(job.step_size, unfinished_count)))
                continue
            succeeded = ran[job.step] | presumed[job.step] | by_records[job.step]
            children[job.step] = [
                job.index_in_step(child) for child in range(job.size) if child not in succeeded
            ]
        steps = [job.step for job in jobs if children[job.step] and needs_worker(job)]
        return Unfinished(children, {step: self._records.finished_commands(step) for step in steps})

    def end_states(self, *, in_s3: bool = False) -> EndStates | None:
        """Return how the run ended, as stored in its folder, or with ``in_s3`` also in S3."""
        document = self._files.read_local(FINAL_STATES)
        if document is not None:
            return from_aws.end_states_from_json(document)
        document = self._files.read_remote(FINAL_STATES) if in_s3 else None
        if document is None:
            return None
        stored = from_aws.end_states_from_json(document)
        # The machine that stored them may not have known a job that was submitted just then.
        return stored if [job.id for job in stored.jobs] == self._job_ids.ids else None

    # -- jobs that AWS has forgotten -----------------------------------------------------------

    def _is_forgotten(self, part: Part, job_id: str, answers: Mapping[str, Any]) -> bool:
        """Return whether AWS has forgotten the job.

        A job is also unknown in its first seconds, and to another account.
        """
        submitted_s = self._job_ids.journal.submitted_at.get(part.name)
        if submitted_s is None or job_id in answers:
            return False
        return self._clock() - submitted_s > _REMEMBERED_S

    def _replace_forgotten(
        self, jobs: Sequence[JobDetail], gone: Sequence[Part]
    ) -> list[JobDetail]:
        """Return the jobs, with the forgotten ones as records and later steps show them."""
        begun_steps = {
            job.step for job in jobs if job.count(*_UNBLOCKED) or job.started_ms is not None
        }
        succeeded = self._records.find_succeeded({part.step for part in gone}, {}, begun_steps)
        by_id = {job.id: job for job in jobs}
        for part in gone:
            job_id = self._job_ids.id_of(part)
            has_records = needs_worker(self._plan.job(part.step))
            # Children of a dynamic step have succeeded if its commands have, also added ones.
            good = {
                child
                for child in range(part.size)
                if (0 if part.is_added else part.offset + child) in succeeded[part.step]
            }
            self.forgotten[job_id] = good
            if len(good) < part.size and not has_records:
                self._unknown_steps.add(part.step)
            last_ms = self._records.of_step(part.step).last_ms if has_records else None
            by_id[job_id] = from_aws.make_forgotten_job(
                part, job_id, len(good), has_records, last_ms
            )
        return list(by_id.values())

    # -- end states ----------------------------------------------------------------------------

    def _store_end_states(self, jobs: list[JobDetail], was_stopped: bool) -> list[JobDetail]:
        """Store the jobs of a run that is over, and return them with their attempts counted."""
        # A job without a time is forgotten already, or was never submitted.
        is_known = all(job.created_ms or job.id.startswith(UNSUBMITTED) for job in jobs)
        if not is_known or self.end_states() is not None:
            return jobs
        stored = self.end_states(in_s3=True)
        if stored is None or stored.was_stopped is None:
            counted, succeeded = attempt_counts.count_attempts(
                self._batch, self._plan, self._job_ids.parts, jobs
            )
            stored = EndStates(tuple(counted), was_stopped, succeeded)
        self._files.write(FINAL_STATES, from_aws.end_states_to_json(stored))
        return list(stored.jobs)

    def _succeeded_children(
        self, jobs: Sequence[JobDetail]
    ) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
        """Return two mappings: step -> children that succeeded, by their positions in the job.

        The first has children that AWS or the stored end states show: they have run. The second
        has children of forgotten jobs, of which some may have had no command to run.
        """
        stored = self.end_states(in_s3=True)
        ran: dict[str, set[int]] = {job.step: set() for job in self._plan.jobs}
        presumed: dict[str, set[int]] = {job.step: set() for job in self._plan.jobs}
        by_id = {job.id: job for job in jobs}
        for part, job_id in self._job_ids.parts_with_ids():
            job = by_id.get(job_id)
            if job is None:
                continue  # added when the end of the run was being stored: it had no work
            if job.id in self.forgotten:
                children = self.forgotten[job.id]
                presumed[part.step].update(part.offset + child for child in children)
            else:
                numbers = self._succeeded_of_part(part, job, stored)
                ran[part.step].update(part.offset + child for child in numbers)
        return ran, presumed

    def _succeeded_of_part(
        self, part: Part, job: JobDetail, stored: EndStates | None
    ) -> Iterable[int]:
        if job.count(JobState.SUCCEEDED) == part.size:
            return range(part.size)
        if part.size == 1 or job.id.startswith(UNSUBMITTED):
            return ()
        if stored is not None:
            numbers = attempt_counts.expand_ranges(stored.succeeded, job.id)
            if numbers is not None:
                return numbers
            if not self._batch.describe([job.id]):
                # More children than are counted, or an older batchyard: only counts are stored.
                if not needs_worker(self._plan.job(part.step)):
                    self._unknown_steps.add(part.step)
                return ()
        return map(number_of, self._batch.children(job.id, JobState.SUCCEEDED))
