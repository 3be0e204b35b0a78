"""Attempts and successes of arrays with failures, which only their children know.

The counts of an array do not tell a child that failed from one that was stopped before it began.
So the children are described, a hundred in a call, once, when the run is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState
from batchyard.batch.limits import MAX_DESCRIBED_JOBS
from batchyard.engines.aws.changed_children import number_of
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.render import Part
from batchyard.engines.base import JobDetail
from batchyard.plan import Plan, PlannedJob, to_ranges

#: Children of one run that are described: a hundred calls. Larger arrays keep the counts of AWS.
MAX_COUNTED_CHILDREN = 10_000

#: Numbers as ranges, with both ends.
Ranges = list[tuple[int, int]]


def count_attempts(
    batch: Batch, plan: Plan, parts: Sequence[Part], jobs: Sequence[JobDetail]
) -> tuple[list[JobDetail], dict[str, Ranges]]:
    """Return the jobs with the attempts that really began, and id -> children that succeeded.

    ``jobs``: the jobs of ``parts``, of a run that is over.
    """
    startable = find_startable_steps(plan, jobs)
    counted: list[JobDetail] = []
    succeeded: dict[str, Ranges] = {}
    budget = MAX_COUNTED_CHILDREN
    for part, job in zip(parts, jobs, strict=True):
        if not _is_failed_array(part, job):
            counted.append(job)
        elif part.step not in startable:
            succeeded[job.id] = []
            counted.append(replace(job, attempts=0))
        elif part.size > budget:
            counted.append(job)
        else:
            budget -= part.size
            children = dict(_describe_children(batch, job.id, part.size))
            if len(children) == part.size:
                good = sorted(n for n, (is_good, _) in children.items() if is_good)
                succeeded[job.id] = to_ranges(good)
                job = replace(job, attempts=sum(attempts for _, attempts in children.values()))
            counted.append(job)
    return counted, succeeded


def _is_failed_array(part: Part, job: JobDetail) -> bool:
    is_submitted = not job.id.startswith(UNSUBMITTED)
    return part.size > 1 and job.state is JobState.FAILED and is_submitted


def find_startable_steps(plan: Plan, jobs: Sequence[JobDetail]) -> set[str]:
    """Return the steps of which a child can have begun: the steps they need whole succeeded."""
    is_good: dict[str, bool] = {}
    for job in jobs:
        is_good[job.step] = is_good.get(job.step, True) and job.state is JobState.SUCCEEDED
    steps: set[str] = set()
    for planned in plan.jobs:
        if all(
            need.step in steps or _has_free_children(planned, plan.job(need.step))
            if need.each
            else is_good[need.step]
            for need in planned.needs
        ):
            steps.add(planned.step)
    return steps


def _has_free_children(job: PlannedJob, needed: PlannedJob) -> bool:
    """Return whether a child of the job waits for no child of the needed job."""
    return not set(job.numbers) <= set(needed.numbers)


def _describe_children(
    batch: Batch, job_id: str, size: int
) -> Iterator[tuple[int, tuple[bool, int]]]:
    """Return (number, (whether it succeeded, its attempts)) of the children that AWS knows."""
    ids = [f"{job_id}:{child}" for child in range(size)]
    for first in range(0, size, MAX_DESCRIBED_JOBS):
        for child_id, job in batch.describe(ids[first : first + MAX_DESCRIBED_JOBS]).items():
            is_good = job["status"] == JobState.SUCCEEDED
            yield number_of(child_id), (is_good, len(job.get("attempts", ())))


def expand_ranges(succeeded: Mapping[str, Sequence[Sequence[int]]], job_id: str) -> set[int] | None:
    """Return the children of the job that succeeded; None where nothing is recorded of the job."""
    if job_id not in succeeded:
        return None
    return {number for first, last in succeeded[job_id] for number in range(first, last + 1)}
