"""What the attempt's exit code is: the user's rules, which know more than AWS Batch can be told. Pure.

``fail_on`` is looked at first, then ``retry_on``. Only 75 makes AWS Batch try again, so it is given for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.worker.faults import AGAIN

TERMINATED = 143
#: what 75 becomes where it is a command's own code and must not be taken for a request
_PLAIN_FAILURE = 1


@dataclass(frozen=True, slots=True)
class Rules:
    retry_on: tuple[str, ...]
    fail_on: tuple[str, ...]
    #: how many ordinary failures are followed by another attempt
    retries: int
    #: AWS's attempts in all, reclaims included
    attempts: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The first command of an attempt that failed."""

    command: int
    exit_code: int
    #: whether the kernel killed it, or something that it started, for memory
    was_out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    exit_code: int
    #: for the log, where the exit code alone would not tell what happened
    remark: str = ""

    @property
    def asks_again(self) -> bool:
        return self.exit_code == AGAIN


def after_failure(rules: Rules, failure: Failure, attempt: int, failures_before: int) -> Verdict:
    """``failures_before``: ordinary failures of this child in earlier attempts."""
    code = failure.exit_code
    what = f"command {failure.command} ended with exit code {code}"
    if failure.was_out_of_memory:
        what += ", killed for memory"
    is_last = attempt >= rules.attempts
    if is_retried(rules, failure) and not is_last and failures_before < rules.retries:
        used = failures_before + 1
        return Verdict(
            AGAIN, f"{what}; the rules ask for another attempt (retry {used} of {rules.retries})"
        )
    if code == AGAIN and not is_last:
        return Verdict(
            _PLAIN_FAILURE,
            f"{what}, and no rule retries it; the worker exits {_PLAIN_FAILURE} instead",
        )
    return Verdict(code)


def after_reclaim(rules: Rules, why: str) -> Verdict:
    """When the machine is taken away: survived as often as AWS has attempts, unless the rules say never."""
    if "spot" in rules.fail_on or "any" in rules.fail_on:
        return Verdict(TERMINATED, f"{why}; fail_on says not to try again after that")
    return Verdict(AGAIN, f"{why}; asks for another attempt")


def is_retried(rules: Rules, failure: Failure) -> bool:
    return not _matches(rules.fail_on, failure) and _matches(rules.retry_on, failure)


def _matches(words: tuple[str, ...], failure: Failure) -> bool:
    return any(_match(word, failure) for word in words)


def _match(word: str, failure: Failure) -> bool:
    if word == "any":
        return True
    if word == "oom":
        return failure.was_out_of_memory
    first, dash, last = word.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        return False  # spot and image: no command ends so
    return int(first) <= failure.exit_code <= int(last if dash else first)
