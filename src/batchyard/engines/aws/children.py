"""Which children of a run may have something new to say, asked about with as few calls as that takes.

The parents' counts tell how many children have begun. A child that was seen to have ended is never asked about again;
one that runs is, each time; those that nobody has seen yet are looked for in the order of their numbers, in which AWS
tends to start them, until as many are found as the counts say. While a run goes on a look is limited, however large its
arrays are: what it does not find, a later one does, at the latest when the job is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState, StatusReason
from batchyard.engines.aws.render import Part
from batchyard.engines.base import JobDetail

_AT_ONCE = 100
#: hundreds of children that one look at one job goes through beyond the first, where children start in any order
_MORE_HUNDREDS = 4
_BEGUN = (JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED)


class Children:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._known: dict[str, _Known] = {}
        #: how many were asked about that AWS knows nothing of any more
        self.forgotten = 0

    def look(
        self, jobs: Sequence[tuple[Part, JobDetail]], *, is_thorough: bool
    ) -> Iterator[tuple[Part, Mapping[str, Any]]]:
        """Each child that may have something new, as AWS describes it, with its part. ``is_thorough``: all that have
        begun are found now."""
        known = [
            (self._of(part, detail), detail) for part, detail in jobs if not _never_began(detail)
        ]
        fronts = [
            (one, detail, one.next_unseen(0) if one.missing(detail) > 0 else [])
            for one, detail in known
        ]
        yield from self._asked(
            [(one, number) for one, _, front in fronts for number in (*one.begun, *front)]
        )
        for one, detail, front in fronts:
            if is_thorough or detail.state.is_terminal:
                some = front
                while some and one.missing(detail) > 0:
                    some = one.next_unseen(some[-1] + 1)
                    yield from self._asked([(one, number) for number in some])
            elif one.missing(detail) > 0:
                yield from self._search(one, detail)

    def look_at_failed(
        self, jobs: Sequence[tuple[Part, JobDetail]]
    ) -> Iterator[tuple[Part, Mapping[str, Any]]]:
        """The children that have failed since the last look."""
        for part, detail in jobs:
            one = self._of(part, detail)
            if detail.count(JobState.FAILED) <= one.failed or _never_began(detail):
                continue
            ids = self._batch.children(detail.id, JobState.FAILED) if part.size > 1 else [detail.id]
            numbers = sorted(number_of(job_id) for job_id in ids)
            yield from self._asked(
                [(one, number) for number in numbers if not one.has_ended[number]]
            )

    def look_at(
        self, part: Part, job_id: str, number: int
    ) -> Iterator[tuple[Part, Mapping[str, Any]]]:
        """One child, unless it was seen to have ended."""
        one = self._known.setdefault(part.name, _Known(part, job_id))
        if not one.has_ended[number]:
            yield from self._asked([(one, number)])

    def _search(self, one: _Known, detail: JobDetail) -> Iterator[tuple[Part, Mapping[str, Any]]]:
        """They do not start in order: those that run are listed; those that were quicker are found sooner or later."""
        running = {
            number_of(job_id) for job_id in self._batch.children(detail.id, JobState.RUNNING)
        }
        yield from self._asked([(one, number) for number in sorted(running - one.begun.keys())])
        for _ in range(_MORE_HUNDREDS):
            some = one.next_unseen(one.cursor) if one.missing(detail) > 0 else []
            yield from self._asked([(one, number) for number in some])
            one.cursor = some[-1] + 1 if some and some[-1] + 1 < one.part.size else 0

    def _asked(
        self, wanted: Sequence[tuple[_Known, int]]
    ) -> Iterator[tuple[Part, Mapping[str, Any]]]:
        by_id = {one.id_of(number): (one, number) for one, number in wanted}
        answers = self._batch.describe(list(by_id))
        for job_id, (one, number) in by_id.items():
            if job_id in answers:
                one.note(number, answers[job_id])
                yield one.part, answers[job_id]
            else:
                one.has_ended[number] = 1
                self.forgotten += 1

    def _of(self, part: Part, detail: JobDetail) -> _Known:
        return self._known.setdefault(part.name, _Known(part, detail.id))


class _Known:
    """What was seen of one job's children."""

    def __init__(self, part: Part, job_id: str) -> None:
        self.part = part
        self._job_id = job_id
        #: by number: 1 where it was seen to have ended
        self.has_ended = bytearray(part.size)
        self.failed = 0
        #: number -> whether it was running when seen last; else it is between two attempts
        self.begun: dict[int, bool] = {}
        #: where the search goes on
        self.cursor = 0

    def id_of(self, number: int) -> str:
        return self._job_id if self.part.size == 1 else f"{self._job_id}:{number}"

    def missing(self, detail: JobDetail) -> int:
        """How many have begun, by the counts, that were not seen."""
        count = self.part.size if detail.state.is_terminal else detail.count(*_BEGUN)
        return count - self.has_ended.count(1) - sum(self.begun.values())

    def next_unseen(self, start: int) -> list[int]:
        unseen = (
            n for n in range(start, self.part.size) if not self.has_ended[n] and n not in self.begun
        )
        return list(islice(unseen, _AT_ONCE))

    def note(self, number: int, job: Mapping[str, Any]) -> None:
        state = JobState(job["status"])
        self.begun.pop(number, None)
        if state.is_terminal:
            self.has_ended[number] = 1
            self.failed += state is JobState.FAILED
        elif state in _BEGUN or job.get("attempts"):
            self.begun[number] = state in _BEGUN


def number_of(job_id: str) -> int:
    """The child's number in its job."""
    return int(job_id.partition(":")[2] or 0)


def _never_began(detail: JobDetail) -> bool:
    return detail.status_reason == StatusReason.DEPENDENCY_FAILED and not detail.count(
        JobState.SUCCEEDED
    )
