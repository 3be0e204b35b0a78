"""The last attempts of failed children, found once when the run is over and then stored.

In a stopped run nearly all children of a large array may have failed without ever starting. So the
children that started are told apart by the lists of AWS, a thousand in a call; only those are
described.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState
from batchyard.batch.limits import MAX_DESCRIBED_JOBS
from batchyard.engines.aws import from_aws
from batchyard.engines.aws.changed_children import number_of
from batchyard.engines.aws.from_aws import EndStates
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.base import AttemptDetail
from batchyard.errors import BatchyardError
from batchyard.plan import Plan
from batchyard.s3_layout import FAILURES

#: Attempts that are stored: more than `status` shows.
_MAX_STORED = 20


class FailedAttempts:
    def __init__(
        self,
        plan: Plan,
        batch: Batch,
        files: RunFiles,
        list_parts: Callable[[], list[tuple[Part, str]]],
        read_end_states: Callable[[], EndStates | None],
    ) -> None:
        """``list_parts``: the parts whose jobs AWS has, with the ids of these jobs."""
        self._plan = plan
        self._batch = batch
        self._files = files
        self._list_parts = list_parts
        self._read_end_states = read_end_states

    def find(self, job_ids: Sequence[str]) -> Iterator[AttemptDetail]:
        """Yield the last attempt of each failed child of the jobs that has started."""
        end_states = self._read_end_states()
        if end_states is None or end_states.was_stopped is None:
            yield from self._search(job_ids, {})
            return
        attempts, is_complete = self._find_stored(end_states)
        selected = [attempt for attempt in attempts if _root_id(attempt.job_id) in job_ids]
        yield from selected
        if not is_complete:
            yield from islice(self._search(job_ids, _find_started(end_states)), len(selected), None)

    def _find_stored(self, end_states: EndStates) -> tuple[list[AttemptDetail], bool]:
        """Return the first attempts of the run, and whether they are all of them."""
        document = self._files.read(FAILURES)
        if document is not None:
            return [_from_json(entry) for entry in document["attempts"]], document["is_complete"]
        all_ids = [job_id for _, job_id in self._list_parts()]
        search = self._search(all_ids, _find_started(end_states))
        attempts = list(islice(search, _MAX_STORED + 1))
        is_complete = len(attempts) <= _MAX_STORED
        attempts = attempts[:_MAX_STORED]
        document = {"attempts": [asdict(entry) for entry in attempts], "is_complete": is_complete}
        try:
            self._files.write(FAILURES, document)
        except BatchyardError:
            pass  # a user who may only read searches each time
        return attempts, is_complete

    def _search(
        self, job_ids: Sequence[str], started: Mapping[str, bool]
    ) -> Iterator[AttemptDetail]:
        """``started``: id of a job -> whether any of its failed children has started, if known."""
        for part, job_id in self._list_parts():
            if job_id not in job_ids or not started.get(job_id, True):
                continue
            for job in self._describe_failed(part, job_id):
                attempts = list(from_aws.make_attempts(part, self._plan.job(part.step), job))
                yield from (last for last in attempts[-1:] if last.attempt)

    def _describe_failed(self, part: Part, job_id: str) -> Iterator[Mapping[str, Any]]:
        """Yield the failed children, described a hundred at a time: callers may need the first."""
        ids = [job_id]
        if part.size > 1:
            ids = sorted(self._batch.started_children(job_id, JobState.FAILED), key=number_of)
        for first in range(0, len(ids), MAX_DESCRIBED_JOBS):
            answers = self._batch.describe(ids[first : first + MAX_DESCRIBED_JOBS])
            for child_id in sorted(answers, key=number_of):
                if answers[child_id]["status"] == JobState.FAILED:
                    yield answers[child_id]


def _find_started(end_states: EndStates) -> dict[str, bool]:
    """Return id -> whether a failed child has started, of the jobs whose attempts are counted."""
    return {
        job.id: job.attempts > job.count(JobState.SUCCEEDED)
        for job in end_states.jobs
        if job.id in end_states.succeeded
    }


def _root_id(job_id: str) -> str:
    return job_id.partition(":")[0]


def _from_json(document: Mapping[str, Any]) -> AttemptDetail:
    state = None if document["state"] is None else JobState(document["state"])
    return AttemptDetail(**{**document, "state": state, "gpus": tuple(document["gpus"])})
