"""Names, ARNs and ids of resources, jobs and tasks."""

from __future__ import annotations

import hashlib
import re
import secrets
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
#: No list of regions: AWS adds some every year.
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+){1,2}-[0-9]{1,2}")
#: Beginning of a region's name -> the partition of AWS that it belongs to; `aws` for all others.
_PARTITIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "us-isof-": "aws-iso-f",
    "eu-isoe-": "aws-iso-e",
    "eusc-": "aws-eusc",
}


def is_region(name: str) -> bool:
    """Return whether a text has the form of a region's name."""
    return _REGION.fullmatch(name) is not None


def arn(service: str, region: str, resource: str) -> str:
    return f"arn:{partition_of(region)}:{service}:{region}:{ACCOUNT_ID}:{resource}"


def iam_arn(region: str, resource: str) -> str:
    """Return the ARN of a role or profile, which belongs to no region but to a partition."""
    return f"arn:{partition_of(region)}:iam::{ACCOUNT_ID}:{resource}"


def partition_of(region: str) -> str:
    for prefix, partition in _PARTITIONS.items():
        if region.startswith(prefix):
            return partition
    return "aws"


def region_of(arn: str) -> str:
    """Return the region in an ARN."""
    return arn.split(":", 4)[3]


def batch_arn(region: str, kind: str, name: str) -> str:
    """Return the ARN of an AWS Batch resource; ``kind`` is for example `job-queue`."""
    return arn("batch", region, f"{kind}/{name}")


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
    return arn("ecs", region, f"task/{cluster}/{task}")


def cluster_arn(region: str, cluster: str) -> str:
    return arn("ecs", region, f"cluster/{cluster}")


def container_instance_arn(region: str, cluster: str, host_id: str) -> str:
    """Return the ARN of an EC2 instance in its ECS cluster."""
    container_instance = hashlib.sha256(host_id.encode()).hexdigest()[:32]
    return arn("ecs", region, f"container-instance/{cluster}/{container_instance}")


def new_instance_id() -> str:
    """Return a new id in the form of EC2's."""
    return f"i-0{secrets.token_hex(8)}"


def own_instance_id(environment_uuid: str) -> str:
    """Return the id of the only instance of an UNMANAGED environment: this machine."""
    return f"i-0{environment_uuid.replace('-', '')[:16]}"


def log_stream_name(
    definition_name: str, task: str, prefix: str | None = None, container: str = "default"
) -> str:
    """Return `<definition>/<container>/<task id>` (facts, 1.1).

    ``prefix`` is the awslogs-stream-prefix of the job, which replaces the definition's name.
    """
    return f"{prefix or definition_name[:_MAX_STREAM_PREFIX_CHARS]}/{container}/{task}"


def split_child_id(job_id: str) -> tuple[str, int | None]:
    """Split `<uuid>:<index>` into the id of the job and the index of the child.

    The index is None for the id of a job, and -1 if the text after the colon is not an index.
    """
    parent, colon, index = job_id.partition(":")
    if not colon:
        return parent, None
    return parent, int(index) if _INDEX.fullmatch(index) else -1
