"""The answers of DescribeJobs as the values of the engines' contract. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.aws.render import Part
from batchyard.engines.base import AttemptDetail, CommandCounts, JobDetail, Overview, RunState
from batchyard.engines.ec2_hosts import lost_instance
from batchyard.engines.usage import HostUse
from batchyard.plan import PlannedJob

#: Prefix of the id of a part that has not been submitted.
UNSUBMITTED = "unsubmitted:"


@dataclass(frozen=True, slots=True)
class Stream:
    """The log stream of one attempt."""

    name: str
    step: str
    index: int
    attempt: int
    is_over: bool
    #: When the attempt ended; 0 if it has not, or long ago.
    ended_ms: int = 0


@dataclass(frozen=True, slots=True)
class EndStates:
    """How a run ended, as stored in final.json."""

    jobs: tuple[JobDetail, ...]
    #: Whether a user stopped the run; None where an older batchyard has written the file.
    was_stopped: bool | None
    #: Id of an array with failures -> children that succeeded, as ranges with both ends.
    succeeded: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)


def end_states_to_json(stored: EndStates) -> dict[str, Any]:
    jobs = [asdict(job) for job in stored.jobs]
    return {"was_stopped": stored.was_stopped, "jobs": jobs, "succeeded": dict(stored.succeeded)}


def end_states_from_json(document: Any) -> EndStates:
    """Return the end states. Older versions of batchyard stored the list of jobs alone."""
    if isinstance(document, list):
        document = {"jobs": document, "was_stopped": None}
    jobs = tuple(map(_job_from_json, document["jobs"]))
    return EndStates(jobs, document["was_stopped"], document.get("succeeded", {}))


def _job_from_json(fields: Mapping[str, Any]) -> JobDetail:
    counts = fields.get("commands")
    return JobDetail(
        **{
            **fields,
            "state": JobState(fields["state"]),
            "counts": tuple(fields["counts"]),
            "commands": None if counts is None else CommandCounts(**counts),
        }
    )


def make_overview(
    jobs: Sequence[JobDetail], *, was_stopped: bool, is_interrupted: bool = False
) -> Overview:
    """Return the state of the run with these jobs."""
    is_over = all(job.state.is_terminal for job in jobs)
    started_ms = [job.started_ms for job in jobs if job.started_ms is not None]
    ended_ms = [job.ended_ms for job in jobs if job.ended_ms is not None]
    interruption = "not all of it is submitted; what is submitted goes on"
    return Overview(
        state=_final_state(jobs, was_stopped) if is_over else RunState.RUNNING,
        jobs=tuple(jobs),
        started_ms=min(started_ms, default=None),
        ended_ms=max(ended_ms, default=None) if is_over else None,
        interruption=interruption if is_interrupted else "",
    )


def _final_state(jobs: Sequence[JobDetail], was_stopped: bool) -> RunState:
    if all(job.state is JobState.SUCCEEDED for job in jobs):
        return RunState.SUCCEEDED
    return RunState.STOPPED if was_stopped else RunState.FAILED


def make_job_detail(
    part: Part,
    job_id: str,
    job: Mapping[str, Any] | None,
    first_child: Mapping[str, Any] | None,
) -> JobDetail:
    """Return the job of a part, from its description and that of the array's first child.

    Both are None where AWS does not know them, perhaps because they are too new. The first child
    tells when an array began.
    """
    state = JobState.SUBMITTED if job is None else JobState(job["status"])
    counts = _count_children(part, state, job)
    described = first_child if part.size > 1 else job
    started_ms = None if described is None else _first_start_ms(described)
    return JobDetail(
        id=job_id,
        step=part.step,
        state=state,
        status_reason="" if job is None else str(job.get("statusReason", "")),
        size=part.size,
        counts=tuple(counts.values()),
        attempts=_count_attempts(part, job, counts, started_ms),
        created_ms=0 if job is None else int(job["createdAt"]),
        started_ms=started_ms,
        ended_ms=None if job is None or not state.is_terminal else job.get("stoppedAt"),
    )


def _count_attempts(
    part: Part,
    job: Mapping[str, Any] | None,
    counts: Mapping[JobState, int],
    started_ms: int | None,
) -> int:
    """Return the number of attempts of a job, estimated for an array.

    AWS does not count the attempts of an array: assume one for each child that has ended, or none
    if all children ended before any began. ``attempt_counts`` corrects the number at the end of
    the run.
    """
    if part.size == 1 and job is not None:
        return len(job.get("attempts", ()))
    has_begun = bool(counts[JobState.SUCCEEDED] or started_ms)
    return counts[JobState.SUCCEEDED] + counts[JobState.FAILED] if has_begun else 0


def _count_children(
    part: Part, state: JobState, job: Mapping[str, Any] | None
) -> dict[JobState, int]:
    """Return the number of children in each state, in the order of JobState."""
    counts = dict.fromkeys(JobState, 0)
    summary = {} if job is None else job.get("arrayProperties", {}).get("statusSummary", {})
    if part.size == 1 or not summary:
        counts[state] = part.size
        return counts
    for name, count in summary.items():
        counts[JobState(name)] = count
    # The summary comes a little late: children that it does not count yet have not begun.
    counts[JobState.PENDING] += max(0, part.size - sum(counts.values()))
    return counts


def make_forgotten_job(
    part: Part, job_id: str, succeeded: int, has_records: bool, last_ms: int | None
) -> JobDetail:
    """Return a job that AWS has forgotten: it is over, and children without success have failed.

    ``last_ms``: when the last success record was written.
    """
    failed = part.size - succeeded
    if not has_records:
        reason = "a plain command leaves no success records"
    elif part.size == 1:
        reason = "not all of it has a success record"
    else:
        reason = f"success records of {failed} of its {part.size} children are missing"
    counts = {JobState.SUCCEEDED: succeeded, JobState.FAILED: failed}
    return JobDetail(
        id=job_id,
        step=part.step,
        state=JobState.FAILED if failed else JobState.SUCCEEDED,
        status_reason=f"AWS Batch has forgotten how it ended; {reason}" if failed else "",
        size=part.size,
        counts=tuple(counts.get(state, 0) for state in JobState),
        attempts=succeeded,
        created_ms=0,
        started_ms=None,
        # The end of a failed job is unknown.
        ended_ms=None if failed else last_ms,
    )


def give_up(job: JobDetail) -> JobDetail:
    """Return a job of a stopped run: one that was not submitted by then has failed."""
    if not job.id.startswith(UNSUBMITTED):
        return job
    return replace(
        job,
        state=JobState.FAILED,
        status_reason="stopped before it was submitted",
        counts=tuple(job.size * (state is JobState.FAILED) for state in JobState),
    )


def has_unfinished_commands(job: JobDetail) -> bool:
    """Return whether a job succeeded that has commands which are not done."""
    counts = job.commands
    is_good = job.state is JobState.SUCCEEDED
    return counts is not None and is_good and counts.succeeded + counts.failed < counts.total


def hold_back(job: JobDetail, reason: str) -> JobDetail:
    """Return a job of a held run: one whose commands are not all done has failed."""
    if not has_unfinished_commands(job):
        return job
    return replace(job, state=JobState.FAILED, status_reason=reason)


def make_attempts(
    part: Part,
    planned: PlannedJob,
    job: Mapping[str, Any],
    host_ids: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[AttemptDetail]:
    """Return the ended attempts of one child, or of a job that is not an array.

    ``host_ids``: ARN of a container instance -> id of its host, as far as they are known.
    """
    state = JobState(job["status"])
    index = index_of(part, planned, job["jobId"])
    ended = job.get("attempts", [])
    for number, attempt in enumerate(ended, 1):
        is_last = number == len(ended) and state.is_terminal
        container = attempt.get("container", {})
        status_reason = str(attempt.get("statusReason", ""))
        arn = str(container.get("containerInstanceArn", ""))
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
            gpus=tuple(range(_count_gpus(job))),
            host=host_ids.get(arn, arn.rpartition("/")[2]),
        )
    if state is JobState.FAILED and not ended:
        yield AttemptDetail(
            job_id=job["jobId"],
            step=part.step,
            index=index,
            attempt=0,
            state=state,
            exit_code=None,
            reason="",
            status_reason=str(job.get("statusReason", "")),
            started_ms=None,
            ended_ms=int(job.get("stoppedAt", 0)),
            user_s=0.0,
            system_s=0.0,
            max_rss_kib=0,
        )


def _count_gpus(job: Mapping[str, Any]) -> int:
    requirements = job["container"].get("resourceRequirements", [])
    return sum(int(entry["value"]) for entry in requirements if entry["type"] == "GPU")


def find_streams(part: Part, planned: PlannedJob, job: Mapping[str, Any]) -> Iterator[Stream]:
    """Return the log streams of a child's attempts, also of the one under way."""
    index = index_of(part, planned, job["jobId"])
    ended = job.get("attempts", [])
    for number, attempt in enumerate(ended, 1):
        name = attempt.get("container", {}).get("logStreamName")
        if name:
            ended_ms = int(attempt.get("stoppedAt", 0))
            yield Stream(name, part.step, index, number, True, ended_ms)
    name = job.get("container", {}).get("logStreamName")
    if name and not JobState(job["status"]).is_terminal:
        yield Stream(name, part.step, index, len(ended) + 1, False)


