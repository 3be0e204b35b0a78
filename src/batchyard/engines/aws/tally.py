"""What only the children tell of an array with failures: how many attempts there were, and who succeeded.

An array's own counts do not tell a child that failed from one that was stopped before it began. So its children are
asked about, a hundred in a call, once, when the run is over; what they say is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState
from batchyard.engines.aws.children import number_of
from batchyard.engines.aws.details import UNSUBMITTED
from batchyard.engines.aws.render import Part
from batchyard.engines.base import JobDetail
from batchyard.plan import Plan, to_ranges

#: children of one run that are asked about: a hundred calls. The counts of larger arrays stay as AWS sums them up.
MOST_CHILDREN = 10_000
_AT_ONCE = 100

Spans = list[tuple[int, int]]


def tally(
    batch: Batch, plan: Plan, parts: Sequence[Part], found: Sequence[JobDetail]
) -> tuple[list[JobDetail], dict[str, Spans]]:
    """The jobs of a run that is over, with the attempts that really began; and id -> children that succeeded, as ranges
    with both ends. ``parts`` are those of ``found``."""
    may_begin = steps_let_go(plan, found)
    told: list[JobDetail] = []
    succeeded: dict[str, Spans] = {}
    left = MOST_CHILDREN
    for part, detail in zip(parts, found, strict=True):
        if (
            part.size > 1
            and detail.state is JobState.FAILED
            and not detail.id.startswith(UNSUBMITTED)
        ):
            if part.step not in may_begin:
                succeeded[detail.id] = []
                detail = replace(detail, attempts=0)
            elif part.size <= left:
                left -= part.size
                states = dict(_children(batch, detail.id, part.size))
                if len(states) == part.size:
                    succeeded[detail.id] = to_ranges(
                        sorted(n for n, (is_good, _) in states.items() if is_good)
                    )
                    detail = replace(
                        detail, attempts=sum(attempts for _, attempts in states.values())
                    )
        told.append(detail)
    return told, succeeded


def steps_let_go(plan: Plan, found: Sequence[JobDetail]) -> set[str]:
    """Those of which a child can have begun: what they need as a whole has succeeded."""
    is_good: dict[str, bool] = {}
    for detail in found:
        is_good[detail.step] = is_good.get(detail.step, True) and detail.state is JobState.SUCCEEDED
    steps: set[str] = set()
    for job in plan.jobs:
        if all(need.step in steps if need.each else is_good[need.step] for need in job.needs):
            steps.add(job.step)
    return steps


def _children(batch: Batch, job_id: str, size: int) -> Iterator[tuple[int, tuple[bool, int]]]:
    """(number, (whether it succeeded, its attempts)) of those that AWS knows."""
    ids = [f"{job_id}:{child}" for child in range(size)]
    for first in range(0, size, _AT_ONCE):
        for child_id, job in batch.describe(ids[first : first + _AT_ONCE]).items():
            yield (
                number_of(child_id),
                (job["status"] == JobState.SUCCEEDED, len(job.get("attempts", ()))),
            )


def positions(kept: Mapping[str, Sequence[Sequence[int]]], job_id: str) -> set[int] | None:
    """The children that succeeded, by what is kept; None where nothing is."""
    if job_id not in kept:
        return None
    return {number for first, last in kept[job_id] for number in range(first, last + 1)}
