"""A report as people read it, and as JSON. Pure."""

from __future__ import annotations

from typing import Any

from batchyard.doctor.finding import Finding, Report
from batchyard.units import counted


def lines(report: Report, with_all: bool = False) -> list[str]:
    found = [_headline(report), *(f"  {line}" for line in report.fits)]
    found += [f"  AWS says: {' '.join(report.says.split())}"] if report.says else []
    if report.findings and report.blind:
        found.append(f"  could not look: {report.blind}")
    for finding in report.findings:
        found += ["", *_finding(finding)]
    if with_all:
        found += _all(report)
    elif report.unseen and (report.findings or not report.blind):
        found += ["", _could_not(report)]
    return [_clean(line) for line in found]


def _headline(report: Report) -> str:
    if report.findings:
        return f"{report.subject}: {counted(len(report.findings), 'finding')}"
    if report.blind:
        return f"{report.subject}: could not look: {report.blind}"
    if report.waiting:
        return f"{report.subject}: waiting: {report.waiting}"
    if report.exit_code:
        return f"{report.subject}: could not look: no check could be done"
    said = f"{report.status}, nothing found" if report.status else "nothing found"
    return f"{report.subject}: {said}" + (
        f", {counted(len(report.right), 'check')} right" if report.right else ""
    )


def _finding(finding: Finding) -> list[str]:
    found = [f"{finding.id} {finding.kind.severity}: {finding.cause}"]
    found += [f"  at {finding.place}"] if finding.place else []
    found += [f"  - {line}" for text in finding.evidence for line in text.splitlines()]
    found += [f"  > {line}" for text in finding.remedy for line in text.splitlines()]
    return [*found, f"  see {finding.page}, or: batchyard doctor explain {finding.id}"]


def _all(report: Report) -> list[str]:
    found = ["", f"found right ({len(report.right)}):"] if report.right else []
    found += [f"  {kind.id} {kind.title}" for kind in report.right]
    found += ["", f"could not be checked ({len(report.unseen)}):"] if report.unseen else []
    for unseen in report.unseen:
        needs = f"; allow {unseen.action}" if unseen.action else ""
        found.append(f"  {unseen.kind.id} {unseen.kind.title}: {unseen.reason}{needs}")
    return found


def _could_not(report: Report) -> str:
    actions = ", ".join(dict.fromkeys(unseen.action for unseen in report.unseen if unseen.action))
    needs = f" (allow {actions})" if actions else ""
    return f"{counted(len(report.unseen), 'check')} could not be done{needs}; --all lists them"


def _clean(text: str) -> str:
    """What stands in somebody's file may hold anything; a terminal should not obey it."""
    return "".join(c if c.isprintable() else "?" for c in text)


def as_json(report: Report) -> dict[str, Any]:
    return {
        "subject": report.subject,
        "state": _state(report),
        "status": report.status,
        "findings": [
            {
                "id": f.id,
                "severity": str(f.kind.severity),
                "cause": f.cause,
                "evidence": list(f.evidence),
                "remedy": list(f.remedy),
                "place": f.place,
                "page": f.page,
            }
            for f in report.findings
        ],
        "right": [{"id": kind.id, "title": kind.title} for kind in report.right],
        "unseen": [
            {"id": u.kind.id, "title": u.kind.title, "why": u.reason, "action": u.action}
            for u in report.unseen
        ],
        "waiting": report.waiting,
        "says": report.says,
        "blind": report.blind,
        "fits": list(report.fits),
    }


def _state(report: Report) -> str:
    if report.findings:
        return "findings"
    if report.exit_code:
        return "blind"
    return "waiting" if report.waiting else "healthy"
