"""The commands of a step whose list is shared out by index, by the records of its workers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from batchyard import s3_layout
from batchyard.aws.s3 import S3
from batchyard.batch.jobs import JobState
from batchyard.engines.base import CommandDetail
from batchyard.plan import PlannedJob
from batchyard.sampling import samples

#: Records that are read at the same time.
_CONCURRENCY = 16
#: Records of a step that are read to find out what its commands use.
MAX_MEASURED = 50


def read_commands(
    s3: S3, address: str, job: PlannedJob, number: int | None, *, failed_only: bool
) -> Iterator[CommandDetail]:
    """Return the commands that have ended, by number. See RunEngine.commands.

    One call for each record of a success, unless ``failed_only``, and for each child with failures.
    ``address``: the run's prefix in S3.
    """
    folder = s3_layout.records_address(address, job.step)
    names = [entry.key.rpartition(f"done/{job.step}/")[2] for entry in s3.list(folder)]
    succeeded = {int(name) for name in names if name.isdigit()}
    requested_numbers = set() if failed_only else {n for n in succeeded if number in (None, n)}
    failures = _read_failures(s3, folder, [name for name in names if not name.isdigit()])
    records = _read_successes(s3, folder, sorted(requested_numbers))
    for command in sorted({*records, *failures}):
        if number not in (None, command) or (failed_only and command in succeeded):
            continue
        executions = failures.get(command, [])
        record = records.get(command) or executions[-1]
        attempts = len(executions) + (command in records)
        yield _make_detail(job, command, record, attempts)


def read_measurements(
    s3: S3, address: str, job: PlannedJob, number: int | None = None
) -> dict[int, Mapping[str, Any]]:
    """Return command -> the record of its success, of up to MAX_MEASURED commands of a step.

    ``number``: only of this command.
    """
    folder = s3_layout.records_address(address, job.step)
    if number is not None:
        return _read_successes(s3, folder, [number])
    names = (entry.key.rpartition(f"done/{job.step}/")[2] for entry in s3.list(folder))
    numbers = sorted(int(name) for name in names if name.isdigit())
    stride = max(1, -(-len(numbers) // MAX_MEASURED))
    return _read_successes(s3, folder, numbers[::stride])


def with_measurements(detail: CommandDetail, record: Mapping[str, Any]) -> CommandDetail:
    """Return the command of an attempt with what its worker has measured."""
    return replace(
        detail,
        user_s=record.get("user_s", 0.0),
        system_s=record.get("system_s", 0.0),
        max_rss_kib=record.get("max_rss_kib", 0),
        use=samples.from_json(record.get("use")),
    )


def _read_successes(s3: S3, folder: str, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return command -> the record of its success: one call for each."""
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        addresses = (f"{folder}{s3_layout.success_record(command)}" for command in numbers)
        contents = pool.map(s3.get, addresses)
        return {
            command: json.loads(data)
            for command, data in zip(numbers, contents, strict=True)
            if data is not None
        }


def _read_failures(s3: S3, folder: str, names: list[str]) -> dict[int, list[dict[str, Any]]]:
    """Return command -> its failures, the earliest first."""
    by_command: dict[int, list[dict[str, Any]]] = {}
    for name in names:
        child = int(name.rpartition("/")[2].removesuffix(".json"))
        for failure in json.loads(s3.get(f"{folder}{name}") or b"[]"):
            by_command.setdefault(failure["command"], []).append({**failure, "child": child})
    return by_command


def _make_detail(
    job: PlannedJob, command: int, record: Mapping[str, Any], attempts: int
) -> CommandDetail:
    exit_code = record.get("exit_code", 0)
    # Records of older workers have no start.
    ended_ms = record["ended"] * 1000
    started_ms = record.get("started_ms")
    if started_ms is not None:
        ended_ms = started_ms + round(record["seconds"] * 1000)
    return CommandDetail(
        step=job.step,
        number=command,
        index=record["child"],
        state=JobState.FAILED if exit_code else JobState.SUCCEEDED,
        exit_code=exit_code,
        reason="OutOfMemoryError" if record.get("out_of_memory") else "",
        attempts=attempts,
        started_ms=started_ms,
        ended_ms=ended_ms,
        user_s=record.get("user_s", 0.0),
        system_s=record.get("system_s", 0.0),
        max_rss_kib=record.get("max_rss_kib", 0),
        host="",
        child_attempt=record["attempt"],
        use=samples.from_json(record.get("use")),
    )
