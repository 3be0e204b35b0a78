"""Facts about a host in, report out."""

from __future__ import annotations

from functools import partial

from batchyard.doctor.finding import Report, sort_findings
from batchyard.doctor.host.checks.table import CHECKS
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.results import Results


def judge(facts: HostFacts) -> Report:
    results = Results()
    for check in CHECKS:
        results.add((check.kind,), partial(check.run, facts))
    return Report(
        f"host {facts.name}".rstrip(),
        sort_findings(results.findings),
        tuple(results.passed),
        tuple(results.unseen),
    )
