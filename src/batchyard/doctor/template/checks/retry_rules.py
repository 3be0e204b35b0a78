"""BY212: AWS Batch refuses the retry rules of a job definition."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchyard.batch.limits import MAX_RETRY_RULES
from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import JOB_DEFINITION, check_template
from batchyard.doctor.template.resources import NOTHING, Template
from batchyard.yaml_positions import Node

KIND = Kind("BY212", Severity.ERROR, 75, "evaluateOnExit uses patterns that AWS accepts")

_MAX_SHOWN = 60
_REASON = re.compile(r"[0-9A-Za-z.:\s]*\*?")
_PATTERNS = {
    "OnReason": _REASON,
    "OnStatusReason": _REASON,
    "OnExitCode": re.compile(r"[0-9]*\*?"),
}


@check_template(
    KIND,
    properties=(
        (JOB_DEFINITION, "RetryStrategy.EvaluateOnExit"),
        *((JOB_DEFINITION, f"RetryStrategy.EvaluateOnExit.*.{key}") for key in _PATTERNS),
    ),
)
def check(template: Template) -> Findings:
    for resource in template.of_type(JOB_DEFINITION):
        strategy = resource.get("RetryStrategy")
        problems = tuple(_find_problems(template, strategy))
        if problems:
            yield Finding(
                KIND,
                "AWS Batch does not accept the retry rules",
                problems,
                ("write a prefix and a *: OnStatusReason: 'Host EC2*'",),
                template.place(resource, strategy),
            )


def _find_problems(template: Template, strategy: Node) -> Iterator[str]:
    rules = (strategy.get("EvaluateOnExit") or NOTHING).items
    if len(rules) > MAX_RETRY_RULES:
        yield f"{len(rules)} rules; at most {MAX_RETRY_RULES}"
    if rules and strategy.get("Attempts") is None:
        yield "Attempts is missing"
    for rule in rules:
        for key, pattern in _PATTERNS.items():
            text = template.text_of(rule, key)
            if text is not None and not pattern.fullmatch(text):
                allowed = "letters, digits, '.', ':', blanks, and one * at the end"
                yield f"{key} {text[:_MAX_SHOWN]!r}: {allowed}"
