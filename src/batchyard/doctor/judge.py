"""Facts about jobs, queues and compute environments in, report out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from batchyard.doctor.checks.base import Timing
from batchyard.doctor.checks.fit.summary import describe_fit
from batchyard.doctor.checks.jobs.blocked_by_aws import find_unexplained_reason
from batchyard.doctor.checks.table import CHECKS
from batchyard.doctor.facts import Facts, Job, Missing, Survey
from batchyard.doctor.finding import Finding, Report, Unseen, merge_places, sort_findings
from batchyard.doctor.kinds import BY_ID
from batchyard.doctor.results import Results
from batchyard.units import format_duration, pluralize

#: The longest time that a fleet needs from nothing to its first running job: default of --dwell.
DWELL_S = 15 * 60

_WAITING_STATES = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING")
_MAX_JOBS_LISTED = 3


def judge(facts: Facts, dwell_s: float = DWELL_S) -> Report:
    """Run all checks on a job, a queue or a compute environment."""
    report = _run_checks(facts, dwell_s)
    return replace(report, findings=merge_places(report.findings))


def judge_survey(survey: Survey, dwell_s: float = DWELL_S) -> Report:
    """Run all checks on every shape at its place, and merge the reports into one."""
    reports = [
        _run_checks(facts, dwell_s)
        for place in survey.places
        for facts in [replace(place.facts, job=shape) for shape in place.shapes] or [place.facts]
    ]
    return merge_reports(f"{survey.subject.kind} {survey.subject.name}", reports)


def merge_reports(subject: str, reports: Sequence[Report]) -> Report:
    """Merge reports: a check has passed where it passed in each report that has it."""
    findings = _merge_findings(reports)
    failed = {finding.kind for finding in findings}
    unseen = [u for u in _merge_unseen(reports) if u.kind not in failed]
    not_passed = failed | {u.kind for u in unseen}
    passed = dict.fromkeys(
        kind for report in reports for kind in report.passed if kind not in not_passed
    )
    blind_reasons = dict.fromkeys(report.blind_reason for report in reports if report.blind_reason)
    fits = dict.fromkeys(line for report in reports for line in report.fits)
    return Report(
        subject,
        findings,
        tuple(passed),
        tuple(unseen),
        blind_reason="; ".join(blind_reasons),
        fits=tuple(fits),
    )


def _merge_findings(reports: Sequence[Report]) -> tuple[Finding, ...]:
    return merge_places(sort_findings(f for report in reports for f in report.findings))


def _merge_unseen(reports: Sequence[Report]) -> list[Unseen]:
    """Return one entry for each kind, by id: reports differ in the words of the reason only."""
    first = {u.kind: u for report in reversed(reports) for u in reversed(report.unseen)}
    return [first[kind] for kind in BY_ID.values() if kind in first]


# -- the checks --------------------------------------------------------------------------------


def _run_checks(facts: Facts, dwell_s: float) -> Report:
    wait_s = time_waited(facts)
    is_early = wait_s is not None and wait_s < dwell_s
    results = Results()
    for check in CHECKS:
        results.add(check.kinds, partial(check.run, facts, Timing(dwell_s, is_early)))
    unexplained = find_unexplained_reason(facts, results.findings)
    if unexplained:
        results.findings.append(unexplained)
        results.passed.remove(unexplained.kind)
    findings = sort_findings(results.findings)
    waiting = ""
    if not findings:
        waiting = _show_dependencies(facts)
        if not waiting and is_early:
            waiting = _show_wait(facts, wait_s or 0, dwell_s)
    return Report(
        f"{facts.subject.kind} {facts.subject.name}",
        findings,
        tuple(results.passed),
        tuple(results.unseen),
        status=facts.job.status if isinstance(facts.job, Job) and facts.job.job_id else "",
        waiting=waiting,
        status_reason=_unmentioned_reason(facts, findings, waiting),
        blind_reason=_blind_reason(facts),
        fits=describe_fit(facts),
    )


# -- jobs that wait ----------------------------------------------------------------------------


def time_waited(facts: Facts) -> float | None:
    """Return for how many seconds the job has been waiting; None where it does not wait."""
    job = facts.job
    if not isinstance(job, Job) or job.since_ms is None or job.status not in _WAITING_STATES:
        return None
    return max(0.0, (facts.taken_ms - job.since_ms) / 1000)


def _show_dependencies(facts: Facts) -> str:
    """Return which jobs the job waits for; empty where it waits for none.

    A job that waits for other jobs is not stuck, however long they run.
    """
    job = facts.job
    if not isinstance(job, Job) or job.status not in ("SUBMITTED", "PENDING"):
        return ""
    # The status is empty where it is unknown, as for a child that waits for another child.
    unfinished = [d for d in job.depends_on if d.status not in ("", "SUCCEEDED", "FAILED")]
    if not unfinished:
        return ""
    names = ", ".join(f"{d.job_id} ({d.status})" for d in unfinished[:_MAX_JOBS_LISTED])
    verb = "has ended" if len(unfinished) == 1 else "have ended"
    return (
        f"{job.status} until {pluralize(len(unfinished), 'job')} that it depends on {verb}: {names}"
    )


def _show_wait(facts: Facts, wait_s: float, dwell_s: float) -> str:
    status = facts.job.status if isinstance(facts.job, Job) else ""
    reason = _status_reason(facts)
    aws_says = f"; AWS says: {reason}" if reason else ""
    return (
        f"{status} for {format_duration(wait_s)}{aws_says}; "
        f"a fleet may take {format_duration(dwell_s)} to start"
    )


def _status_reason(facts: Facts) -> str:
    """Return AWS Batch's reason why the job is RUNNABLE; empty for other states."""
    job = facts.job
    return job.status_reason if isinstance(job, Job) and job.status == "RUNNABLE" else ""


def _unmentioned_reason(facts: Facts, findings: Sequence[Finding], waiting: str) -> str:
    """Return AWS Batch's reason; empty where the report mentions it already."""
    reason = _status_reason(facts)
    texts = [waiting, *(text for finding in findings for text in finding.evidence)]
    return "" if any(reason in text for text in texts) else reason


def _blind_reason(facts: Facts) -> str:
    """Return why the subject could not be described; empty where it could."""
    parts = {"job": facts.job, "queue": facts.queue, "env": facts.environments}
    part = parts.get(facts.subject.kind)
    if not isinstance(part, Missing):
        return ""
    return part.reason + (f" ({part.action})" if part.action else "")
