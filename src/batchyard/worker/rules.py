"""Decide the exit code of an attempt by the user's rules. Pure.

AWS Batch takes only a part of these rules, so the worker applies them.
``fail_on`` comes before ``retry_on``. Exit code 75 makes AWS Batch retry, so nothing else gets it.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.worker.errors import EXIT_RETRY

EXIT_TERMINATED = 143
#: exit code instead of a command's own 75, which AWS Batch would retry
_EXIT_PLAIN_FAILURE = 1


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
    if code == EXIT_RETRY and not is_last:
        return Verdict(
            _EXIT_PLAIN_FAILURE,
            f"{description}, and no rule retries it; "
            f"the worker exits {_EXIT_PLAIN_FAILURE} instead",
        )
    return Verdict(code)


def decide_after_reclaim(rules: Rules, reason: str) -> Verdict:
    """Return the verdict on an attempt whose machine is taken away.

    The child is retried as long as AWS Batch has attempts, unless ``fail_on`` forbids it.
    """
    if "spot" in rules.fail_on or "any" in rules.fail_on:
        return Verdict(EXIT_TERMINATED, f"{reason}; fail_on allows no other attempt after that")
    return Verdict(EXIT_RETRY, f"{reason}; asks for another attempt")


def is_retried(rules: Rules, failure: Failure) -> bool:
    return not _matches_any(rules.fail_on, failure) and _matches_any(rules.retry_on, failure)


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
