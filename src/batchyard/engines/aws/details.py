"""From what DescribeJobs answers to the contract's values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from batchyard.batch.jobs import JobState
from batchyard.engines.aws.render import Part
from batchyard.engines.base import AttemptDetail, JobDetail, Overview, RunState
from batchyard.plan import PlannedJob

#: the id of a part that has not been submitted
UNSUBMITTED = "unsubmitted:"


@dataclass(frozen=True, slots=True)
class Stream:
    """Where one attempt logs."""

    name: str
    step: str
    index: int
    attempt: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class Final:
    """How a run ended, as it is kept."""

    jobs: tuple[JobDetail, ...]
    #: whether somebody asked for that; None where an older batchyard has written it
    was_stopped: bool | None
    #: id of an array with failures -> its children that succeeded, as ranges with both ends, where that is known
    succeeded: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)


def final_to_json(final: Final) -> dict[str, Any]:
    jobs = [asdict(detail) for detail in final.jobs]
    return {"was_stopped": final.was_stopped, "jobs": jobs, "succeeded": dict(final.succeeded)}


def final_from_json(kept: Any) -> Final:
    entries, was_stopped = (
        (kept, None) if isinstance(kept, list) else (kept["jobs"], kept["was_stopped"])
    )
    jobs = (
        JobDetail(**{**entry, "state": JobState(entry["state"]), "counts": tuple(entry["counts"])})
        for entry in entries
    )
    return Final(
        tuple(jobs), was_stopped, {} if isinstance(kept, list) else kept.get("succeeded", {})
    )


def overview(
    found: Sequence[JobDetail], *, was_stopped: bool, is_interrupted: bool = False
) -> Overview:
    """The run from its jobs."""
    is_over = all(detail.state.is_terminal for detail in found)
    state = RunState.RUNNING
    if is_over:
        is_good = all(detail.state is JobState.SUCCEEDED for detail in found)
        state = (
            RunState.SUCCEEDED if is_good else RunState.STOPPED if was_stopped else RunState.FAILED
        )
    starts = [detail.started_ms for detail in found if detail.started_ms is not None]
    ends = [detail.ended_ms for detail in found if detail.ended_ms is not None]
    return Overview(
        state=state,
        jobs=tuple(found),
        started_ms=min(starts, default=None),
        ended_ms=max(ends, default=None) if is_over else None,
        interruption="not all of it is submitted; what is submitted goes on"
        if is_interrupted
        else "",
    )


def job_detail(
    part: Part, job_id: str, job: Mapping[str, Any] | None, first: Mapping[str, Any] | None
) -> JobDetail:
    """``first``: the array's child 0, which tells about when it all began. None where AWS knows nothing (yet)."""
    state = JobState.SUBMITTED if job is None else JobState(job["status"])
    counts = [0] * len(JobState)
    summary = {} if job is None else job.get("arrayProperties", {}).get("statusSummary", {})
    order = list(JobState)
    if part.size > 1 and summary:
        for name, count in summary.items():
            counts[order.index(JobState(name))] = count
        # The summary comes a little late: what it does not count yet has not begun.
        counts[order.index(JobState.PENDING)] += max(0, part.size - sum(counts))
    else:
        counts[order.index(state)] = part.size
    shown = first if part.size > 1 else job
    succeeded = counts[order.index(JobState.SUCCEEDED)]
    started_ms = None if shown is None else _first_start(shown)
    # AWS does not count an array's attempts. One for each that has ended, unless it ended before anything began; where
    # some have failed, ``tally`` knows better in the end.
    ended = succeeded + counts[order.index(JobState.FAILED)] if succeeded or started_ms else 0
    return JobDetail(
        id=job_id,
        step=part.step,
        state=state,
        status_reason="" if job is None else str(job.get("statusReason", "")),
        size=part.size,
        counts=tuple(counts),
        attempts=ended if part.size > 1 or job is None else len(job.get("attempts", ())),
        created_ms=0 if job is None else int(job["createdAt"]),
        started_ms=started_ms,
        ended_ms=None if job is None or not state.is_terminal else job.get("stoppedAt"),
    )


