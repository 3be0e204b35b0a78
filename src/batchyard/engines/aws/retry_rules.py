"""Retry strategies of job definitions: attempts, and rules in AWS Batch's terms. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchyard.batch import limits
from batchyard.batch.jobs import EvaluateOnExit
from batchyard.engines.aws.target import Target
from batchyard.plan import PlannedJob
from batchyard.worker.errors import EXIT_RETRY
from batchyard.worker.rules import (
    EXIT_KILLED,
    Failure,
    Rules,
    find_retried_errors,
    is_killed_worker_retried,
    is_retried,
)

#: Reclaims that every step survives on a spot queue, if AWS Batch has the attempts.
_RECLAIMS = 2
#: Word of retry_on and fail_on -> ending of an attempt in AWS Batch's terms.
_ENDINGS = {
    "spot": {"onStatusReason": "Host EC2*"},
    "image": {"onReason": "CannotPullContainerError*"},
    "oom": {"onReason": "OutOfMemoryError*"},
}
#: The ending of a task on Fargate Spot that is reclaimed.
_FARGATE_RECLAIM = {"onStatusReason": "Your Spot Task was interrupted*"}
_RETRY_REQUEST = {"onExitCode": str(EXIT_RETRY), "action": "RETRY"}


def count_attempts(job: PlannedJob, target: Target, *, has_worker: bool) -> int:
    """Return how often a child is tried at most.

    Off demand, reclaims use up attempts. With the worker, which counts failures itself, they get
    attempts of their own. AWS Batch counts both together, so a plain command gets enough of them
    for reclaims, and may use all of them for failures.
    """
    attempts = job.retry.attempts
    is_on_demand = target.is_on_demand(job)
    if job.is_dynamic:
        # The worker retries commands itself, so attempts are for reclaims and killed workers only.
        return limits.MAX_ATTEMPTS if is_on_demand else target.max_reclaims or limits.MAX_ATTEMPTS
    if is_on_demand:
        return attempts
    # The last of `max_reclaims` reclaims ends the child, which then goes on, on demand.
    survived = _RECLAIMS if target.max_reclaims is None else target.max_reclaims - 1
    if has_worker:
        return min(attempts + survived, limits.MAX_ATTEMPTS)
    return max(attempts, 1 + survived)


def make_strategy(job: PlannedJob, target: Target, *, has_worker: bool) -> dict[str, Any]:
    """Return the retryStrategy of a step; ``has_worker``: whether its jobs run with the worker."""
    count = count_attempts(job, target, has_worker=has_worker)
    if count == 1:
        return {"attempts": 1}
    if not has_worker and job.retry.attempts > 1:
        rules = [_make_rule(rule) for rule in job.retry.evaluate_on_exit]
        return {"attempts": count, **({"evaluateOnExit": rules} if rules else {})}
    reclaim = _FARGATE_RECLAIM if target.is_on_fargate(job) else _ENDINGS["spot"]
    if job.is_dynamic:
        return {"attempts": count, "evaluateOnExit": _make_rules_for_blocks(job, reclaim)}
    if has_worker and job.retry.attempts > 1 and "any" in job.retry_on:
        return {"attempts": count, "evaluateOnExit": _make_rules_for_any(job, reclaim)}
    return {"attempts": count, "evaluateOnExit": _make_rules_for_words(job, reclaim, has_worker)}


def make_variables(job: PlannedJob, target: Target) -> dict[str, str]:
    """Return the variables that tell a worker which of its own errors are retried."""
    attempts = count_attempts(job, target, has_worker=True)
    errors = find_retried_errors(_make_rules(job))
    if attempts == 1 or not errors:
        return {}
    return {
        "BATCHYARD_ATTEMPTS": str(attempts),
        "BATCHYARD_RETRIED_ERRORS": ",".join(map(str, errors)),
    }


def _make_rules_for_any(job: PlannedJob, reclaim: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the rules of a job with a worker that retries every failure but those in fail_on.

    AWS Batch retries what no rule matches. So only the endings that are final have a rule, and the
    worker decides which exit codes are.
    """
    if "any" in job.fail_on:
        return [{"onReason": "*", "action": "EXIT"}]
    rules = [_RETRY_REQUEST]
    endings = {**_ENDINGS, "spot": reclaim}
    rules += [{**endings[word], "action": "EXIT"} for word in endings if word in job.fail_on]
    if _is_killed_worker_retried(job):
        rules.append({"onExitCode": str(EXIT_KILLED), "action": "RETRY"})
    rules.append({"onStatusReason": "Essential container in task exited", "action": "EXIT"})
    return rules


def _make_rules_for_words(
    job: PlannedJob, reclaim: Mapping[str, str], has_worker: bool
) -> list[dict[str, str]]:
    """Return the rules of a job with a worker, or of a command without retries on Spot."""
    # The worker follows the user's rules about exit codes, and requests another attempt with one
    # exit code.
    rules = [_RETRY_REQUEST] if has_worker else []
    survives_reclaim = not {"spot", "any"} & set(job.fail_on)
    rules.append({**reclaim, "action": "RETRY" if survives_reclaim else "EXIT"})
    if job.retry.attempts > 1:
        if "image" in job.retry_on and "image" not in job.fail_on:
            rules.append({**_ENDINGS["image"], "action": "RETRY"})
        if _is_killed_worker_retried(job):
            is_only_for_memory = not is_retried(_make_rules(job), Failure(0, EXIT_KILLED))
            reason = _ENDINGS["oom"] if is_only_for_memory else {}
            rules.append({**reason, "onExitCode": str(EXIT_KILLED), "action": "RETRY"})
    rules.append({"onReason": "*", "action": "EXIT"})
    return rules


def _make_rules_for_blocks(job: PlannedJob, reclaim: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the rules of a dynamic step.

    The block of a killed worker counts which command ran, so that no command kills without end.
    """
    fail_on = set(job.fail_on)
    survives_reclaim = not {"spot", "any"} & fail_on
    rules = [_RETRY_REQUEST, {**reclaim, "action": "RETRY" if survives_reclaim else "EXIT"}]
    is_image_retried = job.retry.attempts > 1 and bool({"image", "any"} & set(job.retry_on))
    if is_image_retried and not {"image", "any"} & fail_on:
        rules.append({**_ENDINGS["image"], "action": "RETRY"})
    if not {"oom", "any"} & fail_on:
        rules.append({"onExitCode": str(EXIT_KILLED), "action": "RETRY"})
    rules.append({"onReason": "*", "action": "EXIT"})
    return rules


def _is_killed_worker_retried(job: PlannedJob) -> bool:
    return is_killed_worker_retried(_make_rules(job))


def _make_rules(job: PlannedJob) -> Rules:
    """Return the rules as the worker has them."""
    return Rules(job.retry_on, job.fail_on, job.retry.attempts - 1, job.retry.attempts)


def _make_rule(rule: EvaluateOnExit) -> dict[str, str]:
    conditions = {
        "onStatusReason": rule.on_status_reason,
        "onReason": rule.on_reason,
        "onExitCode": rule.on_exit_code,
    }
    present = {name: text for name, text in conditions.items() if text is not None}
    return {**present, "action": rule.action.value.upper()}
