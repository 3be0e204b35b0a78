"""A report as text for a terminal, and as JSON."""

from __future__ import annotations

from typing import Any

from batchyard.doctor.finding import Finding, Report
from batchyard.units import pluralize


def to_lines(report: Report, with_all: bool = False) -> list[str]:
    """Return the report as lines of text; ``with_all`` lists all checks, not only findings."""
    lines = _head_lines(report)
    for finding in report.findings:
        lines += ["", *_finding_lines(finding)]
    if with_all:
        lines += _check_lines(report)
    elif report.unseen and (report.findings or not report.blind_reason):
        lines += ["", _unseen_summary(report)]
    return [_make_printable(line) for line in lines]


def _head_lines(report: Report) -> list[str]:
    lines = [f"{report.subject}: {_summary(report)}", *(f"  {line}" for line in report.fits)]
    if report.status_reason:
        lines.append(f"  AWS says: {' '.join(report.status_reason.split())}")
    if report.findings and report.blind_reason:
        lines.append(f"  could not examine: {report.blind_reason}")
    return lines


def _summary(report: Report) -> str:
    if report.findings:
        return pluralize(len(report.findings), "finding")
    if report.blind_reason:
        return f"could not examine: {report.blind_reason}"
    if report.waiting:
        return f"waiting: {report.waiting}"
    if report.exit_code:
        return "could not examine: no check could run"
    parts = [report.status, "no findings"]
    if report.passed:
        parts.append(f"{pluralize(len(report.passed), 'check')} passed")
    return ", ".join(filter(None, parts))


def _finding_lines(finding: Finding) -> list[str]:
    return [
        f"{finding.id} {finding.kind.severity}: {finding.cause}",
        *([f"  at {finding.place}"] if finding.place else []),
        *(f"  - {line}" for text in finding.evidence for line in text.splitlines()),
        *(f"  > {line}" for text in finding.remedy for line in text.splitlines()),
        f"  see {finding.page}, or: batchyard doctor explain {finding.id}",
    ]


def _check_lines(report: Report) -> list[str]:
    lines = []
    if report.passed:
        lines += ["", f"passed ({len(report.passed)}):"]
        lines += [f"  {kind.id} {kind.title}" for kind in report.passed]
    if report.unseen:
        lines += ["", f"could not be checked ({len(report.unseen)}):"]
    for unseen in report.unseen:
        permission = f"; allow {unseen.action}" if unseen.action else ""
        lines.append(f"  {unseen.kind.id} {unseen.kind.title}: {unseen.reason}{permission}")
    return lines


def _unseen_summary(report: Report) -> str:
    actions = ", ".join(dict.fromkeys(unseen.action for unseen in report.unseen if unseen.action))
    permissions = f" (allow {actions})" if actions else ""
    checks = pluralize(len(report.unseen), "check")
    reasons = list(dict.fromkeys(unseen.reason for unseen in report.unseen))
    reason = f": {reasons[0]}" if len(reasons) == 1 and not actions else ""
    return f"{checks} could not run{permissions}{reason}; --all lists them"


def _make_printable(text: str) -> str:
    """Replace control characters: evidence quotes files that may hold terminal escapes."""
    return "".join(c if c.isprintable() else "?" for c in text)


def to_json(report: Report) -> dict[str, Any]:
    """Return the report as docs/doctor.md describes it."""
    return {
        "subject": report.subject,
        "state": _state(report),
        "status": report.status,
        "findings": [
            {
                "id": finding.id,
                "severity": str(finding.kind.severity),
                "cause": finding.cause,
                "evidence": list(finding.evidence),
                "remedy": list(finding.remedy),
                "place": finding.place,
                "page": finding.page,
            }
            for finding in report.findings
        ],
        "right": [{"id": kind.id, "title": kind.title} for kind in report.passed],
        "unseen": [
            {
                "id": unseen.kind.id,
                "title": unseen.kind.title,
                "why": unseen.reason,
                "action": unseen.action,
            }
            for unseen in report.unseen
        ],
        "waiting": report.waiting,
        "says": report.status_reason,
        "blind": report.blind_reason,
        "fits": list(report.fits),
    }


def _state(report: Report) -> str:
    if report.findings:
        return "findings"
    if report.exit_code:
        return "blind"
    return "waiting" if report.waiting else "healthy"
