"""Problems of SubmitJob requests and job definitions, as AWS Batch sees them. Pure.

Facts, 1.3, 1.4, 2 and 5. Callers pass values that already have the shapes of AWS's API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batchyard.batch import limits
from batchyard.batch.dependencies import ParentJob, dependency_problem
from batchyard.batch.jobs import Dependency, DependencyType

_TEXT_PATTERN = re.compile(r"[0-9A-Za-z.:\s]*\*?")
_CODE_PATTERN = re.compile(r"[0-9]*\*?")
#: type of a resource requirement -> its minimum
_MIN_REQUIREMENTS = {"VCPU": 1, "MEMORY": limits.MIN_MEMORY_MIB, "GPU": 1}

Members = Mapping[str, Any]


def request_problems(
    request: Members, parents: Mapping[str, tuple[str, int | None]], *, is_fargate: bool | None
) -> Iterator[str]:
    """Yield the problems of a SubmitJob request that show without its definition and queue.

    ``parents``: job id -> (name, array size) of the jobs that the request depends on.
    ``is_fargate``: None if not known.
    """
    yield from dependency_problems(request, parents)
    for overrides in _overrides_of(request):
        yield from command_problems(overrides.get("command", []))
        yield from environment_problems(overrides.get("environment", []))
        for requirement in overrides.get("resourceRequirements", []):
            yield from requirement_problems(
                requirement["type"], requirement["value"], is_fargate=is_fargate
            )
        if (length := overrides_length(overrides)) > limits.MAX_OVERRIDE_CHARS:
            yield (
                f"the overrides have {length:,} characters, and AWS takes "
                f"{limits.MAX_OVERRIDE_CHARS:,} when it starts the job"
            )
    yield from retry_problems(request.get("retryStrategy", {}))
    yield from timeout_problems(request.get("timeout", {}))
    yield from priority_problems("schedulingPriorityOverride", request)
    yield from share_problems(request)
    yield from tag_problems(request.get("tags", {}))
    yield from consumable_problems(request.get("consumableResourcePropertiesOverride", {}))


def dependency_problems(
    request: Members, parents: Mapping[str, tuple[str, int | None]]
) -> Iterator[str]:
    size = request.get("arrayProperties", {}).get("size")
    for entry in request.get("dependsOn", []):
        kind, job_id = entry.get("type"), entry.get("jobId")
        if kind not in (None, "N_TO_N", "SEQUENTIAL"):
            yield f"dependsOn: type must be N_TO_N or SEQUENTIAL; got {kind!r}"
            continue
        if job_id is None and kind != "SEQUENTIAL":
            yield "dependsOn: jobId must be provided unless type is SEQUENTIAL"
            continue
        name_and_size = parents.get((job_id or "").partition(":")[0])
        parent = ParentJob(*name_and_size) if name_and_size else None
        problem = dependency_problem(
            request.get("jobName", "?"), size, Dependency(job_id, DependencyType(kind)), parent
        )
        if problem:
            yield problem


def retry_problems(strategy: Members) -> Iterator[str]:
    rules = strategy.get("evaluateOnExit", [])
    if rules and "attempts" not in strategy:
        yield "RetryAttempts must be provided with retry strategy"
    if not 1 <= strategy.get("attempts", 1) <= limits.MAX_ATTEMPTS:
        yield f"retryStrategy.attempts must be between 1 and {limits.MAX_ATTEMPTS}"
    if len(rules) > limits.MAX_RETRY_RULES:
        yield f"evaluateOnExit must have at most {limits.MAX_RETRY_RULES} entries; got {len(rules)}"
    for rule in rules:
        yield from _rule_problems(rule)


def _rule_problems(rule: Members) -> Iterator[str]:
    if rule["action"].upper() not in ("RETRY", "EXIT"):
        yield f"evaluateOnExit: action must be RETRY or EXIT; got {rule['action']!r}"
    for member in ("onStatusReason", "onReason", "onExitCode"):
        pattern = _CODE_PATTERN if member == "onExitCode" else _TEXT_PATTERN
        text = rule.get(member, "")
        if len(text) > limits.MAX_RETRY_PATTERN_CHARS or not pattern.fullmatch(text):
            allowed = (
                "digits"
                if member == "onExitCode"
                else "letters, digits, periods, colons and white space"
            )
            yield (
                f"evaluateOnExit: {member} must be at most {limits.MAX_RETRY_PATTERN_CHARS} "
                f"{allowed}, with at most one * at the end; got {text!r}"
            )


def timeout_problems(timeout: Members) -> Iterator[str]:
    seconds = timeout.get("attemptDurationSeconds")
    if seconds is not None and seconds < limits.MIN_TIMEOUT_S:
        yield f"attemptDurationSeconds must be at least {limits.MIN_TIMEOUT_S}; got {seconds}"


def priority_problems(member: str, request: Members) -> Iterator[str]:
    if not 0 <= request.get(member, 0) <= limits.MAX_PRIORITY:
        yield f"{member} must be between 0 and {limits.MAX_PRIORITY}; got {request[member]}"


def share_problems(request: Members) -> Iterator[str]:
    share = request.get("shareIdentifier")
    maximum = limits.MAX_SHARE_CHARS
    if share is None or (share.isascii() and share.isalnum() and len(share) <= maximum):
        return
    yield f"shareIdentifier must be at most {maximum} letters and digits; got {share!r}"


def tag_problems(tags: Mapping[str, str]) -> Iterator[str]:
    if len(tags) > limits.MAX_TAGS:
        yield f"there must be at most {limits.MAX_TAGS} tags; got {len(tags)}"
    for key, value in tags.items():
        is_key = 1 <= len(key) <= limits.MAX_TAG_KEY_CHARS and not key.lower().startswith("aws:")
        if not is_key or len(value) > limits.MAX_TAG_VALUE_CHARS:
            yield (
                f"a tag's key has 1 to {limits.MAX_TAG_KEY_CHARS} characters and does not start "
                f"with aws:, its value at most {limits.MAX_TAG_VALUE_CHARS}; got {key!r}"
            )


def command_problems(command: Sequence[str]) -> Iterator[str]:
    if any(not word for word in command):
        yield "containerOverrides.command must not have empty strings"


def environment_problems(variables: Sequence[Members]) -> Iterator[str]:
    for variable in variables:
        name = variable.get("name", "")
        if not name or "=" in name:
            yield f"Environment variables must have a name, and no = in it; got {name!r}"
        elif name.startswith("AWS_BATCH_"):
            yield (
                "Environment variables must not start with AWS_BATCH, which is reserved; "
                f"got {name!r}"
            )


def requirement_problems(kind: str, value: str, *, is_fargate: bool | None) -> Iterator[str]:
    """Yield the problems of one resource requirement. Fargate's sizes are not checked."""
    if kind not in _MIN_REQUIREMENTS:
        yield f"resourceRequirements: type must be {', '.join(_MIN_REQUIREMENTS)}; got {kind!r}"
        return
    if kind == "GPU" and is_fargate:
        yield "resourceRequirements of type GPU are not for FARGATE"
    if kind == "VCPU" and is_fargate is not False and re.fullmatch(r"0?\.(25|50?)", value):
        return
    number, minimum = parse_whole_number(value), _MIN_REQUIREMENTS[kind]
    if number is None or number < minimum:
        yield (
            f"resourceRequirements: {kind} must be a whole number of at least {minimum}; "
            f"got {value!r}"
        )


