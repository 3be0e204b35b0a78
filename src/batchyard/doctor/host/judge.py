"""Facts about a host in, report out."""

from __future__ import annotations

from batchyard.doctor.facts import MissingFactError
from batchyard.doctor.finding import Finding, Kind, Report, Unseen, sort_findings
from batchyard.doctor.host.checks.table import CHECKS
from batchyard.doctor.host.facts import HostFacts


def judge(facts: HostFacts) -> Report:
    findings: list[Finding] = []
    passed: list[Kind] = []
    unseen: list[Unseen] = []
    for check in CHECKS:
        try:
            verdict = check.run(facts)
        except MissingFactError as exc:
            unseen.append(Unseen(check.kind, exc.missing.reason, exc.missing.action))
            continue
        if verdict is None:
            continue
        findings += verdict
        if not verdict:
            passed.append(check.kind)
    return Report(
        f"host {facts.name}".rstrip(), sort_findings(findings), tuple(passed), tuple(unseen)
    )
