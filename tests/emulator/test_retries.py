"""Retries: attempts, and evaluateOnExit rule by rule (facts, 1.3 and 1.4)."""

from __future__ import annotations

from typing import Any

import pytest
from emulator_endpoint import Endpoint
from gates import no_traceback, refused

EXITED = "Essential container in task exited"
NOT_STARTED = "Task failed to start"


def rule(action: str, **conditions: str) -> dict[str, str]:
    return {"action": action, **conditions}


def tried(
    endpoint: Endpoint, *rules: dict[str, str], code: int = 1, attempts: int = 3, command: str = ""
) -> int:
    """How often a job with this strategy is tried that always ends with this exit code."""
    strategy: dict[str, Any] = {"attempts": attempts, "evaluateOnExit": list(rules)}
    words = (command,) if command else ("sh", "-c", f"exit {code}")
    return len(endpoint.wait(endpoint.run(*words, retryStrategy=strategy))["attempts"])


# -- attempts -------------------------------------------------------------------------------------


def test_attempts_are_all_tries_and_one_is_the_default(endpoint: Endpoint) -> None:
    """facts, 1.3: the total number, not extra ones."""
    assert len(endpoint.wait(endpoint.run("false"))["attempts"]) == 1
    job = endpoint.wait(endpoint.run("false", retryStrategy={"attempts": 3}))
    assert (job["status"], len(job["attempts"])) == ("FAILED", 3)
    assert [attempt["container"]["exitCode"] for attempt in job["attempts"]] == [1, 1, 1]
    assert len({attempt["container"]["taskArn"] for attempt in job["attempts"]}) == 3


@pytest.mark.parametrize("attempts", [0, 11, -1])
def test_there_are_1_to_10_attempts(endpoint: Endpoint, attempts: int) -> None:
    """facts, 1.3: in definitions and at SubmitJob."""
    strategy = {"attempts": attempts}
    assert "between 1 and 10" in refused(lambda: endpoint.run("true", retryStrategy=strategy))
    assert "between 1 and 10" in refused(
        lambda: endpoint.definition("often", "true", retryStrategy=strategy)
    )


def test_ten_attempts_are_allowed_and_made(endpoint: Endpoint) -> None:
    """facts, 1.3."""
    job = endpoint.wait(endpoint.run("false", retryStrategy={"attempts": 10}))
    assert len(job["attempts"]) == 10


def test_an_attempt_that_did_not_start_counts(endpoint: Endpoint) -> None:
    """facts, 1.3: a choice, as AWS's texts differ: every placement is an attempt."""
    job = endpoint.wait(endpoint.run("no-such-program", retryStrategy={"attempts": 2}))
    assert [attempt["statusReason"] for attempt in job["attempts"]] == [NOT_STARTED, NOT_STARTED]


def test_the_strategy_at_submit_replaces_the_definitions(endpoint: Endpoint) -> None:
    """facts, 1.3: no merge: of the definition's rules none is left."""
    strategy = {"attempts": 5, "evaluateOnExit": [rule("EXIT", onReason="*")]}
    definition = endpoint.definition("with-strategy", "false", retryStrategy=strategy)
    job = endpoint.wait(endpoint.submit(definition))
    assert len(job["attempts"]) == 1 and job["retryStrategy"]["attempts"] == 5
    job = endpoint.wait(endpoint.submit(definition, retryStrategy={"attempts": 2}))
    assert len(job["attempts"]) == 2
    assert job["retryStrategy"].get("evaluateOnExit", []) == []


def test_a_success_ends_the_tries(endpoint: Endpoint) -> None:
    """facts, 1.3 and 3: AWS_BATCH_JOB_ATTEMPT counts from 1."""
    job = endpoint.wait(
        endpoint.run(
            "sh", "-c", "exit $((2 - AWS_BATCH_JOB_ATTEMPT))", retryStrategy={"attempts": 4}
        )
    )
    assert job["status"] == "SUCCEEDED"
    assert [attempt["container"]["exitCode"] for attempt in job["attempts"]] == [1, 0]
    assert job["container"]["exitCode"] == 0


# -- evaluateOnExit -------------------------------------------------------------------------------


