"""Facts in, report out: goes through the table of checks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.doctor.checks import table
from batchyard.doctor.checks.table import Setting
from batchyard.doctor.facts import CannotSee, Facts, Job, Missing
from batchyard.doctor.finding import Finding, Kind, Report, Unseen, in_order
from batchyard.units import show_duration

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
    waited_s = waited(facts)
    setting = Setting(dwell_s, is_early=waited_s is not None and waited_s < dwell_s)
    tally = _Tally([], [], [])
    for check in table.CHECKS:
        _run(check, facts, setting, tally)
    subject = f"{facts.subject.kind} {facts.subject.name}"
    findings = in_order(tally.findings)
    is_waiting = setting.is_early and not findings
    return Report(
        subject,
        findings,
        tuple(tally.right),
        tuple(tally.unseen),
        waiting=_waiting(facts, waited_s or 0, dwell_s) if is_waiting else "",
        blind=_blind(facts),
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


def _waiting(facts: Facts, waited_s: float, dwell_s: float) -> str:
    status = facts.job.status if isinstance(facts.job, Job) else ""
    return f"{status} for {show_duration(waited_s)}; a fleet may take {show_duration(dwell_s)} to start"


def _blind(facts: Facts) -> str:
    """Why what was asked about could not be looked at."""
    parts = {"job": facts.job, "queue": facts.queue, "env": facts.environments}
    part = parts.get(facts.subject.kind)
    if isinstance(part, Missing):
        return part.why + (f" ({part.action})" if part.action else "")
    return ""
