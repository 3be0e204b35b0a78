"""Reading an embedded engine's run: what it did and what its children wrote. From any process, at any time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from batchyard.batch.jobs import JobState
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.engines.base import AttemptDetail, JobDetail, LogChunk
from batchyard.folder import RunFolder
from batchyard.plan import Plan, PlannedJob

_CHUNK_SIZE = 1 << 20


def job_detail(row: JobRow) -> JobDetail:
    return JobDetail(
        id=row.id,
        step=row.step,
        state=JobState(row.state),
        status_reason=row.status_reason,
        size=row.size,
        counts=row.counts,
        attempts=row.attempts,
        created_ms=row.created_ms,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
    )


def attempt_detail(row: AttemptRow, job_id: str, planned: PlannedJob) -> AttemptDetail:
    return AttemptDetail(
        job_id=job_id,
        step=planned.step,
        index=planned.index_in_step(row.child),
        attempt=row.attempt,
        state=None if row.state is None else JobState(row.state),
        exit_code=row.exit_code,
        reason=row.reason,
        status_reason=row.status_reason,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
        user_s=row.user_s,
        system_s=row.system_s,
        max_rss_kib=row.max_rss_kib,
        gpus=tuple(int(gpu) for gpu in row.gpus.split(",") if gpu),
    )


class LogReader:
    """The output of a run's children. Each byte is returned once; the next call has what is new."""

    missing = ""

    def __init__(self, folder: RunFolder, store: Store, plan: Plan) -> None:
        self._folder = folder
        self._store = store
        self._plan = plan
        #: (step, index, attempt) -> bytes of its own file that were given out, or -1 when it is over
        self._given: dict[tuple[str, int, int], int] = {}

    def read(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        for row in self._store.jobs():
            if step is None or row.step == step:
                yield from self._read_job(row, self._plan.job(row.step), index, failed_only)

    def follow(
        self,
        jobs: Sequence[JobDetail],
        step: str | None = None,
        index: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[LogChunk]:
        return self.read(step, index, failed_only=failed_only)

    def tail(self, detail: AttemptDetail, lines: int) -> list[str]:
        """The last lines of one attempt's output."""
        row = self._row_of(detail)
        if row is None:
            return []
        data = b""
        if row.log_offset is not None:
            data = _slice(self._folder.short_log, row.log_offset, row.log_length or 0)
        else:
            path = self._folder.log_of(detail.step, detail.index, detail.attempt)
            if path.exists():
                size = path.stat().st_size
                data = _slice(path, max(0, size - 64 * 1024), 64 * 1024)
        return data.decode(errors="replace").splitlines()[-lines:]

    def _row_of(self, detail: AttemptDetail) -> AttemptRow | None:
        job = next((row for row in self._store.jobs() if row.id == detail.job_id), None)
        if job is None:
            return None
        child = _child_of(self._plan.job(job.step), detail.index)
        rows = self._store.attempts(job.number, child=child) if child is not None else iter(())
        return next((row for row in rows if row.attempt == detail.attempt), None)

    def _read_job(
        self, job: JobRow, planned: PlannedJob, index: int | None, failed_only: bool
    ) -> Iterator[LogChunk]:
        child = None if index is None else _child_of(planned, index)
        if index is not None and child is None:
            return
        state = JobState.FAILED if failed_only else None
        ended = set()
        for row in self._store.attempts(job.number, child=child, state=state):
            key = (job.step, planned.index_in_step(row.child), row.attempt)
            ended.add(key[1:])
            if row.attempt and self._given.get(key) != -1:
                yield from self._read_ended(key, row)
        if not failed_only:
            for key in self._running(job.step, index):
                if key[1:] not in ended:
                    yield from self._read_file(key)

    def _read_ended(self, key: tuple[str, int, int], row: AttemptRow) -> Iterator[LogChunk]:
        # A file of its own is there as well where the engine died during the attempt.
        yield from self._read_file(key)
        if row.log_offset is not None and row.log_length:
            yield LogChunk(*key, _slice(self._folder.short_log, row.log_offset, row.log_length))
        self._given[key] = -1

    def _read_file(self, key: tuple[str, int, int]) -> Iterator[LogChunk]:
        path = self._folder.log_of(*key)
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._given.get(key, 0))
            while data := file.read(_CHUNK_SIZE):
                yield LogChunk(*key, data)
            self._given[key] = file.tell()

    def _running(self, step: str, index: int | None) -> list[tuple[str, int, int]]:
        """Attempts that have a file and may have no row yet."""
        folder = self._folder.logs / step
        if not folder.is_dir():
            return []
        found = []
        for name in os.listdir(folder):
            child, _, attempt = name.removesuffix(".log").partition("-")
            if child.isdigit() and attempt.isdigit() and index in (None, int(child)):
                found.append((step, int(child), int(attempt)))
        return sorted(found)


def _child_of(planned: PlannedJob, index: int) -> int | None:
    """The child's number in its job, from that in its step."""
    if planned.indices is None:
        return index if 0 <= index < planned.size else None
    return planned.indices.index(index) if index in planned.indices else None


def _slice(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)
