"""The exit code of an attempt, by the user's rules."""

from __future__ import annotations

import pytest

from batchyard.worker.rules import (
    Failure,
    Rules,
    Verdict,
    decide_after_error,
    decide_after_failure,
    decide_after_reclaim,
    find_retried_errors,
    is_killed_worker_retried,
    is_retried,
)


def rules(
    retry_on: tuple[str, ...] = ("any",),
    fail_on: tuple[str, ...] = (),
    retries: int = 2,
    attempts: int = 3,
) -> Rules:
    return Rules(retry_on, fail_on, retries, attempts)


@pytest.mark.parametrize(
    ("retry_on", "fail_on", "code", "oom", "expected"),
    [
        (["any"], [], 1, False, True),
        (["any"], ["2"], 2, False, False),
        (["any"], ["2"], 3, False, True),
        (["75"], [], 75, False, True),
        (["75"], [], 74, False, False),
        (["64-78"], [], 64, False, True),
        (["64-78"], [], 78, False, True),
        (["64-78"], [], 79, False, False),
        (["64-78"], ["70"], 70, False, False),
        (["oom"], [], 137, True, True),
        (["oom"], [], 137, False, False),
        (["any"], ["oom"], 137, True, False),
        (["any"], ["oom"], 137, False, True),
        (["137"], [], 137, False, True),
        (["spot", "image"], [], 1, False, False),
        ([], [], 1, False, False),
        (["any"], ["any"], 1, False, False),
    ],
)
def test_fail_on_is_looked_at_first_then_retry_on(
    retry_on: list[str], fail_on: list[str], code: int, oom: bool, expected: bool
) -> None:
    assert is_retried(rules(tuple(retry_on), tuple(fail_on)), Failure(0, code, oom)) is expected


def test_what_is_retried_asks_for_another_attempt_and_tells_the_real_code() -> None:
    verdict = decide_after_failure(rules(), Failure(17, 3), 1, 0)
    assert verdict.exit_code == 75
    assert verdict.is_retry
    assert (
        verdict.remark
        == "command 17 ended with exit code 3; the rules ask for another attempt (retry 1 of 2)"
    )


def test_the_last_attempt_has_the_commands_own_code() -> None:
    assert decide_after_failure(rules(), Failure(0, 3), 3, 0) == Verdict(3)


def test_ordinary_retries_end_although_aws_has_attempts_left_for_reclaims() -> None:
    assert decide_after_failure(rules(retries=1, attempts=5), Failure(0, 3), 2, 0).exit_code == 75
    assert decide_after_failure(rules(retries=1, attempts=5), Failure(0, 3), 2, 1) == Verdict(3)
    assert decide_after_failure(rules(retries=0, attempts=3), Failure(0, 3), 1, 0) == Verdict(3)


def test_a_commands_own_75_is_not_taken_for_a_request() -> None:
    verdict = decide_after_failure(rules(retry_on=("1",)), Failure(0, 75), 1, 0)
    assert verdict.exit_code == 1
    assert "exit code 75" in verdict.remark
    # Where there is no further attempt, nobody can take it for one.
    assert decide_after_failure(rules(retry_on=("1",)), Failure(0, 75), 3, 0) == Verdict(75)
    assert decide_after_failure(rules(retry_on=("75",)), Failure(0, 75), 1, 0).exit_code == 75


@pytest.mark.parametrize(
    ("retry_on", "fail_on", "retries", "is_retried_by_batch"),
    [
        (("any",), (), 1, True),
        (("oom",), (), 1, True),
        (("137",), (), 1, True),
        (("128-140",), (), 1, True),
        (("any",), (), 0, False),
        (("3",), (), 1, False),
        (("any",), ("oom",), 1, False),
        (("any",), ("137",), 1, False),
    ],
)
def test_a_final_kill_of_a_command_is_not_taken_for_a_kill_of_the_worker(
    retry_on: tuple[str, ...], fail_on: tuple[str, ...], retries: int, is_retried_by_batch: bool
) -> None:
    child_rules = rules(retry_on, fail_on, retries, attempts=4)
    assert is_killed_worker_retried(child_rules) is is_retried_by_batch
    verdict = decide_after_failure(child_rules, Failure(0, 137), 2, retries)
    assert verdict.exit_code == (1 if is_retried_by_batch else 137)
    assert ("exit code 137" in verdict.remark) is is_retried_by_batch
    # After the last attempt AWS Batch retries nothing.
    assert decide_after_failure(child_rules, Failure(0, 137), 4, retries) == Verdict(137)


def test_a_kill_for_memory_is_told() -> None:
    assert "killed for memory" in decide_after_failure(rules(), Failure(0, 137, True), 1, 0).remark


@pytest.mark.parametrize(
    ("retry_on", "fail_on", "retries", "code"),
    [
        (("any",), (), 0, 75),
        (("any",), (), 2, 75),
        (("75",), (), 2, 75),
        (("any",), ("2",), 2, 75),
        (("any",), ("spot",), 2, 143),
        (("any",), ("any",), 2, 143),
    ],
)
def test_a_reclaim_is_survived_unless_the_rules_say_never(
    retry_on: tuple[str, ...], fail_on: tuple[str, ...], retries: int, code: int
) -> None:
    verdict = decide_after_reclaim(rules(retry_on, fail_on, retries), "EC2 takes this machine away")
    assert verdict.exit_code == code
    assert verdict.remark.startswith("EC2 takes this machine away; ")


@pytest.mark.parametrize(
    ("rules_of_step", "expected"),
    [
        # 76 and 78, names of files and orders, are the same in every attempt.
        (rules(), (70, 71, 72, 77)),
        (rules(retry_on=("64-78",)), (70, 71, 72, 77)),
        (rules(fail_on=("77",)), (70, 71, 72)),
        (rules(retry_on=("71",)), (71,)),
        (rules(retry_on=("spot", "oom")), ()),
        (rules(fail_on=("any",)), ()),
        (rules(retries=0), ()),
    ],
)
def test_errors_of_the_worker_that_are_retried(
    rules_of_step: Rules, expected: tuple[int, ...]
) -> None:
    assert find_retried_errors(rules_of_step) == expected


def test_an_error_of_the_worker_keeps_its_exit_code_on_the_last_attempt() -> None:
    assert decide_after_error(71, (70, 71), is_last=False).exit_code == 75
    assert decide_after_error(71, (70, 71), is_last=True) == Verdict(71)
    assert decide_after_error(78, (70, 71), is_last=False) == Verdict(78)
