"""The children of a run that may have new output, found with as few calls as possible.

The counts of an array tell how many children have begun. A child that has ended is not described
again; a child that runs is described at each look; children not seen yet are looked for in the
order of their numbers, in which AWS tends to start them, until as many are found as the counts
say. While a run goes on a look is limited, however large the arrays are: a later look finds the
other children, at the latest when the job is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState, StatusReason
from batchyard.batch.limits import MAX_DESCRIBED_JOBS
from batchyard.engines.aws.render import Part
from batchyard.engines.base import JobDetail

#: Groups of a hundred children that one look at one job describes beyond the first group.
_MORE_GROUPS = 4
_BEGUN = (JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED)

#: A child as AWS describes it, with its part.
Described = tuple[Part, Mapping[str, Any]]


class ChangedChildren:
    def __init__(self, batch: Batch, is_new: Callable[[Part], bool] = lambda part: False) -> None:
        """``is_new``: whether the part's job is so new that AWS may not show all its children."""
        self._batch = batch
        self._is_new = is_new
        self._by_part: dict[str, _SeenChildren] = {}
        #: How many children were asked for that AWS has forgotten.
        self.forgotten = 0

    def look(
        self, jobs: Sequence[tuple[Part, JobDetail]], *, is_thorough: bool
    ) -> Iterator[Described]:
        """Return each child that may have new output.

        ``is_thorough``: find all children that have begun, with as many calls as that takes.
        """
        started = [(part, job) for part, job in jobs if not _never_began(job)]
        first_groups = []
        for part, job in started:
            seen = self._of_part(part, job.id)
            group = seen.next_unseen(0) if seen.count_missing(job) > 0 else []
            first_groups.append((seen, job, group))
        yield from self._describe(
            [(seen, n) for seen, _, group in first_groups for n in (*seen.begun, *group)]
        )
        for seen, job, group in first_groups:
            if is_thorough or job.state.is_terminal:
                yield from self._look_at_rest(seen, job, group)
            elif seen.count_missing(job) > 0:
                yield from self._search(seen, job)

    def look_at_failed(self, jobs: Sequence[tuple[Part, JobDetail]]) -> Iterator[Described]:
        """Return the children that have failed since the last look, without those never started."""
        for part, job in jobs:
            seen = self._of_part(part, job.id)
            if job.count(JobState.FAILED) <= seen.failed or _never_began(job):
                continue
            ids: Iterable[str] = [job.id]
            if part.size > 1:
                ids = self._batch.started_children(job.id, JobState.FAILED)
            numbers = sorted(number_of(child_id) for child_id in ids)
            yield from self._describe([(seen, n) for n in numbers if not seen.has_ended[n]])
            seen.failed = job.count(JobState.FAILED)

    def look_at_child(self, part: Part, job_id: str, number: int) -> Iterator[Described]:
        """Return one child, unless it was seen to have ended."""
        seen = self._of_part(part, job_id)
        if not seen.has_ended[number]:
            yield from self._describe([(seen, number)])

    def _look_at_rest(
        self, seen: _SeenChildren, job: JobDetail, group: list[int]
    ) -> Iterator[Described]:
        """Describe the children behind the first group, until none is missing."""
        while group and seen.count_missing(job) > 0:
            group = seen.next_unseen(group[-1] + 1)
            yield from self._describe([(seen, number) for number in group])

    def _search(self, seen: _SeenChildren, job: JobDetail) -> Iterator[Described]:
        """Look for children that began out of order.

        Running children are listed; children that ended quickly are found in one of the next looks.
        """
        running = {
            number_of(child_id) for child_id in self._batch.children(job.id, JobState.RUNNING)
        }
        yield from self._describe([(seen, n) for n in sorted(running - seen.begun.keys())])
        for _ in range(_MORE_GROUPS):
            group = seen.next_unseen(seen.cursor) if seen.count_missing(job) > 0 else []
            yield from self._describe([(seen, number) for number in group])
            is_inside = bool(group) and group[-1] + 1 < seen.part.size
            seen.cursor = group[-1] + 1 if is_inside else 0

    def _describe(self, children: Sequence[tuple[_SeenChildren, int]]) -> Iterator[Described]:
        by_id = {seen.id_of(number): (seen, number) for seen, number in children}
        answers = self._batch.describe(list(by_id))
        for child_id, (seen, number) in by_id.items():
            if child_id in answers:
                seen.update(number, answers[child_id])
                yield seen.part, answers[child_id]
            elif not self._is_new(seen.part):
                seen.has_ended[number] = 1
                self.forgotten += 1

    def _of_part(self, part: Part, job_id: str) -> _SeenChildren:
        return self._by_part.setdefault(part.name, _SeenChildren(part, job_id))


class _SeenChildren:
    """What was seen of the children of one job."""

    def __init__(self, part: Part, job_id: str) -> None:
        self.part = part
        self._job_id = job_id
        #: By number: 1 where the child was seen to have ended.
        self.has_ended = bytearray(part.size)
        self.failed = 0
        #: Number -> whether the child ran when it was seen last; else it is between two attempts.
        self.begun: dict[int, bool] = {}
        #: Number at which the next search begins.
        self.cursor = 0

    def id_of(self, number: int) -> str:
        return self._job_id if self.part.size == 1 else f"{self._job_id}:{number}"

    def count_missing(self, job: JobDetail) -> int:
        """Return how many children have begun, by the counts, and were not seen."""
        count = self.part.size if job.state.is_terminal else job.count(*_BEGUN)
        return count - self.has_ended.count(1) - sum(self.begun.values())

    def next_unseen(self, start: int) -> list[int]:
        """Return the numbers of up to a hundred unseen children, from ``start`` on."""
        unseen = (
            number
            for number in range(start, self.part.size)
            if not self.has_ended[number] and number not in self.begun
        )
        return list(islice(unseen, MAX_DESCRIBED_JOBS))

    def update(self, number: int, job: Mapping[str, Any]) -> None:
        state = JobState(job["status"])
        self.begun.pop(number, None)
        if state.is_terminal:
            self.has_ended[number] = 1
            self.failed += state is JobState.FAILED
        elif state in _BEGUN or job.get("attempts"):
            self.begun[number] = state in _BEGUN


def number_of(job_id: str) -> int:
    """Return the child's number in its job; 0 for a job that is not an array."""
    return int(job_id.partition(":")[2] or 0)


def _never_began(job: JobDetail) -> bool:
    is_blocked = job.status_reason == StatusReason.DEPENDENCY_FAILED
    return is_blocked and not job.count(JobState.SUCCEEDED)
