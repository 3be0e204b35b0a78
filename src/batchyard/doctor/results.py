"""The collected results of checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from batchyard.doctor.facts import MissingFactError
from batchyard.doctor.finding import Finding, Kind, Unseen, Verdict


@dataclass(slots=True)
class Results:
    findings: list[Finding] = field(default_factory=list)
    passed: list[Kind] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)

    def add(self, kinds: Sequence[Kind], check: Callable[[], Verdict]) -> None:
        """Run a check that can return findings of these kinds."""
        try:
            verdict = check()
        except MissingFactError as exc:
            missing = exc.missing
            self.unseen += [Unseen(kind, missing.reason, missing.action) for kind in kinds]
            return
        if verdict is None:
            return
        findings = [verdict] if isinstance(verdict, Finding) else verdict
        self.findings += findings
        failed = {finding.kind for finding in findings}
        self.passed += [kind for kind in kinds if kind not in failed]
