"""Submitting the parts of a run to AWS Batch, and terminating their jobs.

The intent is recorded before each SubmitJob, so that a process which continues after a crash looks
for the job by its name, as long as AWS may need to show it, instead of submitting it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from batchyard import s3_layout
from batchyard.aws.batch import Batch
from batchyard.aws.session import AccessDeniedError, AwsRefusedError
from batchyard.aws.submit_job import JobSubmitter, make_look_delays
from batchyard.batch.jobs import JobState
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.job_ids import JobIds
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.run_files import RunFiles
from batchyard.errors import BatchyardError, InputError, OperationalError


class RunStoppedError(InputError):
    """The run was stopped before all of it was submitted."""


class Submission:
    def __init__(
        self,
        run_id: str,
        batch: Batch,
        submitter: JobSubmitter,
        job_ids: JobIds,
        files: RunFiles,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._run_id = run_id
        self._batch = batch
        self._submitter = submitter
        self._job_ids = job_ids
        self._files = files
        self._clock = clock
        self._sleep = sleep
        #: Id of a job that is not recorded -> name of its part, which has a recorded job.
        self._second_ids: dict[str, str] = {}

    def submit_all(self) -> None:
        """Submit the parts that are not submitted yet. Raises RunStoppedError."""
        for name, quantity in self._job_ids.rendered.counters.items():
            self._batch.make_consumable(name, quantity, {"batchyard:run": self._run_id})
        self._submit_parts(self._job_ids.rendered.parts)

    def submit_added(self, parts: Sequence[Part], earlier: Collection[str]) -> None:
        """Submit the parts that `scale` has added to a step. Raises RunStoppedError.

        ``earlier``: names of those that an earlier `scale` has added. Where their jobs are not
        known here, another process may have submitted them, so that they are looked for.
        """
        journal = self._job_ids.journal
        missing = [part for part in parts if part.name not in journal.ids]
        for part in missing:
            if part.name in earlier and part.name not in journal.intended_at:
                journal.intend(part.name, self._clock())
        if missing:
            self._submit_parts(missing)

    def _submit_parts(self, parts: Sequence[Part]) -> None:
        revisions = self._register_definitions()
        for part in parts:
            self._obey_stop_request(parts)
            self._submit(part, revisions[part.definition])
        # Whoever stops the run may not have seen the job that was on its way just then.
        self._obey_stop_request(parts)
        self._job_ids.share()

    def require_not_stopped(self) -> None:
        """Raise RunStoppedError where jobs are missing that will never be submitted."""
        if self._job_ids.is_complete:
            return
        if self._files.read(s3_layout.STOP_REQUEST) is not None:
            raise self._stopped_error()

    def _stopped_error(self) -> RunStoppedError:
        return RunStoppedError(
            f"run {self._run_id} was stopped before all of it was submitted",
            hint=f"`batchyard retry {self._run_id}` runs what is left",
        )

    def stop(self, steps: set[str], reason: str) -> bool:
        """Terminate the jobs of the steps. Returns whether that is the whole run.

        Raises OperationalError where a job could not be terminated, InputError where a step of a
        run is not submitted whole.
        """
        parts = self._job_ids.rendered.parts
        stopped = [part for part in parts if part.step in steps]
        is_whole_run = len(stopped) == len(parts)
        if is_whole_run:
            # First, so that no machine submits more of the run.
            self._files.write(s3_layout.STOP_REQUEST, {"reason": reason})
        problems = self._find_jobs(stopped)
        if is_whole_run and not self._job_ids.is_complete:
            self._job_ids.share()
        _require_none([*problems, *self._terminate(stopped, reason)])
        if not is_whole_run:
            self._require_submitted(stopped)
        return is_whole_run

    def end_waiting(self, steps: set[str], reason: str) -> None:
        """Terminate the jobs of steps of which no child runs. The run is not stopped by it."""
        parts = [part for part in self._job_ids.rendered.parts if part.step in steps]
        _require_none(self._terminate(parts, reason))

    def cancel_waiting(self, reason: str) -> None:
        """Cancel all children that have not started. Those that run go on."""
        _require_none(self._end_jobs(self._job_ids.rendered.parts, reason, self._batch.cancel))

    def delete_counters(self) -> None:
        """Delete the consumable resources of the run, those that this user may delete."""
        for name in self._job_ids.rendered.counters:
            with suppress(BatchyardError):
                self._batch.delete_consumable(name)

    # -- submitting ----------------------------------------------------------------------------

    def _register_definitions(self) -> dict[str, str]:
        """Return name -> `name:revision`, and register the definitions that do not exist."""
        requests = self._job_ids.rendered.definitions
        active = self._batch.active_definitions(requests)
        return {
            name: active.get(name) or self._batch.register(request)
            for name, request in requests.items()
        }

    def _submit(self, part: Part, definition: str) -> None:
        journal = self._job_ids.journal
        if part.name in journal.ids:
            return
        was_intended = part.name in journal.intended_at
        if was_intended and self._record_jobs(part, self._await_jobs(part)):
            return
        request = part.complete_request(definition, journal.ids)

        def record_attempt(token: str, *, is_repeat: bool) -> None:
            journal.intend(part.name, self._clock(), token, is_repeat=is_repeat)

        job_id = self._submitter.submit(
            request, record_attempt=record_attempt, is_repeat=was_intended
        )
        self._job_ids.record(part, job_id)

    def _obey_stop_request(self, parts: Iterable[Part]) -> None:
        """Terminate what is submitted, where a user has stopped the run, on any machine.

        Raises RunStoppedError if not all of the ``parts`` are submitted.
        """
        request = self._files.read(s3_layout.STOP_REQUEST)
        if request is None:
            return
        self._files.write(s3_layout.STOP_REQUEST, request)
        is_complete = all(part.name in self._job_ids.journal.ids for part in parts)
        if not is_complete:
            self._job_ids.share()
        _require_none(self._terminate(self._job_ids.rendered.parts, request["reason"]))
        if not is_complete:
            raise self._stopped_error()

    def _await_jobs(self, part: Part) -> list[str]:
        """Return the ids of the jobs that a process which died has submitted of the part.

        Waits for them as long as AWS may need to show them after the last SubmitJob.
        """
        queue, lag_s = str(part.request["jobQueue"]), self._submitter.lag_s
        job_ids = self._batch.find_by_name(queue, part.name)
        intended_at_s = self._job_ids.journal.intended_at.get(part.name, 0.0)
        # At most the lag, also where the clock was set back.
        wait_s = min(lag_s, intended_at_s + lag_s - self._clock())
        for delay_s in make_look_delays(wait_s):
            if job_ids:
                break
            self._sleep(delay_s)
            job_ids = self._batch.find_by_name(queue, part.name)
        return job_ids

    def _record_jobs(self, part: Part, job_ids: Sequence[str]) -> bool:
        """Record a part's job, the first one of several. Returns whether there is any."""
        for other_id in job_ids[:-1]:
            self._job_ids.journal.mark_repeated(part.name)
            self._second_ids[other_id] = part.name
        if job_ids:
            self._job_ids.record(part, job_ids[-1])
        return bool(job_ids)

    # -- stopping ------------------------------------------------------------------------------

    def _find_jobs(self, parts: Sequence[Part]) -> list[str]:
        """Find jobs whose ids are not recorded here.

        Another machine has submitted them, or a process that died, or they are second jobs of a
        part. Returns a sentence for each queue or part that could not be looked for.
        """
        problems = []
        for queue in {str(part.request["jobQueue"]): None for part in parts}:
            in_queue = [part for part in parts if part.request["jobQueue"] == queue]
            try:
                self._find_jobs_in(queue, in_queue)
            except AwsRefusedError:
                continue  # the queue does not exist any more, and so no job in it
            except OperationalError as exc:
                if not (isinstance(exc, AccessDeniedError) and self._are_known(in_queue)):
                    problems.append(f"jobs in {queue}: {exc.message}")
        return problems

    def _find_jobs_in(self, queue: str, parts: Sequence[Part]) -> None:
        listed = self._batch.find_by_prefix(queue, f"{self._run_id}-")
        for part in parts:
            job_ids = listed.get(part.name, [])
            recorded_id = self._job_ids.journal.ids.get(part.name)
            if recorded_id is not None:
                other_ids = [job_id for job_id in job_ids if job_id != recorded_id]
                self._second_ids.update(dict.fromkeys(other_ids, part.name))
            else:
                was_intended = part.name in self._job_ids.journal.intended_at
                if was_intended and not job_ids:
                    job_ids = self._await_jobs(part)
                self._record_jobs(part, job_ids)

    def _are_known(self, parts: Iterable[Part]) -> bool:
        """Return whether the recorded jobs of the parts are all that AWS can have."""
        journal = self._job_ids.journal
        return all(part.name in journal.ids and part.name not in journal.repeated for part in parts)

    def _terminate(self, parts: Sequence[Part], reason: str) -> list[str]:
        """Terminate the jobs, and return a sentence for each that could not be terminated."""
        return self._end_jobs(parts, reason, self._batch.terminate)

    def _end_jobs(
        self, parts: Sequence[Part], reason: str, end: Callable[[str, str], None]
    ) -> list[str]:
        """Call ``end`` with the id of each job that is not over; return what went wrong."""
        ids = self._job_ids.journal.ids
        names = {part.name for part in parts}
        submitted = [
            *((name, job_id) for job_id, name in self._second_ids.items() if name in names),
            *((part.name, ids[part.name]) for part in parts if part.name in ids),
        ]
        jobs = self._batch.describe([job_id for _, job_id in submitted])
        problems = []
        # Last first: a job that depends on another stopped one then fails for this reason, and not
        # for the failure of the other.
        for name, job_id in reversed(submitted):
            if job_id in jobs and JobState(jobs[job_id]["status"]).is_terminal:
                continue
            try:
                end(job_id, reason)
            except (AwsRefusedError, OperationalError) as exc:
                problems.append(f"{name} ({job_id}): {exc.message}")
        return problems

    def _require_submitted(self, parts: Iterable[Part]) -> None:
        ids = {part.step: self._job_ids.id_of(part) for part in parts}
        missing = [step for step, job_id in ids.items() if job_id.startswith(UNSUBMITTED)]
        if missing:
            raise InputError(
                f"not all jobs of {missing[0]} are submitted, and the others cannot be stopped yet",
                hint=f"`batchyard stop {self._run_id}` stops the whole run, and submits no more",
            )


def _require_none(problems: Sequence[str]) -> None:
    if problems:
        raise OperationalError(
            "could not stop all jobs:\n  " + "\n  ".join(problems), hint="stop the run again"
        )
