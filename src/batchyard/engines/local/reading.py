"""Read the commands and logs of a local run, from any process at any time."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from batchyard.batch.jobs import JobState
from batchyard.embedded import memory_use
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.engines.base import AttemptDetail, CommandDetail, JobDetail, LogChunk
from batchyard.engines.scheduled.reading import attempt_detail, child_of, join_uses
from batchyard.folder import RunFolder
from batchyard.plan import Plan, PlannedJob

_CHUNK_SIZE = 1 << 20
_TAIL_BYTES = 64 * 1024
#: Marks an attempt whose whole output was returned.
_ALL = -1

#: Step, index in the step, and attempt.
_AttemptKey = tuple[str, int, int]


def command_details(
    planned: PlannedJob,
    store: Store,
    job: JobRow,
    number: int | None = None,
    *,
    failed_only: bool = False,
) -> Iterator[CommandDetail]:
    """Return the commands of a job that have ended. See RunEngine.commands."""
    floor_kib = memory_use.find_floor_kib(store.value(memory_use.ENGINE_PEAK))
    if planned.has_several_commands:
        for command in _commands_of_shares(planned, store, job, number, failed_only):
            yield replace(command, memory_floor_kib=floor_kib)
        return
    details = _commands_of_children(planned, store, job, number, floor_kib, failed_only)
    yield from details if planned.is_in_order else sorted(details, key=attrgetter("number"))


def _commands_of_children(
    planned: PlannedJob,
    store: Store,
    job: JobRow,
    number: int | None,
    floor_kib: int,
    failed_only: bool,
) -> Iterator[CommandDetail]:
    """Return the commands of children that run one each, in the order of the job's children."""
    child = None if number is None else child_of(planned, number)
    if number is not None and child is None:
        return
    state = JobState.FAILED if failed_only else None
    attempts = store.attempts(job.number, child=child, state=state)
    pairs = join_uses(attempts, store.uses(job.number, child=child))
    for child, group in groupby(pairs, key=lambda pair: pair[0].child):
        if commands := planned.commands_of(child):
            *_, (last, use) = group
            detail = attempt_detail(last, job.id, planned, use)
            yield CommandDetail.of_attempt(detail, commands[0], last.place, floor_kib)


def _commands_of_shares(
    planned: PlannedJob, store: Store, job: JobRow, number: int | None, failed_only: bool
) -> Iterator[CommandDetail]:
    """Return the commands of children that run several, from their own records."""
    last_attempts = {
        attempt.child: (attempt.attempt, attempt.state, attempt.place)
        for attempt in store.attempts(job.number)
    }
    uses = {(row.command, row.attempt): row.use for row in store.uses(job.number, of_commands=True)}
    rows = store.commands(job.number, number=number)
    for _, group in groupby(rows, key=lambda row: row.number):
        executions = list(group)
        row = executions[-1]
        last_attempt, child_state, place = last_attempts.get(row.child, (0, None, ""))
        is_final = last_attempt == row.attempt and child_state is not None
        state = JobState.FAILED if is_final else None
        if row.exit_code == 0:
            state = JobState.SUCCEEDED
        if not failed_only or state is JobState.FAILED:
            yield CommandDetail(
                step=planned.step,
                number=row.number,
                index=planned.index_in_step(row.child),
                state=state,
                exit_code=row.exit_code,
                reason="",
                attempts=sum(execution.attempt > 0 for execution in executions),
                started_ms=row.started_ms,
                ended_ms=row.ended_ms,
                user_s=row.user_s,
                system_s=row.system_s,
                max_rss_kib=row.max_rss_kib,
                host=place,
                child_attempt=row.attempt,
                log_offset=row.log_offset,
                log_length=row.log_length,
                use=uses.get((row.number, row.attempt)),
            )


