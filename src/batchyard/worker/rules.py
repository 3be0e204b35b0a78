"""Decide the exit code of an attempt by the user's rules. Pure.

AWS Batch takes only a part of these rules, so the worker applies them.
``fail_on`` comes before ``retry_on``. Exit code 75 makes AWS Batch retry, and so does the 137 of a
killed worker if the rules retry it. A failure that is final gets neither of them.
"""

from __future__ import annotations

from collections.abc import Collection

from batchyard.quick_dataclasses import dataclass
from batchyard.worker.errors import EXIT_BUG, EXIT_DENIED, EXIT_MACHINE, EXIT_MISSING, EXIT_RETRY

EXIT_TERMINATED = 143
#: exit code of a command that was ended because of its time limit, as timeout(1) has it
EXIT_TIMED_OUT = 124
#: exit code of a worker, or a command, that was killed with SIGKILL
EXIT_KILLED = 137
#: exit code instead of a command's own 75 or 137, which AWS Batch would retry
_EXIT_PLAIN_FAILURE = 1
#: Errors of the worker itself that another attempt, on another host or later, may not meet. Invalid
#: orders and impossible names of files are the same in every attempt.
_RETRIABLE_ERRORS = (EXIT_BUG, EXIT_MACHINE, EXIT_MISSING, EXIT_DENIED)


@dataclass(frozen=True, slots=True)
class Rules:
    retry_on: tuple[str, ...]
    fail_on: tuple[str, ...]
    #: number of ordinary failures that are retried
    retries: int
    #: attempts that AWS Batch makes in all, reclaims included
    attempts: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The first command of an attempt that failed."""

    command: int
    exit_code: int
    #: whether the kernel killed the command, or a process of it, because of its memory use
    was_out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The exit code of an attempt."""

    exit_code: int
    #: line for the log where the exit code alone does not explain what happened
    remark: str = ""

    @property
    def is_retry(self) -> bool:
        return self.exit_code == EXIT_RETRY


def decide_after_failure(
    rules: Rules, failure: Failure, attempt: int, earlier_failures: int
) -> Verdict:
    """Return the verdict on a failed command.

    ``earlier_failures``: ordinary failures of this child in earlier attempts.
    """
    code = failure.exit_code
    description = f"command {failure.command} ended with exit code {code}"
    if failure.was_out_of_memory:
        description += ", killed for memory"
    is_last = attempt >= rules.attempts
    if is_retried(rules, failure) and not is_last and earlier_failures < rules.retries:
        retry = f"retry {earlier_failures + 1} of {rules.retries}"
        return Verdict(EXIT_RETRY, f"{description}; the rules ask for another attempt ({retry})")
    if not is_last and _is_retried_by_batch(rules, code):
        reason = "the retries are used up" if is_retried(rules, failure) else "no rule retries it"
        return Verdict(
            _EXIT_PLAIN_FAILURE,
            f"{description}, and {reason}; the worker exits {_EXIT_PLAIN_FAILURE} instead",
        )
    return Verdict(code)


def is_final(rules: Rules, failure: Failure, attempts: int, *, has_timeout: bool) -> bool:
    """Return whether a command of a dynamic step that failed so often is not tried again.

    ``has_timeout``: the step has a time limit for its commands. After it there is no retry.
    """
    if has_timeout and failure.exit_code == EXIT_TIMED_OUT:
        return True
    return attempts > rules.retries or not is_retried(rules, failure)


def decide_after_final_failure(failure: Failure) -> Verdict:
    """Return the verdict on an attempt of a dynamic step with a command that failed for good."""
    code = failure.exit_code
    description = f"command {failure.command} ended with exit code {code}"
    if code in (EXIT_RETRY, EXIT_KILLED):
        remark = f"{description} and is not retried; the worker exits {_EXIT_PLAIN_FAILURE} instead"
        return Verdict(_EXIT_PLAIN_FAILURE, remark)
    return Verdict(code, f"{description} and is not retried")


def decide_after_reclaim(rules: Rules, reason: str) -> Verdict:
    """Return the verdict on an attempt whose machine is taken away.

    The child is retried as long as AWS Batch has attempts, unless ``fail_on`` forbids it.
    """
    if "spot" in rules.fail_on or "any" in rules.fail_on:
        return Verdict(EXIT_TERMINATED, f"{reason}; fail_on allows no other attempt after that")
    return Verdict(EXIT_RETRY, f"{reason}; asks for another attempt")


def find_retried_errors(rules: Rules) -> tuple[int, ...]:
    """Return the exit codes of the worker's own errors that are retried.

    The engine passes them in a variable, since the worker may fail before it has read its orders.
    """
    if rules.retries == 0:
        return ()
    return tuple(code for code in _RETRIABLE_ERRORS if is_retried(rules, Failure(0, code)))


def decide_after_error(exit_code: int, retried_errors: Collection[int], is_last: bool) -> Verdict:
    """Return the verdict on an error of the worker itself.

    ``is_last``: whether AWS Batch makes no other attempt.
    """
    if exit_code in retried_errors and not is_last:
        remark = f"the rules retry exit code {exit_code}; asks for another attempt"
        return Verdict(EXIT_RETRY, remark)
    return Verdict(exit_code)


def is_retried(rules: Rules, failure: Failure) -> bool:
    return not _matches_any(rules.fail_on, failure) and _matches_any(rules.retry_on, failure)


def is_killed_worker_retried(rules: Rules) -> bool:
    """Return whether AWS Batch starts another attempt after the worker itself was killed.

    The kernel kills a whole container for its memory use, and then no worker is left to decide.
    """
    kill = Failure(0, EXIT_KILLED, was_out_of_memory=True)
    return rules.retries > 0 and is_retried(rules, kill)


def _is_retried_by_batch(rules: Rules, exit_code: int) -> bool:
    if exit_code == EXIT_KILLED:
        return is_killed_worker_retried(rules)
    return exit_code == EXIT_RETRY


def _matches_any(words: tuple[str, ...], failure: Failure) -> bool:
    return any(_matches(word, failure) for word in words)


def _matches(word: str, failure: Failure) -> bool:
    if word == "any":
        return True
    if word == "oom":
        return failure.was_out_of_memory
    first, dash, last = word.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        return False  # `spot` and `image` are not about commands
    return int(first) <= failure.exit_code <= int(last if dash else first)
