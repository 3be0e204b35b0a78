"""Changes how many children work on a dynamic step: adds jobs, or dismisses children.

The scale in S3 is written first, with the added jobs in it, and then the jobs are submitted as all
others are. So a process that dies between loses nothing: the next `scale` submits them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from batchyard.aws.batch import Batch
from batchyard.batch import limits
from batchyard.batch.jobs import JobState
from batchyard.engines.aws.changed_children import number_of
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.job_ids import JobIds
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.step_scales import StepScales
from batchyard.engines.aws.submission import Submission
from batchyard.engines.aws.success_records import SuccessRecords
from batchyard.errors import InputError, OperationalError
from batchyard.plan import Plan, PlannedJob, to_ranges
from batchyard.worker.scale import AddedJob, Scale

#: Tries to write a scale that other processes write at the same time.
_TRIES = 5
_WORKING = (JobState.RUNNING, JobState.STARTING)
_ENDED = (JobState.SUCCEEDED, JobState.FAILED)


class Scaling:
    def __init__(
        self,
        plan: Plan,
        batch: Batch,
        job_ids: JobIds,
        scales: StepScales,
        submission: Submission,
        records: SuccessRecords,
    ) -> None:
        self._plan = plan
        self._batch = batch
        self._job_ids = job_ids
        self._scales = scales
        self._submission = submission
        self._records = records

    def scale(self, step: str, children: int) -> int:
        """Let so many children work on the step; return how many can have work at once.

        Raises InputError if no block is left to claim.
        """
        job = self._plan.job(step)
        children = min(children, self._count_unfinished_blocks(step))
        earlier = self._write_scale(job, children)
        self._job_ids.refresh()
        self._submission.submit_added(self._added_parts(step), earlier)
        return min(children, job.max_running or children)

    def _added_parts(self, step: str) -> list[Part]:
        parts = self._job_ids.rendered.parts
        return [part for part in parts if part.is_added and part.step == step]

    def _count_unfinished_blocks(self, step: str) -> int:
        step_blocks = self._records.blocks_of_step(step)
        complete = sum(state.is_complete for state in step_blocks.states.values())
        count = len(step_blocks.layout.blocks) - complete
        if not count:
            raise InputError(f"all commands of {step!r} are done: no child has work any more")
        return count

    def _write_scale(self, job: PlannedJob, children: int) -> set[str]:
        """Write the scale of the step; return the names of the parts that were added before."""
        has_dependents = job.step in {
            need.step for other in self._plan.jobs for need in other.needs
        }
        for _ in range(_TRIES):
            self._job_ids.refresh()
            earlier = {part.name for part in self._added_parts(job.step)}
            stored = self._scales.read(job.step)
            scale = decide_scale(
                job,
                None if stored is None else stored.scale,
                list(self._find_children(job)),
                children,
                has_dependents=has_dependents,
                has_needs=self._is_waiting(job.step),
                token=secrets.token_hex(8),
            )
            if self._scales.write(job.step, scale, None if stored is None else stored.etag):
                return earlier
        raise OperationalError(
            f"others scale step {job.step!r} at the same time", hint="scale it again"
        )

    def _find_children(self, job: PlannedJob) -> Iterator[int]:
        """Yield the indices of the children that have not ended, those that work first."""
        waiting = []
        for part in self._job_ids.rendered.parts:
            if part.step != job.step or part.is_barrier:
                continue
            ended = set(self._list_children(part, _ENDED))
            working = set(self._list_children(part, _WORKING)) - ended
            for child in range(part.size):
                index = job.index_in_step(part.offset + child)
                if child in working:
                    yield index
                elif child not in ended:
                    waiting.append(index)
        yield from waiting

    def _list_children(self, part: Part, states: Sequence[JobState]) -> Iterator[int]:
        job_id = self._job_ids.id_of(part)
        if job_id.startswith(UNSUBMITTED):
            return
        if part.size == 1:
            described = self._batch.describe([job_id]).get(job_id, {})
            yield from (0 for state in states if described.get("status") == state)
            return
        for state in states:
            yield from map(number_of, self._batch.children(job_id, state))

    def _is_waiting(self, step: str) -> bool:
        """Return whether the step still waits for the steps that it needs."""
        part = next(part for part in self._job_ids.parts if part.step == step)
        job_id = self._job_ids.id_of(part)
        described = self._batch.describe([job_id]).get(job_id, {})
        return described.get("status") in (JobState.SUBMITTED, JobState.PENDING)


def decide_scale(
    job: PlannedJob,
    scale: Scale | None,
    children: Sequence[int],
    count: int,
    *,
    has_dependents: bool,
    has_needs: bool,
    token: str,
) -> Scale:
    """Return the scale with which ``count`` children claim blocks.

    ``scale``: the present one. ``children``: indices of those that have not ended, first those that
    stay first. A child that was dismissed ends soon, and does not count.
    """
    staying = [index for index in children if scale is None or scale.has_child(index)][:count]
    added = () if scale is None else scale.added
    added_count = 0 if scale is None else scale.added_count
    missing = count - len(staying)
    new_indices = range(job.step_size + added_count, job.step_size + added_count + missing)
    new_jobs = tuple(
        AddedJob(
            job.size + added_count + first,
            min(limits.MAX_CHILDREN, missing - first),
            has_needs,
        )
        for first in range(0, missing, limits.MAX_CHILDREN)
    )
    ranges = to_ranges(sorted([*staying, *new_indices]))
    return Scale(tuple(ranges), (*added, *new_jobs), has_dependents, token)
