"""Facts in, report out: goes through the table of checks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchyard.doctor.checks import fit, line, table
from batchyard.doctor.checks.table import Setting
from batchyard.doctor.facts import CannotSee, Facts, Job, Missing, Survey
from batchyard.doctor.finding import Finding, Kind, Report, Unseen, in_order, together
from batchyard.doctor.kinds import BY_ID
from batchyard.units import counted, show_duration

#: what a fleet needs from nothing to its first running job, at most: the default of --dwell
DWELL_S = 15 * 60

_WAITING_STATES = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING")


@dataclass
class _Tally:
    findings: list[Finding]
    right: list[Kind]
    unseen: list[Unseen]


def judge(facts: Facts, dwell_s: float = DWELL_S) -> Report:
    """Everything that can be said about a job, a queue or an environment."""
    report = _judged(facts, dwell_s)
    return replace(report, findings=together(report.findings))


def _judged(facts: Facts, dwell_s: float) -> Report:
    waited_s = waited(facts)
    setting = Setting(dwell_s, is_early=waited_s is not None and waited_s < dwell_s)
    tally = _Tally([], [], [])
    for check in table.CHECKS:
        _run(check, facts, setting, tally)
    unsaid = line.unsaid(facts, tally.findings)
    if unsaid:
        tally.findings.append(unsaid)
        tally.right.remove(unsaid.kind)
    subject = f"{facts.subject.kind} {facts.subject.name}"
    findings = in_order(tally.findings)
    waiting = (
        ""
        if findings
        else _waiting_for(facts) or (_waiting(facts, waited_s or 0, dwell_s) * setting.is_early)
    )
    return Report(
        subject,
        findings,
        tuple(tally.right),
        tuple(tally.unseen),
        status=facts.job.status if isinstance(facts.job, Job) and facts.job.job_id else "",
        waiting=waiting,
        says=_says(facts, findings, waiting),
        blind=_blind(facts),
        fits=fit.where(facts),
    )


def judge_survey(survey: Survey, dwell_s: float = DWELL_S) -> Report:
    """Every shape at its place, as one report; what is wrong with a place is said once."""
    reports = [
        _judged(facts, dwell_s)
        for place in survey.places
        for facts in [replace(place.facts, job=shape) for shape in place.shapes] or [place.facts]
    ]
    return merged(f"{survey.subject.kind} {survey.subject.name}", reports)


def merged(subject: str, reports: Sequence[Report]) -> Report:
    """What is right must be so everywhere."""
    findings = together(in_order(finding for report in reports for finding in report.findings))
    wrong = {finding.kind for finding in findings}
    # The first reason stands for all: it is mostly the same in other words.
    first = {u.kind: u for report in reversed(reports) for u in reversed(report.unseen)}
    unseen = [first[kind] for kind in BY_ID.values() if kind in first and kind not in wrong]
    doubtful = wrong | {u.kind for u in unseen}
    right = dict.fromkeys(
        kind for report in reports for kind in report.right if kind not in doubtful
    )
    blind = dict.fromkeys(report.blind for report in reports if report.blind)
    fits = dict.fromkeys(line for report in reports for line in report.fits)
    return Report(
        subject, findings, tuple(right), tuple(unseen), blind="; ".join(blind), fits=tuple(fits)
    )


def waited(facts: Facts) -> float | None:
    """How long the job has been in a state that it should leave; None where there is no such job."""
    job = facts.job
    if not isinstance(job, Job) or job.since_ms is None or job.status not in _WAITING_STATES:
        return None
    return max(0.0, (facts.taken_ms - job.since_ms) / 1000)


def _run(check: table.Check, facts: Facts, setting: Setting, tally: _Tally) -> None:
    try:
        found = check.look(facts, setting)
    except CannotSee as exc:
        tally.unseen += [Unseen(kind, exc.missing.why, exc.missing.action) for kind in check.kinds]
        return
    if found is None:
        return
    tally.findings += found
    seen = {finding.kind for finding in found}
    tally.right += [kind for kind in check.kinds if kind not in seen]


def _waiting_for(facts: Facts) -> str:
    """A job that waits for others is not stuck, however long they take."""
    job = facts.job
    if not isinstance(job, Job) or job.status not in ("SUBMITTED", "PENDING"):
        return ""
    # Children of an array wait for their own turn, whatever the parent's dependencies say.
    going_on = [d for d in job.depends_on if d.status not in ("", "SUCCEEDED", "FAILED")]
    if not going_on:
        return ""
    some = ", ".join(f"{d.job_id} ({d.status})" for d in going_on[:3])
    return f"{job.status} until {counted(len(going_on), 'job')} that it depends on {_have_ended(going_on)}: {some}"


def _have_ended(jobs: Sequence[object]) -> str:
    return "has ended" if len(jobs) == 1 else "have ended"


def _waiting(facts: Facts, waited_s: float, dwell_s: float) -> str:
    status = facts.job.status if isinstance(facts.job, Job) else ""
    reason = _reason(facts)
    said = f"; AWS says: {reason}" if reason else ""
    return f"{status} for {show_duration(waited_s)}{said}; a fleet may take {show_duration(dwell_s)} to start"


def _reason(facts: Facts) -> str:
    """AWS's own, why a job does not start."""
    return (
        facts.job.status_reason
        if isinstance(facts.job, Job) and facts.job.status == "RUNNABLE"
        else ""
    )


def _says(facts: Facts, findings: Sequence[Finding], waiting: str) -> str:
    """The same, where nothing that is shown has it."""
    reason = _reason(facts)
    shown = [waiting, *(text for finding in findings for text in finding.evidence)]
    return "" if any(reason in text for text in shown) else reason


def _blind(facts: Facts) -> str:
    """Why what was asked about could not be looked at."""
    parts = {"job": facts.job, "queue": facts.queue, "env": facts.environments}
    part = parts.get(facts.subject.kind)
    if isinstance(part, Missing):
        return part.why + (f" ({part.action})" if part.action else "")
    return ""
