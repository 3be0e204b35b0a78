"""Whether a failed attempt is followed by another: the rules of evaluateOnExit, one test each."""

from __future__ import annotations

import pytest

from batchyard.batch.jobs import (
    OUT_OF_MEMORY,
    Action,
    EvaluateOnExit,
    Outcome,
    RetryStrategy,
    StatusReason,
)
from batchyard.batch.retry import decide, matches

RETRY, EXIT = Action.RETRY, Action.EXIT
SPOT = Outcome(None, "Host EC2 (instance i-0123456789abcdef0) terminated.")
NO_IMAGE = Outcome(None, StatusReason.NOT_STARTED, "CannotPullContainerError: no such tag")


def rules(*given: EvaluateOnExit, attempts: int = 3) -> RetryStrategy:
    return RetryStrategy(attempts, given)


def test_with_no_rules_a_failure_is_retried_while_attempts_are_left() -> None:
    strategy = RetryStrategy(3)
    assert [decide(strategy, attempt, Outcome(1)) for attempt in (1, 2, 3)] == [RETRY, RETRY, EXIT]


def test_one_attempt_is_the_default_and_means_no_retry() -> None:
    assert RetryStrategy().attempts == 1
    assert decide(RetryStrategy(), 1, Outcome(1)) is EXIT


def test_a_rule_that_says_retry_never_buys_more_than_the_strategys_attempts() -> None:
    strategy = rules(EvaluateOnExit(RETRY, on_exit_code="*"), attempts=2)
    assert decide(strategy, 1, Outcome(1)) is RETRY
    assert decide(strategy, 2, Outcome(1)) is EXIT
    assert decide(strategy, 3, Outcome(1)) is EXIT  # a record from a strategy that allowed more


def test_exit_ends_the_job_at_once_with_attempts_left() -> None:
    assert decide(rules(EvaluateOnExit(EXIT, on_exit_code="2")), 1, Outcome(2)) is EXIT


def test_where_no_rule_matches_it_is_retried() -> None:
    assert decide(rules(EvaluateOnExit(EXIT, on_exit_code="2")), 1, Outcome(3)) is RETRY


def test_retry_only_on_x_needs_a_final_catch_all() -> None:
    strategy = rules(
        EvaluateOnExit(RETRY, on_status_reason="Host EC2*"), EvaluateOnExit(EXIT, on_reason="*")
    )
    assert decide(strategy, 1, SPOT) is RETRY
    assert decide(strategy, 1, Outcome(1)) is EXIT


def test_the_first_rule_that_matches_decides() -> None:
    exit_first = rules(
        EvaluateOnExit(EXIT, on_exit_code="7"), EvaluateOnExit(RETRY, on_exit_code="*")
    )
    retry_first = rules(
        EvaluateOnExit(RETRY, on_exit_code="*"), EvaluateOnExit(EXIT, on_exit_code="7")
    )
    assert decide(exit_first, 1, Outcome(7)) is EXIT
    assert decide(retry_first, 1, Outcome(7)) is RETRY


def test_all_conditions_of_a_rule_must_match() -> None:
    rule = EvaluateOnExit(
        EXIT,
        on_status_reason="Essential container*",
        on_reason="OutOfMemoryError:*",
        on_exit_code="137",
    )
    assert matches(rule, Outcome(137, reason=OUT_OF_MEMORY))
    assert not matches(rule, Outcome(1, reason=OUT_OF_MEMORY))
    assert not matches(rule, Outcome(137))
    assert not matches(rule, Outcome(137, StatusReason.NOT_STARTED, OUT_OF_MEMORY))


def test_a_rule_with_no_condition_matches_everything() -> None:
    for outcome in (Outcome(1), SPOT, NO_IMAGE):
        assert matches(EvaluateOnExit(EXIT), outcome)


@pytest.mark.parametrize(
    ("pattern", "code", "is_match"),
    [
        ("1", 1, True),
        ("1", 10, False),
        ("10", 1, False),
        ("1*", 1, True),
        ("1*", 13, True),
        ("1*", 127, True),
        ("1*", 2, False),
        ("*", 255, True),
        ("", 1, False),
        ("01", 1, False),
    ],
)
def test_exit_codes_match_as_decimal_text_whole_or_by_prefix(
    pattern: str, code: int, is_match: bool
) -> None:
    assert matches(EvaluateOnExit(RETRY, on_exit_code=pattern), Outcome(code)) is is_match


@pytest.mark.parametrize(
    ("pattern", "is_match"),
    [
        ("Task failed to start", True),
        ("Task failed", False),
        ("Task failed*", True),
        ("Task failed to start*", True),
        ("Task failed to start at all*", False),
        ("task failed*", False),
        ("*", True),
        ("", False),
    ],
)
def test_status_reasons_match_whole_or_by_prefix_and_by_case(pattern: str, is_match: bool) -> None:
    assert matches(EvaluateOnExit(RETRY, on_status_reason=pattern), NO_IMAGE) is is_match


@pytest.mark.parametrize(
    ("pattern", "is_match"),
    [
        ("CannotPullContainerError:*", True),
        ("CannotPullContainerError: no such tag", True),
        ("CannotPullContainerError:", False),
        ("DockerTimeoutError:*", False),
    ],
)
def test_reasons_match_whole_or_by_prefix(pattern: str, is_match: bool) -> None:
    assert matches(EvaluateOnExit(RETRY, on_reason=pattern), NO_IMAGE) is is_match


def test_each_pattern_looks_at_its_own_text_only() -> None:
    assert not matches(EvaluateOnExit(RETRY, on_reason="Task failed*"), NO_IMAGE)
    assert not matches(EvaluateOnExit(RETRY, on_status_reason="CannotPull*"), NO_IMAGE)


def test_a_missing_reason_matches_the_star_and_nothing_else() -> None:
    assert matches(EvaluateOnExit(EXIT, on_reason="*"), Outcome(1))
    assert matches(EvaluateOnExit(EXIT, on_reason=""), Outcome(1))
    assert not matches(EvaluateOnExit(EXIT, on_reason="Out*"), Outcome(1))


@pytest.mark.parametrize("pattern", ["0", "1", "1*", "*", ""])
def test_a_missing_exit_code_matches_no_exit_code_pattern(pattern: str) -> None:
    assert not matches(EvaluateOnExit(EXIT, on_exit_code=pattern), SPOT)


def test_a_missing_exit_code_leaves_the_other_conditions_alone() -> None:
    assert matches(EvaluateOnExit(RETRY, on_status_reason="Host EC2*"), SPOT)
    assert not matches(EvaluateOnExit(RETRY, on_status_reason="Host EC2*", on_exit_code="*"), SPOT)


def test_only_a_final_star_is_special() -> None:
    rule = EvaluateOnExit(RETRY, on_reason="a*b")
    assert matches(rule, Outcome(1, reason="a*b"))
    assert not matches(rule, Outcome(1, reason="axb"))
    assert not matches(EvaluateOnExit(RETRY, on_reason="a.b*"), Outcome(1, reason="axb"))
