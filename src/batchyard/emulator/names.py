"""Names, ARNs and ids: how the endpoint calls things, and what a name it is given means. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from batchyard.batch.limits import NAME_PATTERN
from batchyard.emulator.api_errors import InvalidRequestError

#: the account that moto pretends to be
ACCOUNT_ID = "123456789012"
DEFAULT_LOG_GROUP = "/aws/batch/job"

_STREAM_PREFIX_LENGTH = 200
#: as AWS writes it: `007` is no child's index
_INDEX = re.compile(r"0|[1-9][0-9]{0,5}")
_TASK_ID = re.compile(r"[0-9a-f]{32}")


def arn(region: str, kind: str, name: str) -> str:
    """``kind``: compute-environment, job-queue, job-definition, job, scheduling-policy, consumable-resource."""
    return f"arn:aws:batch:{region}:{ACCOUNT_ID}:{kind}/{name}"


def bare(name_or_arn: str) -> str:
    """The name in an ARN, or the name itself."""
    return name_or_arn.rpartition("/")[2] if name_or_arn.startswith("arn:") else name_or_arn


def kind_of(resource_arn: str) -> str:
    """`job-queue` of `arn:aws:batch:us-east-1:123456789012:job-queue/x`; empty where it is no ARN of AWS Batch."""
    parts = resource_arn.split(":", 5)
    return parts[5].partition("/")[0] if len(parts) == 6 and parts[2] == "batch" else ""


def require_name(field: str, value: str) -> str:
    """Names of jobs, definitions, queues, environments: facts, 5.4."""
    if not NAME_PATTERN.fullmatch(value):
        raise InvalidRequestError(
            f"{field} should match valid pattern: up to 128 letters, digits, hyphens and underscores, the first one a "
            f"letter or a digit; got {value!r}"
        )
    return value


class AttemptKey(NamedTuple):
    """One attempt of one child, by the engine's numbers."""

    job_number: int
    child: int
    attempt: int


def task_id(key: AttemptKey, salt: str) -> str:
    """32 hexadecimal digits as ECS has them, from which the attempt can be told again. ``salt``: 16 of them."""
    return f"{key.job_number:08x}{key.child:06x}{key.attempt:02x}{salt}"


def attempt_of(task: str, salt: str) -> AttemptKey | None:
    """The attempt that a task id stands for; None where it is none of ours."""
    if not _TASK_ID.fullmatch(task) or not task.endswith(salt):
        return None
    return AttemptKey(int(task[:8], 16), int(task[8:14], 16), int(task[14:16], 16))


def task_arn(region: str, cluster: str, task: str) -> str:
    return f"arn:aws:ecs:{region}:{ACCOUNT_ID}:task/{cluster}/{task}"


def container_instance_arn(region: str, cluster: str, task: str) -> str:
    return f"arn:aws:ecs:{region}:{ACCOUNT_ID}:container-instance/{cluster}/{task[::-1]}"


def instance_id(task: str) -> str:
    """The EC2 instance that an attempt pretends to be on: one for each, so that a reclaim takes no other along."""
    return f"i-0{task[:16]}"


def log_stream(definition_name: str, task: str, prefix: str | None = None) -> str:
    """`<definition>/default/<task id>` (facts, 1.1); ``prefix``: awslogs-stream-prefix, where it was given."""
    return f"{prefix or definition_name[:_STREAM_PREFIX_LENGTH]}/default/{task}"


def split_child(job_id: str) -> tuple[str, int | None]:
    """`<uuid>:<index>` -> (uuid, index); index None for the job itself, -1 where there can be no such child."""
    parent, colon, index = job_id.partition(":")
    if not colon:
        return parent, None
    return parent, int(index) if _INDEX.fullmatch(index) else -1
