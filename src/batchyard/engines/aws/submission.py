"""Submitting the parts of a run to AWS Batch, and terminating their jobs.

The intent is recorded before each SubmitJob, so that a process which continues after a crash looks
for the job by its name instead of submitting it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from batchyard import s3_layout
from batchyard.aws.batch import Batch
from batchyard.aws.session import AwsRefusedError
from batchyard.batch.jobs import JobState
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.job_ids import JobIds
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.run_files import RunFiles
from batchyard.errors import BatchyardError, InputError, OperationalError

#: Seconds after which a request of a process that died is done, and visible to ListJobs.
_SETTLING_S = 5.0


class RunStoppedError(InputError):
    """The run was stopped before all of it was submitted."""


class Submission:
    def __init__(
        self,
        run_id: str,
        batch: Batch,
        job_ids: JobIds,
        files: RunFiles,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._run_id = run_id
        self._batch = batch
        self._job_ids = job_ids
        self._files = files
        self._clock = clock
        self._sleep = sleep

    def submit_all(self) -> None:
        """Submit the parts that are not submitted yet. Raises RunStoppedError."""
        revisions = self._register_definitions()
        for name, quantity in self._job_ids.rendered.counters.items():
            self._batch.make_consumable(name, quantity, {"batchyard:run": self._run_id})
        for part in self._job_ids.rendered.parts:
            self._obey_stop_request()
            self._submit(part, revisions[part.definition])
        # Whoever stops the run may not have seen the job that was on its way just then.
        self._obey_stop_request()
        self._job_ids.share()

    def require_not_stopped(self) -> None:
        """Raise RunStoppedError where jobs are missing that will never be submitted."""
        if self._job_ids.is_complete:
            return
        if self._files.read(s3_layout.STOP_REQUEST) is not None:
            raise RunStoppedError(
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
        problems = self._find_lost_jobs(stopped)
        if is_whole_run and not self._job_ids.is_complete:
            self._job_ids.share()
        _require_none([*problems, *self._terminate(stopped, reason)])
        if not is_whole_run:
            self._require_submitted(stopped)
        return is_whole_run

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
        job_id = self._find(part) if part.name in journal.intended else None
        if job_id is None:
            journal.intend(part.name)
            depends_on = [
                {"jobId": journal.ids[need.name], **({"type": "N_TO_N"} if need.is_each else {})}
                for need in part.needs
            ]
            request = {**part.request, "jobDefinition": definition, "dependsOn": depends_on}
            job_id = self._batch.submit(request)
        self._job_ids.record(part, job_id)

    def _obey_stop_request(self) -> None:
        """Terminate what is submitted, where a user has stopped the run, on any machine."""
        request = self._files.read(s3_layout.STOP_REQUEST)
        if request is None:
            return
        self._files.write(s3_layout.STOP_REQUEST, request)
        if not self._job_ids.is_complete:
            self._job_ids.share()
        _require_none(self._terminate(self._job_ids.rendered.parts, request["reason"]))
        self.require_not_stopped()

    def _find(self, part: Part) -> str | None:
        """Return the id of the part's job, if a process that died has submitted it."""
        queue = str(part.request["jobQueue"])
        job_id = self._batch.find(queue, part.name)
        wait_s = self._job_ids.journal_changed_at + _SETTLING_S - self._clock()
        if job_id is None and wait_s > 0:
            # The last request of that process may still be on its way.
            self._sleep(min(wait_s, _SETTLING_S))
            job_id = self._batch.find(queue, part.name)
        return job_id

    # -- stopping ------------------------------------------------------------------------------

    def _find_lost_jobs(self, parts: Iterable[Part]) -> list[str]:
        """Find jobs whose ids are not known here: of another machine, or a process that died.

        Returns a sentence for each part that could not be looked for.
        """
        problems = []
        for part in parts:
            if part.name in self._job_ids.journal.ids:
                continue
            try:
                job_id = self._find(part)
            except AwsRefusedError:
                continue  # the queue does not exist any more, and so no job in it
            except OperationalError as exc:
                problems.append(f"{part.name}: {exc.message}")
                continue
            if job_id is not None:
                self._job_ids.record(part, job_id)
        return problems

    def _terminate(self, parts: Iterable[Part], reason: str) -> list[str]:
        """Terminate the jobs, and return a sentence for each that could not be terminated."""
        ids = self._job_ids.journal.ids
        submitted = {part.name: ids[part.name] for part in parts if part.name in ids}
        jobs = self._batch.describe(list(submitted.values()))
        problems = []
        # Last first: a job that depends on another stopped one then fails for this reason, and not
        # for the failure of the other.
        for name, job_id in reversed(submitted.items()):
            if job_id in jobs and JobState(jobs[job_id]["status"]).is_terminal:
                continue
            try:
                self._batch.terminate(job_id, reason)
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
