"""The log streams of a run's children: which there are, for the reader of their output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from batchyard.batch.jobs import JobState
from batchyard.engines.aws import from_aws
from batchyard.engines.aws.changed_children import ChangedChildren
from batchyard.engines.aws.from_aws import UNSUBMITTED, Stream
from batchyard.engines.aws.render import Part
from batchyard.engines.base import JobDetail
from batchyard.plan import Plan

__all__ = ["BatchStreams", "ChildStreams", "Stream", "StreamFinder"]

DescribedChildren = Iterable[tuple[Part, Mapping[str, Any]]]


class ChildStreams(NamedTuple):
    """The streams of one child's attempts, in their order."""

    streams: Sequence[Stream]
    #: Whether the child has failed for good.
    has_failed: bool


class StreamFinder(Protocol):
    """Finds the streams that may have new output."""

    def find(
        self,
        step: str | None,
        index: int | None,
        *,
        failed_only: bool = False,
        jobs: Sequence[JobDetail] | None = None,
    ) -> Iterable[ChildStreams]:
        """Return the streams of children that have begun; not again those known to be complete.

        ``jobs``: the current state of a run that goes on. Some streams may be left for the next
        call then.
        """

    def describe_missing(self, group: str) -> str:
        """Return a sentence about streams whose names are lost; empty if there are none."""


@dataclass(frozen=True, slots=True)
class BatchStreams:
    """The streams of jobs of AWS Batch, from their descriptions."""

    plan: Plan
    children: ChangedChildren
    #: Returns the parts with the ids of their jobs.
    list_parts: Callable[[], list[tuple[Part, str]]]
    describe_jobs: Callable[[], Sequence[JobDetail]]

    def find(
        self,
        step: str | None,
        index: int | None,
        *,
        failed_only: bool = False,
        jobs: Sequence[JobDetail] | None = None,
    ) -> Iterator[ChildStreams]:
        for part, job in self._find_children(step, index, failed_only, jobs):
            streams = list(from_aws.find_streams(part, self.plan.job(part.step), job))
            yield ChildStreams(streams, job["status"] == JobState.FAILED)

    def describe_missing(self, group: str) -> str:
        if not self.children.forgotten:
            return ""
        return (
            "AWS has forgotten the run's jobs, as it does after a week, and with them the names of "
            f"their log streams; the output may still be in the log group {group}"
        )

    def _find_children(
        self,
        step: str | None,
        index: int | None,
        failed_only: bool,
        jobs: Sequence[JobDetail] | None,
    ) -> DescribedChildren:
        if step is not None and index is not None:
            # One child is described by its number; the other jobs are not needed.
            return self._find_child(step, index)
        is_thorough = jobs is None
        by_id = {job.id: job for job in (self.describe_jobs() if jobs is None else jobs)}
        submitted = [
            (part, by_id[job_id])
            for part, job_id in self.list_parts()
            if job_id in by_id and not job_id.startswith(UNSUBMITTED) and step in (None, part.step)
        ]
        if failed_only:
            return self.children.look_at_failed(submitted)
        return self.children.look(submitted, is_thorough=is_thorough)

    def _find_child(self, step: str, index: int) -> DescribedChildren:
        planned = self.plan.job(step)
        for part, job_id in self.list_parts():
            if part.step != step or job_id.startswith(UNSUBMITTED):
                continue
            for number in range(part.size):
                if planned.index_in_step(part.offset + number) == index:
                    return self.children.look_at_child(part, job_id, number)
        return ()
