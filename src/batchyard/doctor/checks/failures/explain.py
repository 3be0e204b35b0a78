"""Why attempts failed: the check behind all findings of this folder.

The children of an array come in groups that ended alike (``Ending.count``). Each group gets one
finding. Attempts of a job that runs or waits again are explained too.
"""

from __future__ import annotations

from dataclasses import replace

from batchyard.doctor.checks.base import Timing, check_facts, job_of
from batchyard.doctor.checks.failures import unexplained
from batchyard.doctor.checks.failures.cause import Cause
from batchyard.doctor.checks.failures.table import CAUSES
from batchyard.doctor.checks.jobs.dependency_failed import DEPENDENCY_FAILED_REASON
from batchyard.doctor.facts import Ending, Facts, Job, Queue, require
from batchyard.doctor.finding import Finding, Verdict

#: BY001 reports the first; the second is followed by the endings of the children
_REPORTED_ELSEWHERE = (DEPENDENCY_FAILED_REASON, "Array Child Job failed")
_SIGNALS = {
    132: "SIGILL",
    134: "SIGABRT",
    135: "SIGBUS",
    137: "SIGKILL",
    139: "SIGSEGV",
    143: "SIGTERM",
}
_MAX_LINE_LENGTH = 200
_KINDS = sorted([cause.kind for cause in CAUSES] + [unexplained.KIND], key=lambda kind: kind.id)


@check_facts(*_KINDS)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = job_of(facts)
    if job is None or not job.job_id or job.status == "SUCCEEDED":
        return None
    if not job.endings and job.status != "FAILED":
        return None
    if not job.queue and isinstance(facts.queue, Queue):
        job = replace(job, queue=facts.queue.name)
    endings = require(job.endings) or (Ending(None, job.status_reason),)
    examined = sum(ending.count for ending in endings)
    causes = [(ending, _cause_of(job, ending)) for ending in endings]
    return [_finding(job, ending, cause, examined) for ending, cause in causes if cause]


def _cause_of(job: Job, ending: Ending) -> Cause | None:
    """Return the cause of an ending; None where a user stopped the job or BY001 reports it."""
    cause = next((cause for cause in CAUSES if cause.matches(ending)), None)
    if cause or job.is_stopped or job.status != "FAILED":
        return cause
    return None if ending.status_reason in _REPORTED_ELSEWHERE else unexplained.CAUSE


def _finding(job: Job, ending: Ending, cause: Cause, examined: int) -> Finding:
    reasons = [reason for reason in (ending.status_reason, ending.reason) if reason]
    job_id = ending.example or job.job_id
    commands = cause.remedy if isinstance(cause.remedy, tuple) else cause.remedy(job, ending)
    remedy = [line.replace("JOB_ID", job_id) for line in commands]
    if cause.is_in_log:
        remedy.append(_log_command(job, ending, job_id))
    if hint := cause.hint(ending):
        remedy.append(hint)
    return Finding(
        cause.kind,
        cause.sentence,
        (_summary(job, ending, cause, examined), *reasons, *_show_log(ending)),
        tuple(remedy),
        f"job {job_id}",
    )


def _show_log(ending: Ending) -> list[str]:
    return [f"log: {line[:_MAX_LINE_LENGTH]}" for line in ending.log_lines]


def _summary(job: Job, ending: Ending, cause: Cause, examined: int) -> str:
    """Return, for example, "3 children of 100, exit code 137 (SIGKILL)"."""
    singular, plural = ("child", "children") if job.size else ("attempt", "attempts")
    total = f" of {job.size:,}" if job.size else ""
    parts = [f"{ending.count:,} {singular if ending.count == 1 else plural}{total}"]
    if ending.exit_code is not None:
        signal = _SIGNALS.get(ending.exit_code)
        parts.append(f"exit code {ending.exit_code}" + (f" ({signal})" if signal else ""))
    if description := cause.describe_job(job):
        parts.append(description)
    if job.failed > examined:
        parts.append(f"{examined:,} of the {job.failed:,} that failed were looked at")
    return ", ".join(parts)


def _log_command(job: Job, ending: Ending, job_id: str) -> str:
    """Return the command that prints the log, or that finds the name of its stream.

    ListJobs does not return the log streams of an array's children.
    """
    if ending.log_stream:
        return (
            f"aws logs get-log-events --log-group-name {job.log_group} "
            f"--log-stream-name {ending.log_stream} "
            "--query 'events[].message' --output text   # what it said"
        )
    return (
        f"aws batch describe-jobs --jobs {job_id} "
        "--query 'jobs[].attempts[].container.logStreamName' --output text"
        f"   # the stream of its log in {job.log_group}"
    )
