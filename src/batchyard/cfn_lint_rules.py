"""The doctor's checks of templates as rules of cfn-lint, for editors and pipelines that run it.

    cfn-lint --append-rules batchyard.cfn_lint_rules -- stack.yaml

cfn-lint is not installed with batchyard: this module is imported by cfn-lint, from an environment
that has both. A finding BY101 is the rule E9101; warnings begin with W, notes with I.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from cfnlint.rules import CloudFormationLintRule, RuleMatch

from batchyard.doctor.finding import Finding, Kind, Severity
from batchyard.doctor.sarif import split_place
from batchyard.doctor.template.examine import KINDS, examine
from batchyard.errors import BatchyardError

_LETTERS = {Severity.ERROR: "E", Severity.WARNING: "W", Severity.NOTE: "I"}


def rule_id(kind: Kind) -> str:
    """Return the id of the rule: cfn-lint keeps the numbers from 9000 for rules of others."""
    return f"{_LETTERS[kind.severity]}9{kind.id.removeprefix('BY')}"


@lru_cache(maxsize=16)
def _find(data: bytes, name: str) -> tuple[Finding, ...]:
    """Return the findings of a template; every rule asks for the same ones."""
    try:
        return examine(data, name).findings
    except BatchyardError:
        return ()  # not a template; cfn-lint has its own rules for that


def _match(kind: Kind, file: str, resource_names: set[str]) -> list[RuleMatch]:
    try:
        data = Path(file).read_bytes()
    except (OSError, TypeError, ValueError):
        return []
    matches = []
    for finding in _find(data, file):
        if finding.kind != kind:
            continue
        place = split_place(finding.place)
        path = ["Resources", place.resource] if place.resource in resource_names else ["Resources"]
        text = f"{finding.cause} ({'; '.join(finding.evidence)})"
        # cfn-lint counts lines and columns from 0, and marks the resource without a line.
        line = place.line - 1
        location = {"location": (line, 0, line, 1)} if place.line else {}
        matches.append(RuleMatch(path, text, **location))
    return matches


def _make_rule(kind: Kind) -> type[Any]:
    class Rule(CloudFormationLintRule):  # type: ignore[misc]
        id = rule_id(kind)
        shortdesc = kind.title
        description = f"{kind.id}: `batchyard doctor explain {kind.id}`"
        source_url = ""
        tags = ["batchyard", kind.id]  # noqa: RUF012

        def match(self, cfn: Any) -> list[RuleMatch]:
            return _match(kind, cfn.filename, set(cfn.get_resources()))

    Rule.__name__ = Rule.__qualname__ = f"Doctor{kind.id}"
    return Rule


# cfn-lint takes every class of the module that is a rule.
globals().update({f"Doctor{kind.id}": _make_rule(kind) for kind in dict.fromkeys(KINDS)})