def test_at_most_five_rules(endpoint: Endpoint) -> None:
    """facts, 1.4.1: a choice: 5, as the API says, where the guide's newest text says 6."""
    rules = [rule("RETRY", onExitCode=str(code)) for code in range(6)]
    assert tried(endpoint, *rules[:5], attempts=1) == 1
    strategy = {"attempts": 2, "evaluateOnExit": rules}
    assert "at most 5" in refused(lambda: endpoint.run("true", retryStrategy=strategy))


def test_rules_need_attempts(endpoint: Endpoint) -> None:
    """facts, 1.4.2."""
    strategy = {"evaluateOnExit": [rule("EXIT", onReason="*")]}
    assert "RetryAttempts must be provided with retry strategy" in refused(
        lambda: endpoint.run("true", retryStrategy=strategy)
    )


def test_a_rule_has_an_action(endpoint: Endpoint) -> None:
    """facts, 1.4.3: required."""
    strategy = {"attempts": 2, "evaluateOnExit": [{"onReason": "*"}]}
    done = endpoint.aws(
        "batch", "submit-job", "--job-name", "x", "--job-queue", "queue", "--job-definition", "x",
        "--retry-strategy", str(strategy).replace("'", '"'), check=False,
    )  # fmt: skip
    assert done.returncode != 0 and "action" in done.stderr


def test_the_conditions_of_a_rule_must_all_hold(endpoint: Endpoint) -> None:
    """facts, 1.4.3: ANDed."""
    both = rule("EXIT", onExitCode="4", onStatusReason="Essential*")
    assert tried(endpoint, both, code=4) == 1
    assert tried(endpoint, both, code=5) == 3
    assert tried(endpoint, rule("EXIT", onExitCode="4", onStatusReason="Host EC2*"), code=4) == 3


def test_actions_in_any_case_are_returned_in_lower_case(endpoint: Endpoint) -> None:
    """facts, 1.4.4."""
    strategy = {
        "attempts": 2,
        "evaluateOnExit": [rule("Exit", onExitCode="9"), rule("rEtRy", onReason="*")],
    }
    definition = endpoint.definition("mixed-case", "true", retryStrategy=strategy)
    job = endpoint.job(endpoint.submit(definition))
    (registered,) = endpoint.batch.describe_job_definitions(jobDefinitions=[definition])[
        "jobDefinitions"
    ]
    for document in (job, registered):
        assert [entry["action"] for entry in document["retryStrategy"]["evaluateOnExit"]] == [
            "exit",
            "retry",
        ]
    assert tried(endpoint, rule("eXIT", onReason="*")) == 1


def test_an_unknown_action_is_refused(endpoint: Endpoint) -> None:
    """facts, 1.4.4: RETRY or EXIT."""
    assert "action" in refused(lambda: tried(endpoint, rule("STOP", onReason="*")))


@pytest.mark.parametrize(
    ("member", "pattern"),
    [
        ("onReason", "*x"),
        ("onReason", "a*b"),
        ("onReason", "a**"),
        ("onReason", "a?"),
        ("onReason", "Host EC2 (instance*"),
        ("onStatusReason", "it's"),
        ("onStatusReason", "a-b"),
        ("onStatusReason", "a/b"),
        ("onStatusReason", "a,b"),
        ("onStatusReason", "x" * 513),
        ("onExitCode", "1x"),
        ("onExitCode", "-1"),
        ("onExitCode", "1*1"),
        ("onExitCode", "1" * 513),
    ],
)
def test_patterns_are_plain_with_one_star_at_the_end(
    endpoint: Endpoint, member: str, pattern: str
) -> None:
    """facts, 1.4.5: letters, digits, . : and white space, at most 512; exit codes digits."""
    assert member in refused(lambda: tried(endpoint, rule("RETRY", **{member: pattern})))


def test_patterns_of_the_allowed_characters_are_taken(endpoint: Endpoint) -> None:
    """facts, 1.4.5."""
    rules = [
        rule("RETRY", onReason="CannotPullContainerError:*"),
        rule("RETRY", onStatusReason="Host EC2*", onReason="a.b:c\td*"),
        rule("RETRY", onExitCode="1*", onReason="*"),
        rule("RETRY", onStatusReason="x" * 511 + "*"),
        rule("EXIT", onReason=""),
    ]
    assert tried(endpoint, *rules, attempts=1) == 1