def parse_whole_number(text: str) -> int | None:
    """Return a whole number as AWS reads it; None for any other text, such as `4.0`."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def consumable_problems(properties: Members) -> Iterator[str]:
    """Yield the problems of a list of consumable resources, which may not exist."""
    entries = properties.get("consumableResourceList", [])
    named = [entry.get("consumableResource", "").rpartition("/")[2] for entry in entries]
    if len(set(named)) < len(named):
        yield "consumableResourceList must not name a consumable resource twice"
    if any(entry.get("quantity", 0) < 1 for entry in entries):
        yield "a consumable resource's quantity must be at least 1"


def secret_problems(container: Members) -> Iterator[str]:
    """Yield the problem of secrets without the role to read them with (facts, 5.3)."""
    secrets = container.get("secrets") or container.get("logConfiguration", {}).get("secretOptions")
    if secrets and not container.get("executionRoleArn"):
        yield "executionRoleArn must be provided when secrets are specified"


def overrides_length(overrides: Members) -> int:
    """Return the characters of overrides as AWS counts them when it starts the job (facts, 5.4)."""
    return len(json.dumps(overrides, separators=(",", ":"), ensure_ascii=False)) if overrides else 0


def _overrides_of(request: Members) -> Iterator[Members]:
    yield request.get("containerOverrides", {})
    for task in request.get("ecsPropertiesOverride", {}).get("taskProperties", []):
        yield from task.get("containers", [])
    for node in request.get("nodeOverrides", {}).get("nodePropertyOverrides", []):
        yield node.get("containerOverrides", {})
