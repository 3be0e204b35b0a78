"""The AWS engine: the contract's verbs over AWS Batch, S3 and CloudWatch Logs.

The whole plan is submitted at once, chained by dependsOn; after that nothing of ours needs to run. What was submitted
is in the run's folder (``journal``) and, for other machines, in S3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.aws.logs import Logs
from batchyard.aws.s3 import S3
from batchyard.aws.session import AwsRefusedError, AwsSession
from batchyard.batch.jobs import JobState
from batchyard.engines.aws import details, staging
from batchyard.engines.aws.children import Children, number_of
from batchyard.engines.aws.details import UNSUBMITTED, Wait
from batchyard.engines.aws.kept import Kept
from batchyard.engines.aws.log_reader import LogReader
from batchyard.engines.aws.records import Ledger
from batchyard.engines.aws.render import Part, Target
from batchyard.engines.aws.standing import Standing
from batchyard.engines.aws.submitted import Submitted
from batchyard.engines.base import AttemptDetail, JobDetail, LogChunk, Overview, RunState
from batchyard.errors import BatchyardError, InputError, OperationalError
from batchyard.folder import RunFolder
from batchyard.plan import Plan
from batchyard.s3_layout import SKIPPED_COMMANDS, STOP_REQUEST

_FAILED_AT_ONCE = 100
#: a request of a process that died is done, and seen by ListJobs, within this time
_SETTLING_S = 5.0


class RunStoppedError(InputError):
    """The run was stopped before all of it was submitted."""


class AwsEngine:
    name = "aws"

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        target: Target,
        session: AwsSession | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._plan = plan
        self._target = target
        session = session or AwsSession(target.environment.region, target.environment.profile)
        self.batch = Batch(session)
        self.s3 = S3(session)
        self._logs = Logs(session)
        self._clock, self._sleep = clock, sleep
        self._kept = Kept(folder.path, target.address, self.s3)
        self._ledger = Ledger(plan, self.s3, self._kept, target.address)
        self._submitted = Submitted(plan, target, folder.journal, self._kept, clock)
        self._standing = Standing(
            plan, self.batch, self._submitted, self._kept, self._ledger, clock
        )
        self._reader: LogReader | None = None

    # -- the contract -----------------------------------------------------------------------------------------

    def submit(self, plan: Plan, done: Mapping[str, Sequence[int]] | None = None) -> list[str]:
        """See the contract. ``done``: step -> commands that an earlier run has finished."""
        if not self.is_submitted:
            staging.stage(self.s3, plan, self._target, plan.lists, done or {})
            revisions = self._definitions()
            for name, quantity in self._submitted.rendered.counters.items():
                self.batch.make_consumable(name, quantity, {"batchyard:run": self._target.run_id})
            for part in self._submitted.rendered.parts:
                self._heed_stop()
                self._submit(part, revisions[part.definition])
            # Whoever stops the run may not have seen what was on its way just then.
            self._heed_stop()
            self._submitted.keep()
        return self.job_ids

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        known = {detail.id: detail for detail in self._standing.details()}
        return [known[job_id] for job_id in job_ids if job_id in known]

    def attempts(
        self, job_ids: Sequence[str], *, failed_only: bool = False
    ) -> Iterator[AttemptDetail]:
        for part, children in self._children(job_ids, failed_only):
            if not any(job.get("attempts") for job in children):
                continue  # nothing of it ever started: the job's own status says why
            planned = self._plan.job(part.step)
            for job in children:
                found = list(details.attempts(part, planned, job))
                yield from (one for one in found[-1:] if one.attempt) if failed_only else found

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = 30.0) -> None:
        """AWS Batch has one grace: 30 s."""
        parts = self._submitted.rendered.parts
        steps = {part.step for part in parts if self._submitted.id_of(part) in job_ids}
        wanted = [part for part in parts if part.step in steps]
        is_all = len(wanted) == len(parts)
        if is_all:
            # First, so that whoever is submitting it, wherever, submits no more.
            self._kept.put(STOP_REQUEST, {"reason": reason})
        problems = self._look_for(wanted)
        if is_all and not self.is_submitted:
            self._submitted.keep()
        _require_none([*problems, *self._terminate(wanted, reason)])

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        return self.log_reader.read(step, index, failed_only=failed_only)

    def close(self) -> None:
        """Nothing is held."""

    # -- beyond it --------------------------------------------------------------------------------------------

    @property
    def log_reader(self) -> LogReader:
        if self._reader is None:
            group = self._target.environment.log_group
            children, parts = Children(self.batch), self._submitted.parts_with_ids
            self._reader = LogReader(
                self._logs, group, self._plan, children, parts, self._standing.details
            )
        return self._reader

    @property
    def is_submitted(self) -> bool:
        return self._submitted.is_whole

    @property
    def is_known_to_be_over(self) -> bool:
        """Whether how it ended is kept here: then AWS need not be asked."""
        final = self._standing.final()
        return final is not None and final.was_stopped is not None

    @property
    def is_nothing(self) -> bool:
        """Nothing of it was ever submitted, and where it would be kept is gone."""
        journal = self._submitted.journal
        return not (journal.ids or journal.intended) and self._kept.is_bucket_gone

    def require_going(self) -> None:
        """Raises RunStoppedError where there is something to submit that never will be."""
        if not self.is_submitted and self._standing.was_stopped:
            raise RunStoppedError(
                f"run {self._target.run_id} was stopped before all of it was submitted",
                hint=f"`batchyard retry {self._target.run_id}` runs what is left",
            )

    @property
    def job_ids(self) -> list[str]:
        return self._submitted.ids

    def overview(self) -> Overview:
        was_over = self.is_known_to_be_over
        found = self._standing.overview()
        if found.state is not RunState.RUNNING and not was_over:
            self._tidy()
        return found

    def unfinished(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """(step -> children without success, by their numbers in the step; step -> commands that did succeed)."""
        return self._standing.unfinished()

    @property
    def skipped(self) -> dict[str, list[int]]:
        """Step -> commands that an earlier run has finished."""
        return {step: sorted(numbers) for step, numbers in self._ledger.skipped.items()}

    def keep_skipped(self) -> None:
        """For other machines, which may go on with it."""
        if self.skipped:
            self._kept.put(SKIPPED_COMMANDS, self.skipped)

    @property
    def source(self) -> str:
        """Where what was said of the run comes from, in a sentence; empty where it is AWS Batch's own word."""
        return self._standing.source

    def waits(self, found: Sequence[JobDetail]) -> list[Wait]:
        """Jobs with children that could start and have not, by what describe or overview found."""
        where = self._target.environment.name
        waits = []
        for detail in found:
            count = detail.count(JobState.RUNNABLE)
            if not count:
                continue
            child = (
                next(self.batch.children(detail.id, JobState.RUNNABLE), detail.id)
                if detail.size > 1
                else detail.id
            )
            waits.append(Wait(detail.step, count, child, detail.created_ms, where))
        return waits

    def look_for_all(self) -> None:
        """Before going on with what another machine has begun: what it has submitted is found by its name."""
        for part in self._submitted.rendered.parts:
            if part.name not in self._submitted.journal.ids:
                self._submitted.journal.intend(part.name)

    def _tidy(self) -> None:
        """After the run: what it made and nobody needs any more. Whoever sees its end first does it, if they may."""
        for name in self._submitted.rendered.counters:
            with suppress(BatchyardError):
                self.batch.delete_consumable(name)

    # -- submitting -------------------------------------------------------------------------------------------

    def _definitions(self) -> dict[str, str]:
        """name -> `name:revision`; what is not there yet is registered."""
        wanted = self._submitted.rendered.definitions
        there = self.batch.active_definitions(wanted)
        return {
            name: there.get(name) or self.batch.register(request)
            for name, request in wanted.items()
        }

    def _submit(self, part: Part, definition: str) -> None:
        journal = self._submitted.journal
        if part.name in journal.ids:
            return
        there = self._find(part) if part.name in journal.intended else None
        if there is None:
            journal.intend(part.name)
            depends_on = [
                {"jobId": journal.ids[name], **({"type": "N_TO_N"} if is_each else {})}
                for name, is_each in part.needs
            ]
            request = {**part.request, "jobDefinition": definition, "dependsOn": depends_on}
            there = self.batch.submit(request)
        self._submitted.note(part, there)

    def _heed_stop(self) -> None:
        """Where somebody has stopped the run in the meantime, here or on another machine: so is what was submitted."""
        stopped = self._kept.get(STOP_REQUEST)
        if stopped is None:
            return
        self._kept.put(STOP_REQUEST, stopped)
        if not self.is_submitted:
            self._submitted.keep()
        _require_none(self._terminate(self._submitted.rendered.parts, stopped["reason"]))
        self.require_going()

    def _find(self, part: Part) -> str | None:
        """The part's job, if a process that died had submitted it. What it sent last may still be on its way."""
        queue = str(part.request["jobQueue"])
        there = self.batch.find(queue, part.name)
        left_s = self._submitted.found_at + _SETTLING_S - self._clock()
        if there is None and left_s > 0:
            self._sleep(min(left_s, _SETTLING_S))
            there = self.batch.find(queue, part.name)
        return there

    # -- stopping ---------------------------------------------------------------------------------------------

    def _look_for(self, parts: Iterable[Part]) -> list[str]:
        """What of these another machine has submitted, or a process that died, whose ids have not come here. Returns
        what could not be looked for."""
        problems = []
        for part in parts:
            if part.name in self._submitted.journal.ids:
                continue
            try:
                there = self._find(part)
            except AwsRefusedError:
                continue  # there is no such queue any more, and so no job in it
            except OperationalError as exc:
                problems.append(f"{part.name}: {exc.message}")
                continue
            if there is not None:
                self._submitted.note(part, there)
        return problems

    def _terminate(self, parts: Iterable[Part], reason: str) -> list[str]:
        """Returns what could not be stopped."""
        ids = self._submitted.journal.ids
        wanted = {part.name: ids[part.name] for part in parts if part.name in ids}
        now = self.batch.describe(list(wanted.values()))
        problems = []
        # Last first: what depends on another stopped job then fails for this reason, and not for that one's failure.
        for name, job_id in reversed(wanted.items()):
            if job_id in now and JobState(now[job_id]["status"]).is_terminal:
                continue
            try:
                self.batch.terminate(job_id, reason)
            except (AwsRefusedError, OperationalError) as exc:
                problems.append(f"{name} ({job_id}): {exc.message}")
        return problems

    # -- asking -----------------------------------------------------------------------------------------------

    def _children(
        self, job_ids: Sequence[str], failed_only: bool
    ) -> Iterator[tuple[Part, list[Any]]]:
        """The jobs' children as AWS describes them, or the jobs themselves where they have none; a hundred failed ones
        at a time, since some readers need only the first."""
        for part, job_id in self._submitted.parts_with_ids():
            if (
                job_id not in job_ids
                or job_id.startswith(UNSUBMITTED)
                or job_id in self._standing.forgotten
            ):
                continue
            if part.size == 1:
                ids = [job_id]
            elif failed_only:
                ids = sorted(self.batch.children(job_id, JobState.FAILED), key=number_of)
            else:
                ids = [f"{job_id}:{child}" for child in range(part.size)]
            at_once = _FAILED_AT_ONCE if failed_only else len(ids)
            for first in range(0, len(ids), at_once or 1):
                known = self.batch.describe(ids[first : first + at_once])
                found = [known[one] for one in sorted(known, key=number_of)]
                yield (
                    part,
                    [job for job in found if not failed_only or job["status"] == JobState.FAILED],
                )


def _require_none(problems: Sequence[str]) -> None:
    if problems:
        raise OperationalError(
            "could not stop all of it:\n  " + "\n  ".join(problems), hint="stop it again"
        )
