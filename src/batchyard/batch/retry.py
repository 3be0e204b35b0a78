"""Whether a failed attempt is followed by another (facts, 1.3 and 1.4). Pure."""

from __future__ import annotations

from batchyard.batch.jobs import Action, EvaluateOnExit, Outcome, RetryStrategy


def decide(strategy: RetryStrategy, attempt: int, outcome: Outcome) -> Action:
    """What follows attempt number ``attempt`` (from 1) that ended with ``outcome``, a failure.

    The first rule that matches decides; where none does, AWS Batch retries. No rule buys more than the
    strategy's attempts. Timeouts and terminations never come here: they are not retried at all.
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
