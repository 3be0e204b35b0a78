"""Names, ARNs and ids of resources, jobs and tasks."""

from __future__ import annotations

import re
from typing import NamedTuple

from batchyard.batch.limits import NAME_PATTERN
from batchyard.emulator.api_errors import InvalidRequestError

#: moto's account.
ACCOUNT_ID = "123456789012"
DEFAULT_LOG_GROUP = "/aws/batch/job"

_MAX_STREAM_PREFIX_CHARS = 200
#: AWS writes no leading zeros: `007` is not an index.
_INDEX = re.compile(r"0|[1-9][0-9]{0,5}")
_TASK_ID = re.compile(r"[0-9a-f]{32}")


def batch_arn(region: str, kind: str, name: str) -> str:
    """Return the ARN of an AWS Batch resource; ``kind`` is for example `job-queue`."""
    return f"arn:aws:batch:{region}:{ACCOUNT_ID}:{kind}/{name}"


def strip_arn(name_or_arn: str) -> str:
    """Return the name at the end of an ARN; return anything else as it is."""
    return name_or_arn.rpartition("/")[2] if name_or_arn.startswith("arn:") else name_or_arn


def resource_kind(arn: str) -> str:
    """Return the kind of an AWS Batch resource, such as `job-queue`; empty for any other text."""
    parts = arn.split(":", 5)
    return parts[5].partition("/")[0] if len(parts) == 6 and parts[2] == "batch" else ""


def require_name(member: str, name: str) -> str:
    """Return the name of a job or resource if AWS allows it (facts, 5.4).

    Raises InvalidRequestError, which names ``member``.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidRequestError(
            f"{member} should match valid pattern: up to 128 letters, digits, hyphens and "
            f"underscores, the first one a letter or a digit; got {name!r}"
        )
    return name


class AttemptKey(NamedTuple):
    """An attempt of a child, by the numbers that the store uses."""

    job_number: int
    child: int
    attempt: int


def task_id(key: AttemptKey, salt: str) -> str:
    """Return 32 hexadecimal digits, as ECS uses them, that encode the attempt.

    ``salt`` is the last 16 digits.
    """
    return f"{key.job_number:08x}{key.child:06x}{key.attempt:02x}{salt}"


def parse_task_id(task: str, salt: str) -> AttemptKey | None:
    """Return the attempt that a task id encodes, or None if this endpoint did not make the id."""
    if not _TASK_ID.fullmatch(task) or not task.endswith(salt):
        return None
    return AttemptKey(int(task[:8], 16), int(task[8:14], 16), int(task[14:16], 16))


def task_arn(region: str, cluster: str, task: str) -> str:
    return f"arn:aws:ecs:{region}:{ACCOUNT_ID}:task/{cluster}/{task}"


def container_instance_arn(region: str, cluster: str, task: str) -> str:
    return f"arn:aws:ecs:{region}:{ACCOUNT_ID}:container-instance/{cluster}/{task[::-1]}"


def instance_id(task: str) -> str:
    """Return the id of the emulated EC2 instance of a task.

    Each task has its own instance, so that a reclaim ends one attempt only.
    """
    return f"i-0{task[:16]}"


def log_stream_name(definition_name: str, task: str, prefix: str | None = None) -> str:
    """Return `<definition>/default/<task id>` (facts, 1.1).

    ``prefix`` is the awslogs-stream-prefix of the job, which replaces the definition's name.
    """
    return f"{prefix or definition_name[:_MAX_STREAM_PREFIX_CHARS]}/default/{task}"


def split_child_id(job_id: str) -> tuple[str, int | None]:
    """Split `<uuid>:<index>` into the id of the job and the index of the child.

    The index is None for the id of a job, and -1 if the text after the colon is not an index.
    """
    parent, colon, index = job_id.partition(":")
    if not colon:
        return parent, None
    return parent, int(index) if _INDEX.fullmatch(index) else -1
