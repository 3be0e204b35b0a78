"""The AWS engine: the contract's verbs over AWS Batch, S3 and CloudWatch Logs.

The whole plan is submitted at once, chained by dependsOn; after that nothing of ours needs to run. What was submitted
is in the run's folder (``journal``) and, for other machines, in S3.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.aws.door import Door, Refused
from batchyard.aws.logs import Logs
from batchyard.aws.s3 import S3
from batchyard.batch.jobs import JobState
from batchyard.engines.aws import definitions, details, render, staging
from batchyard.engines.aws.children import Children, number_of
from batchyard.engines.aws.details import UNSUBMITTED, Final, Wait
from batchyard.engines.aws.journal import Journal
from batchyard.engines.aws.log_reader import LogReader
from batchyard.engines.aws.render import Part, Rendered, Target
from batchyard.engines.base import AttemptDetail, JobDetail, LogChunk, Overview
from batchyard.errors import BadInput, Surroundings, from_os_error
from batchyard.folder import RunFolder
from batchyard.plan import Plan

_JOBS, _FINAL, _STOPPED = "jobs.json", "final.json", "stopped.json"
_FAILED_AT_ONCE = 100
#: a request of a process that died is done, and seen by ListJobs, within this time
_SETTLING_S = 5.0


class WasStopped(BadInput):
    """The run was stopped before all of it was submitted."""


class AwsEngine:
    name = "aws"

    def __init__(self, folder: RunFolder, plan: Plan, target: Target, door: Door | None = None) -> None:
        self._folder = folder
        self._plan = plan
        self._target = target
        door = door or Door(target.environment.region, target.environment.profile)
        self.batch = Batch(door)
        self.s3 = S3(door)
        self._logs = Logs(door)
        self._rendered: Rendered | None = None
        self._journal: Journal | None = None
        self._reader: LogReader | None = None
        self._settled_at = 0.0
        #: S3 has said so
        self._is_bucket_gone = False

    # -- the contract -----------------------------------------------------------------------------------------

    def submit(self, plan: Plan, done: Mapping[str, Sequence[int]] | None = None) -> list[str]:
        """See the contract. ``done``: step -> commands that an earlier run has finished."""
        parts = self.rendered.parts
        if not self.is_submitted:
            staging.stage(self.s3, plan, self._target, plan.lists, done or {})
            revisions = self._definitions()
            for name, quantity in self.rendered.counters.items():
                self.batch.make_consumable(name, quantity, {"batchyard:run": self._target.run_id})
            for part in parts:
                self._submit(part, revisions[part.definition])
                if self._path(_STOPPED).exists():
                    self._give_up()
            self._put(_JOBS, self.journal.ids)
        return self.job_ids

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        known = {detail.id: detail for detail in self._details()}
        return [known[job_id] for job_id in job_ids if job_id in known]

    def attempts(self, job_ids: Sequence[str], *, failed_only: bool = False) -> Iterator[AttemptDetail]:
        for part, children in self._children(job_ids, failed_only):
            if not any(job.get("attempts") for job in children):
                continue  # nothing of it ever started: the job's own status says why
            planned = self._plan.job(part.step)
            for job in children:
                found = list(details.attempts(part, planned, job))
                yield from (one for one in found[-1:] if one.attempt) if failed_only else found

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = 30.0) -> None:
        """AWS Batch has one grace: 30 s."""
        steps = {part.step for part in self.rendered.parts if self._id(part) in job_ids}
        wanted = [part for part in self.rendered.parts if part.step in steps and part.name in self.journal.ids]
        if steps == {part.step for part in self.rendered.parts}:
            self._put(_STOPPED, {"reason": reason})
        now = self.batch.describe([self.journal.ids[part.name] for part in wanted])
        problems = []
        # Last first: what depends on another stopped job then fails for this reason, and not for that one's failure.
        for part in reversed(wanted):
            job_id = self.journal.ids[part.name]
            if job_id in now and JobState(now[job_id]["status"]).is_terminal:
                continue
            try:
                self.batch.terminate(job_id, reason)
            except (Refused, Surroundings) as exc:
                problems.append(f"{part.name} ({job_id}): {exc.message}")
        if problems:
            raise Surroundings("could not stop all of it:\n  " + "\n  ".join(problems), hint="stop it again")

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        return self.log_reader.read(step, index, failed_only=failed_only)

    def close(self) -> None:
        """Nothing is held."""

    # -- beyond it --------------------------------------------------------------------------------------------

    @property
    def rendered(self) -> Rendered:
        if self._rendered is None:
            self._rendered = render.render(self._plan, self._target)
        return self._rendered

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._folder.journal)
            self._settled_at = self._journal.changed_at + _SETTLING_S
            if not self._journal.ids:
                # Another machine may have submitted it.
                there = self._there(_JOBS)
                for name, job_id in json.loads(there or b"{}").items():
                    self._journal.submitted(name, job_id)
        return self._journal

    @property
    def log_reader(self) -> LogReader:
        if self._reader is None:
            group = self._target.environment.log_group
            self._reader = LogReader(
                self._logs, group, self._plan, Children(self.batch), self._parts_with_ids, self._details
            )
        return self._reader

    @property
    def is_submitted(self) -> bool:
        return all(part.name in self.journal.ids for part in self.rendered.parts)

    @property
    def was_stopped(self) -> bool:
        """Somebody asked for the end of all of it: what is not submitted never will be."""
        return self._kept(_STOPPED) is not None

    @property
    def is_known_to_be_over(self) -> bool:
        """Whether how it ended is kept here: then AWS need not be asked."""
        final = self._final()
        return final is not None and final.was_stopped is not None

    @property
    def is_nothing(self) -> bool:
        """Nothing of it was ever submitted, and where it would be kept is gone."""
        return not (self.journal.ids or self.journal.intended) and self._is_bucket_gone

    def require_going(self) -> None:
        """Raises WasStopped where there is something to submit that never will be."""
        if not self.is_submitted and self.was_stopped:
            raise WasStopped(
                f"run {self._target.run_id} was stopped before all of it was submitted",
                hint=f"`batchyard retry {self._target.run_id}` runs what is left",
            )

    @property
    def job_ids(self) -> list[str]:
        return [self._id(part) for part in self.rendered.parts if not part.is_barrier]

    def overview(self) -> Overview:
        """One DescribeJobs for each hundred jobs; none once the end is kept here."""
        final = self._final()
        if final is not None and final.was_stopped is not None:
            return details.overview(final.jobs, was_stopped=final.was_stopped)
        found = self._details()
        is_given_up = not self.is_submitted and self.was_stopped
        if is_given_up:
            found = [details.given_up(detail) for detail in found]
        is_over = all(detail.state.is_terminal for detail in found)
        is_bad = any(detail.state is JobState.FAILED for detail in found)
        was_stopped = is_over and is_bad and self.was_stopped
        if is_over:
            self._keep_final(found, was_stopped)
        is_interrupted = not self.is_submitted and not is_given_up and not is_over
        return details.overview(found, was_stopped=was_stopped, is_interrupted=is_interrupted)

    def unfinished(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """(step -> children without success, by their numbers in the step; step -> commands that did succeed)."""
        children_left: dict[str, list[int]] = {job.step: [] for job in self._plan.jobs}
        commands_done: dict[str, list[int]] = {}
        for part in (part for part in self.rendered.parts if not part.is_barrier):
            planned = self._plan.job(part.step)
            succeeded = self._succeeded(part)
            left = [child for child in range(part.size) if child not in succeeded]
            children_left[part.step] += [planned.index_in_step(part.offset + child) for child in left]
        for job in self._plan.jobs:
            if children_left[job.step] and definitions.needs_worker(job):
                prefix = f"{self._target.address}done/{job.step}/"
                numbers = (found.key.rpartition("/")[2] for found in self.s3.list(prefix))
                commands_done[job.step] = [int(number) for number in numbers if number.isdigit()]
        return children_left, commands_done

    def waits(self, found: Sequence[JobDetail]) -> list[Wait]:
        """Jobs with children that could start and have not, by what describe or overview found."""
        where = self._target.environment.name
        waits = []
        for detail in found:
            count = detail.count(JobState.RUNNABLE)
            if not count:
                continue
            child = next(self.batch.children(detail.id, JobState.RUNNABLE), detail.id) if detail.size > 1 else detail.id
            waits.append(Wait(detail.step, count, child, detail.created_ms, where))
        return waits

    def look_for_all(self) -> None:
        """Before going on with what another machine has begun: what it has submitted is found by its name."""
        for part in self.rendered.parts:
            if part.name not in self.journal.ids:
                self.journal.intend(part.name)

    def tidy(self) -> None:
        """After the run: what it made and nobody needs any more."""
        for name in self.rendered.counters:
            self.batch.delete_consumable(name)

    # -- submitting -------------------------------------------------------------------------------------------

    def _definitions(self) -> dict[str, str]:
        """name -> `name:revision`; what is not there yet is registered."""
        wanted = self.rendered.definitions
        there = self.batch.active_definitions(wanted)
        return {name: there.get(name) or self.batch.register(request) for name, request in wanted.items()}

    def _submit(self, part: Part, definition: str) -> None:
        journal = self.journal
        if part.name in journal.ids:
            return
        there = self._find(part) if part.name in journal.intended else None
        if there is None:
            journal.intend(part.name)
            depends_on = [
                {"jobId": journal.ids[name], **({"type": "N_TO_N"} if is_each else {})} for name, is_each in part.needs
            ]
            request = {**part.request, "jobDefinition": definition, "dependsOn": depends_on}
            there = self.batch.submit(request)
        journal.submitted(part.name, there)

    def _give_up(self) -> None:
        """Somebody has stopped the run in the meantime, and may not have seen what was submitted last."""
        self.stop(self.job_ids, json.loads(self._kept(_STOPPED) or "{}").get("reason", "stopped"))
        self.require_going()

    def _find(self, part: Part) -> str | None:
        """The part's job, if a process that died had submitted it. What it sent last may still be on its way."""
        queue = str(part.request["jobQueue"])
        there = self.batch.find(queue, part.name)
        left_s = self._settled_at - time.time()
        if there is None and left_s > 0:
            time.sleep(min(left_s, _SETTLING_S))
            there = self.batch.find(queue, part.name)
        return there

    # -- asking -----------------------------------------------------------------------------------------------

    def _id(self, part: Part) -> str:
        return self.journal.ids.get(part.name, UNSUBMITTED + part.name)

    def _parts_with_ids(self) -> list[tuple[Part, str]]:
        return [(part, self._id(part)) for part in self.rendered.parts if not part.is_barrier]

    def _details(self) -> list[JobDetail]:
        final = self._final()
        if final is not None:
            return list(final.jobs)
        parts = [part for part in self.rendered.parts if not part.is_barrier]
        ids = [self._id(part) for part in parts]
        asked = [job_id for job_id in ids if not job_id.startswith(UNSUBMITTED)]
        # An array's first child tells when it began, in the same call.
        firsts = [f"{job_id}:0" for part, job_id in zip(parts, ids, strict=True) if part.size > 1 and job_id in asked]
        known = self.batch.describe(asked + firsts)
        if asked and not known:
            # AWS has forgotten them; whoever saw the run end has kept what they came to.
            final = self._final(everywhere=True)
            if final is not None:
                return list(final.jobs)
        return [
            details.job_detail(part, job_id, known.get(job_id), known.get(f"{job_id}:0"))
            for part, job_id in zip(parts, ids, strict=True)
        ]

    def _children(self, job_ids: Sequence[str], failed_only: bool) -> Iterator[tuple[Part, list[Any]]]:
        """The jobs' children as AWS describes them, or the jobs themselves where they have none; a hundred failed ones
        at a time, since some readers need only the first."""
        for part, job_id in self._parts_with_ids():
            if job_id not in job_ids or job_id.startswith(UNSUBMITTED):
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
                yield part, [job for job in found if not failed_only or job["status"] == JobState.FAILED]

    def _succeeded(self, part: Part) -> set[int]:
        if part.name not in self.journal.ids:
            return set()
        job_id = self.journal.ids[part.name]
        if part.size == 1:
            job = self.batch.describe([job_id]).get(job_id)
            return {0} if job is not None and job["status"] == JobState.SUCCEEDED else set()
        return {number_of(child) for child in self.batch.children(job_id, JobState.SUCCEEDED)}

    # -- what is kept -----------------------------------------------------------------------------------------

    def _keep_final(self, found: list[JobDetail], was_stopped: bool) -> None:
        """AWS forgets jobs after a week; the run's record does not."""
        # One without a time is forgotten already, or was never submitted.
        is_known = all(detail.created_ms or detail.id.startswith(UNSUBMITTED) for detail in found)
        if is_known and self._final() is None:
            self._put(_FINAL, details.final_to_json(Final(tuple(found), was_stopped)))

    def _final(self, *, everywhere: bool = False) -> Final | None:
        text = self._kept(_FINAL, locally_only=not everywhere)
        return None if text is None else details.final_from_json(json.loads(text))

    def _put(self, name: str, content: object) -> None:
        """In S3 and here; where the bucket is gone, here."""
        text = json.dumps(content)
        with self._bucket_may_be_gone():
            self.s3.put(self._target.address + name, text.encode(), "application/json")
        try:
            self._path(name).write_text(text, encoding="utf-8")
        except OSError as exc:
            raise from_os_error(exc, "write", self._path(name)) from exc

    def _kept(self, name: str, *, locally_only: bool = False) -> str | None:
        path = self._path(name)
        if path.exists():
            return path.read_text(encoding="utf-8")
        found = None if locally_only else self._there(name)
        return None if found is None else found.decode()

    def _there(self, name: str) -> bytes | None:
        """What S3 has of it; nothing where the bucket is gone."""
        with self._bucket_may_be_gone():
            return self.s3.get(self._target.address + name)
        return None

    @contextmanager
    def _bucket_may_be_gone(self) -> Iterator[None]:
        try:
            yield
        except Refused as exc:
            if exc.code != "NoSuchBucket":
                raise
            self._is_bucket_gone = True

    def _path(self, name: str) -> Path:
        return self._folder.path / name
