"""AWS Batch's limits that more than one module checks (facts, 5.4); no other module states them."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Characters in the name of a job, job definition, queue or compute environment.
MAX_NAME_CHARS = 128
NAME_PATTERN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME_CHARS - 1}}}")
MAX_REQUEST_BYTES = 30 * 1024
MAX_DEFINITION_BYTES = 24 * 1024
MAX_DEPENDENCIES = 20
#: Children of one array job.
MAX_CHILDREN = 10_000
ARRAY_SIZES = range(2, MAX_CHILDREN + 1)
#: Characters of container overrides that ECS accepts when it starts the task of a job.
MAX_OVERRIDE_CHARS = 8192
MAX_ATTEMPTS = 10
#: Entries of `evaluateOnExit`.
MAX_RETRY_RULES = 5
#: Characters of one pattern in `evaluateOnExit`.
MAX_RETRY_PATTERN_CHARS = 512
MAX_TAGS = 50
MAX_TAG_KEY_CHARS = 128
MAX_TAG_VALUE_CHARS = 256
MAX_SHARE_CHARS = 255
MAX_PRIORITY = 9999
MIN_TIMEOUT_S = 60
MIN_MEMORY_MIB = 4
#: Job ids in one DescribeJobs request.
MAX_DESCRIBED_JOBS = 100
MAX_IMAGE_CHARS = 255
#: vCPUs of Fargate -> the amounts of memory in MiB that go with them (facts, 5.3).
FARGATE_MEMORY_MIB: dict[float, Sequence[int]] = {
    0.25: (512, 1024, 2048),
    0.5: range(1024, 4096 + 1, 1024),
    1: range(2048, 8192 + 1, 1024),
    2: range(4096, 16384 + 1, 1024),
    4: range(8192, 30720 + 1, 1024),
    8: range(16384, 61440 + 1, 4096),
    16: range(32768, 122880 + 1, 8192),
}
#: Characters of a container's `reason`.
MAX_CONTAINER_REASON_CHARS = 255