def test_a_pattern_is_the_whole_text_or_with_a_star_its_beginning(endpoint: Endpoint) -> None:
    """facts, 1.4.5: and the case matters, a choice where AWS is silent."""
    assert tried(endpoint, rule("EXIT", onStatusReason=EXITED)) == 1
    assert tried(endpoint, rule("EXIT", onStatusReason="Essential container*")) == 1
    assert tried(endpoint, rule("EXIT", onStatusReason="Essential container")) == 3
    assert tried(endpoint, rule("EXIT", onStatusReason="essential*")) == 3
    assert tried(endpoint, rule("EXIT", onExitCode="12"), code=1) == 3
    assert tried(endpoint, rule("EXIT", onExitCode="1*"), code=12) == 1
    assert tried(endpoint, rule("EXIT", onExitCode="1"), code=12) == 3


def test_the_first_rule_that_matches_decides(endpoint: Endpoint) -> None:
    """facts, 1.4.6: in the order of the list."""
    assert tried(endpoint, rule("EXIT", onExitCode="7"), rule("RETRY", onReason="*"), code=7) == 1
    assert tried(endpoint, rule("RETRY", onReason="*"), rule("EXIT", onExitCode="7"), code=7) == 3


def test_where_nothing_matches_it_is_retried(endpoint: Endpoint) -> None:
    """facts, 1.4.7: RETRY, not EXIT; for "only on X" a catch-all that exits comes last."""
    assert tried(endpoint, rule("EXIT", onExitCode="9"), code=1) == 3
    assert tried(endpoint, rule("RETRY", onExitCode="9"), code=1) == 3
    assert tried(endpoint, rule("RETRY", onExitCode="9"), rule("EXIT", onReason="*"), code=1) == 1


def test_retry_never_exceeds_the_attempts_and_exit_is_at_once(endpoint: Endpoint) -> None:
    """facts, 1.4.8."""
    assert tried(endpoint, rule("RETRY", onReason="*"), attempts=2) == 2
    assert tried(endpoint, rule("EXIT", onReason="*"), attempts=10) == 1


def test_what_is_matched(endpoint: Endpoint) -> None:
    """facts, 1.4.9: statusReason, container.reason, exit code; a missing reason is empty, so
    that * matches it."""
    assert tried(endpoint, rule("EXIT", onReason="*"), code=3) == 1
    assert tried(endpoint, rule("EXIT", onReason="")) == 1
    assert tried(endpoint, rule("EXIT", onStatusReason=NOT_STARTED), command="no-such-program") == 1
    assert (
        tried(
            endpoint,
            rule("EXIT", onReason="CannotStartContainerError:*"),
            command="no-such-program",
        )
        == 1
    )


def test_a_missing_exit_code_matches_no_pattern(endpoint: Endpoint) -> None:
    """facts, 1.4.9: a choice: not even `*`, as nothing exited; the catch-all is onReason."""
    assert tried(endpoint, rule("EXIT", onExitCode="*"), command="no-such-program") == 3
    assert tried(endpoint, rule("EXIT", onExitCode="0*"), command="no-such-program") == 3
    assert tried(endpoint, rule("EXIT", onExitCode="*"), code=1) == 1


def test_a_success_is_never_evaluated(endpoint: Endpoint) -> None:
    """facts, 1.4.11: exit 0 is the end, whatever the rules say."""
    assert tried(endpoint, rule("RETRY", onExitCode="0"), rule("RETRY", onReason="*"), code=0) == 1


def test_a_terminated_job_is_not_retried(endpoint: Endpoint) -> None:
    """facts, 1.3: nor is a cancelled one or one that timed out (see the life of a job)."""
    strategy = {"attempts": 5, "evaluateOnExit": [rule("RETRY", onReason="*")]}
    job_id = endpoint.run("sleep", "60", retryStrategy=strategy)
    endpoint.wait(job_id, "RUNNING")
    endpoint.batch.terminate_job(jobId=job_id, reason="no more")
    assert len(endpoint.wait(job_id)["attempts"]) == 1


def test_a_strategy_through_the_aws_command(endpoint: Endpoint) -> None:
    endpoint.definition("by-cli", "sh", "-c", "exit 6")
    job_id = endpoint.aws(
        *"batch submit-job --job-name x --job-queue queue --job-definition by-cli".split(),
        "--retry-strategy",
        "attempts=4,evaluateOnExit=[{onExitCode=6,action=EXIT}]",
    )["jobId"]
    assert len(endpoint.wait(job_id)["attempts"]) == 1


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