def forgotten(
    part: Part, job_id: str, succeeded: int, has_records: bool, last_ms: int | None
) -> JobDetail:
    """A job that AWS has forgotten: it is over, and what shows no success counts as failed. ``last_ms``: when the last
    success record was written, if any."""
    left = part.size - succeeded
    if not has_records:
        reason = (
            "AWS Batch has forgotten how it ended, and a plain command leaves no success records"
        )
    elif part.size == 1:
        reason = "AWS Batch has forgotten how it ended, and not all of it has a success record"
    else:
        missing = f"success records of {left} of its {part.size} children are missing"
        reason = f"AWS Batch has forgotten how it ended; {missing}"
    counts = {JobState.SUCCEEDED: succeeded, JobState.FAILED: left}
    return JobDetail(
        id=job_id,
        step=part.step,
        state=JobState.FAILED if left else JobState.SUCCEEDED,
        status_reason=reason if left else "",
        size=part.size,
        counts=tuple(counts.get(state, 0) for state in JobState),
        attempts=succeeded,
        created_ms=0,
        started_ms=None,
        # Of one that has failed nobody knows.
        ended_ms=None if left else last_ms,
    )


def given_up(detail: JobDetail) -> JobDetail:
    """A job of a run that was stopped: one that had not been submitted by then is over."""
    if not detail.id.startswith(UNSUBMITTED):
        return detail
    counts = tuple(detail.size * (state is JobState.FAILED) for state in JobState)
    return replace(
        detail,
        state=JobState.FAILED,
        status_reason="stopped before it was submitted",
        counts=counts,
    )


def attempts(part: Part, planned: PlannedJob, job: Mapping[str, Any]) -> Iterator[AttemptDetail]:
    """The ended attempts of one child, or of a job that is none."""
    state = JobState(job["status"])
    index = index_of(part, planned, job["jobId"])
    ended = job.get("attempts", [])
    gpus = next(
        (
            int(r["value"])
            for r in job["container"].get("resourceRequirements", [])
            if r["type"] == "GPU"
        ),
        0,
    )
    for number, attempt in enumerate(ended, 1):
        is_last = number == len(ended) and state.is_terminal
        container = attempt.get("container", {})
        status_reason = str(attempt.get("statusReason", ""))
        yield AttemptDetail(
            job_id=job["jobId"],
            step=part.step,
            index=index,
            attempt=number,
            state=state if is_last else None,
            exit_code=container.get("exitCode"),
            reason=str(container.get("reason", "")),
            status_reason=str(job.get("statusReason", status_reason)) if is_last else status_reason,
            started_ms=attempt.get("startedAt"),
            ended_ms=int(attempt.get("stoppedAt", 0)),
            user_s=0.0,
            system_s=0.0,
            max_rss_kib=0,
            gpus=tuple(range(gpus)),
        )
    if state is JobState.FAILED and not ended:
        yield AttemptDetail(
            job["jobId"],
            part.step,
            index,
            0,
            state,
            None,
            "",
            str(job.get("statusReason", "")),
            None,
            int(job.get("stoppedAt", 0)),
            0.0,
            0.0,
            0,
        )


def streams(part: Part, planned: PlannedJob, job: Mapping[str, Any]) -> Iterator[Stream]:
    """The log streams of one child's attempts, the one under way included."""
    index = index_of(part, planned, job["jobId"])
    ended = job.get("attempts", [])
    for number, attempt in enumerate(ended, 1):
        name = attempt.get("container", {}).get("logStreamName")
        if name:
            yield Stream(name, part.step, index, number, True)
    name = job.get("container", {}).get("logStreamName")
    if name and not JobState(job["status"]).is_terminal:
        yield Stream(name, part.step, index, len(ended) + 1, False)


def index_of(part: Part, planned: PlannedJob, job_id: str) -> int:
    """The child's number in its step."""
    child = int(job_id.partition(":")[2] or 0)
    return planned.index_in_step(part.offset + child)


def _first_start(job: Mapping[str, Any]) -> int | None:
    starts = [
        attempt["startedAt"] for attempt in job.get("attempts", []) if attempt.get("startedAt")
    ]
    if job.get("startedAt"):
        starts.append(job["startedAt"])
    return min(starts, default=None)
