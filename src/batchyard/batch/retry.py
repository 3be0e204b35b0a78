"""Decide whether a failed attempt is retried (facts, 1.3 and 1.4). Pure."""

from __future__ import annotations

from batchyard.batch.jobs import Action, EvaluateOnExit, Outcome, RetryStrategy


def decide(strategy: RetryStrategy, attempt: int, outcome: Outcome) -> Action:
    """Return whether attempt number ``attempt`` (from 1), which failed, is followed by another.

    The first rule that matches decides; without a match AWS Batch retries. No rule allows more
    attempts than the strategy has. Timeouts and terminations are never retried; callers check.
    """
    if attempt >= strategy.attempts:
        return Action.EXIT
    for rule in strategy.evaluate_on_exit:
        if matches(rule, outcome):
            return rule.action
    return Action.RETRY


def matches(rule: EvaluateOnExit, outcome: Outcome) -> bool:
    # A missing exit code matches no exit-code pattern, not even "*": no process exited.
    code = None if outcome.exit_code is None else str(outcome.exit_code)
    return (
        _matches(rule.on_status_reason, outcome.status_reason)
        and _matches(rule.on_reason, outcome.reason)
        and _matches(rule.on_exit_code, code)
    )


def _matches(pattern: str | None, text: str | None) -> bool:
    if pattern is None:
        return True
    if text is None:
        return False
    if pattern.endswith("*"):
        return text.startswith(pattern[:-1])
    return text == pattern