class LogReader:
    """The output of a run's children. Each byte is returned once; the next call has what is new."""

    missing = ""

    def __init__(self, folder: RunFolder, store: Store, plan: Plan) -> None:
        self._folder = folder
        self._store = store
        self._plan = plan
        #: Bytes of each attempt's file that were returned; _ALL once the attempt has ended.
        self._returned: dict[_AttemptKey, int] = {}

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
        """Return the last lines of an attempt's output."""
        row = self._find_row(detail)
        if row is None:
            return []
        data = b""
        if row.log_offset is not None:
            data = _read_slice(self._folder.short_log, row.log_offset, row.log_length or 0)
        else:
            path = self._folder.log_of(detail.step, detail.index, detail.attempt)
            if path.exists():
                size = path.stat().st_size
                data = _read_slice(path, max(0, size - _TAIL_BYTES), _TAIL_BYTES)
        return data.decode(errors="replace").splitlines()[-lines:]

    def read_command(self, command: CommandDetail, last_bytes: int | None = None) -> bytes:
        attempts = self._store.attempts(
            self._job_of(command.step).number,
            child=child_of(self._plan.job(command.step), command.index),
        )
        row = next((row for row in attempts if row.attempt == command.child_attempt), None)
        path = self._folder.log_of(command.step, command.index, command.child_attempt)
        begin, size = 0, path.stat().st_size if path.exists() else 0
        if row is not None and row.log_offset is not None:
            path, begin, size = self._folder.short_log, row.log_offset, row.log_length or 0
        if not size:
            return b""
        first = command.log_offset
        length = size - first if command.log_length is None else command.log_length
        if last_bytes is not None and length > last_bytes:
            first, length = first + length - last_bytes, last_bytes
        return _read_slice(path, begin + first, length)

    def sizes(self, step: str, index: int) -> dict[int, int]:
        sizes = {row.attempt: 0 for row in self._rows_of(step, index) if row.attempt}
        sizes |= {attempt: 0 for _, _, attempt in self._list_files(step, index)}
        return {
            attempt: sum(length for _, _, length in self._sources(step, index, attempt))
            for attempt in sorted(sizes)
        }

    def read_part(self, step: str, index: int, attempt: int, begin: int, length: int) -> bytes:
        parts = []
        for path, offset, size in self._sources(step, index, attempt):
            if begin < size and length > 0:
                part = _read_slice(path, offset + begin, min(length, size - begin))
                parts.append(part)
                length -= len(part)
            begin = max(0, begin - size)
        return b"".join(parts)

    def _sources(self, step: str, index: int, attempt: int) -> list[tuple[Path, int, int]]:
        """Return (file, offset, length) of the parts of an attempt's output, in order."""
        sources = []
        path = self._folder.log_of(step, index, attempt)
        # There is also a file if the engine died during the attempt.
        if path.exists():
            sources.append((path, 0, path.stat().st_size))
        for row in self._rows_of(step, index):
            if row.attempt == attempt and row.log_offset is not None and row.log_length:
                sources.append((self._folder.short_log, row.log_offset, row.log_length))
        return sources

    def _rows_of(self, step: str, index: int) -> list[AttemptRow]:
        child = child_of(self._plan.job(step), index)
        if child is None:
            return []
        return list(self._store.attempts(self._job_of(step).number, child=child))

    def _job_of(self, step: str) -> JobRow:
        return next(row for row in self._store.jobs() if row.step == step)

    def _find_row(self, detail: AttemptDetail) -> AttemptRow | None:
        job = next((row for row in self._store.jobs() if row.id == detail.job_id), None)
        if job is None:
            return None
        child = child_of(self._plan.job(job.step), detail.index)
        rows = self._store.attempts(job.number, child=child) if child is not None else iter(())
        return next((row for row in rows if row.attempt == detail.attempt), None)

    def _read_job(
        self, job: JobRow, planned: PlannedJob, index: int | None, failed_only: bool
    ) -> Iterator[LogChunk]:
        child = None if index is None else child_of(planned, index)
        if index is not None and child is None:
            return
        state = JobState.FAILED if failed_only else None
        ended_keys = set()
        rows: Iterable[AttemptRow] = self._store.attempts(job.number, child=child, state=state)
        if not planned.is_in_order:
            rows = sorted(rows, key=lambda row: (planned.index_in_step(row.child), row.attempt))
        for row in rows:
            key = (job.step, planned.index_in_step(row.child), row.attempt)
            ended_keys.add(key)
            yield from self._read_ended(key, row)
        if not failed_only:
            yield from self._read_running(job.step, index, ended_keys)

    def _read_ended(self, key: _AttemptKey, row: AttemptRow) -> Iterator[LogChunk]:
        if not row.attempt or self._returned.get(key) == _ALL:
            return
        # There is also a file if the engine died during the attempt.
        yield from self._read_file(key)
        if row.log_offset is not None and row.log_length:
            yield LogChunk(
                *key, _read_slice(self._folder.short_log, row.log_offset, row.log_length)
            )
        self._returned[key] = _ALL

    def _read_running(
        self, step: str, index: int | None, ended_keys: Container[_AttemptKey]
    ) -> Iterator[LogChunk]:
        for key in self._list_files(step, index):
            if key not in ended_keys:
                yield from self._read_file(key)

    def _read_file(self, key: _AttemptKey) -> Iterator[LogChunk]:
        path = self._folder.log_of(*key)
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._returned.get(key, 0))
            while data := file.read(_CHUNK_SIZE):
                yield LogChunk(*key, data)
            self._returned[key] = file.tell()

    def _list_files(self, step: str, index: int | None) -> list[_AttemptKey]:
        """Return the attempts that have a file. Those that still run have no row yet."""
        folder = self._folder.logs / step
        if not folder.is_dir():
            return []
        keys = []
        for name in os.listdir(folder):
            child, _, attempt = name.removesuffix(".log").partition("-")
            if child.isdigit() and attempt.isdigit() and index in (None, int(child)):
                keys.append((step, int(child), int(attempt)))
        return sorted(keys)


def _read_slice(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)