def index_of(part: Part, planned: PlannedJob, job_id: str) -> int:
    """Return the child's number in its step."""
    child = int(job_id.partition(":")[2] or 0)
    return planned.index_in_step(part.offset + child)


def _first_start_ms(job: Mapping[str, Any]) -> int | None:
    starts = [
        attempt["startedAt"] for attempt in job.get("attempts", []) if attempt.get("startedAt")
    ]
    if job.get("startedAt"):
        starts.append(job["startedAt"])
    return min(starts, default=None)


# -- attempts on hosts --


def read_uses(
    step: str, index: int, job: Mapping[str, Any]
) -> tuple[list[tuple[HostUse, str]], int]:
    """Return the attempts of a child on hosts, and the number of those on Fargate.

    The host of a use is the ARN of its container instance. Beside it is the id of the EC2 instance
    where the attempt ended with its host, else an empty text.
    """
    state = JobState(job["status"])
    requested = _read_requested(job)
    ended = job.get("attempts", ())
    uses: list[tuple[HostUse, str]] = []
    fargate_count = 0
    for number, attempt in enumerate(ended, 1):
        arn = attempt.get("container", {}).get("containerInstanceArn", "")
        if not attempt.get("startedAt"):
            continue  # it never started: its time is idle time of the host
        if not arn:
            fargate_count += 1
            continue
        is_last = number == len(ended) and state.is_terminal
        counts = is_last and state is JobState.SUCCEEDED
        reason = str(attempt.get("statusReason", "")) or str(job.get("statusReason", ""))
        use = HostUse(
            *(arn, step, index, number, attempt["startedAt"] / 1000, attempt["stoppedAt"] / 1000),
            *(requested, counts),
        )
        uses.append((use, "" if counts else lost_instance(reason)))
    arn = job.get("container", {}).get("containerInstanceArn", "")
    if state is JobState.RUNNING and arn and job.get("startedAt"):
        started_s = job["startedAt"] / 1000
        uses.append((HostUse(arn, step, index, len(ended) + 1, started_s, None, requested), ""))
    return uses, fargate_count


def _read_requested(job: Mapping[str, Any]) -> Resources:
    requirements = job.get("container", {}).get("resourceRequirements", ())
    amounts = {entry["type"]: int(float(entry["value"])) for entry in requirements}
    return Resources(amounts.get("VCPU", 1), amounts.get("MEMORY", 0), amounts.get("GPU", 0))
