"""BY062: the container used more memory than it requested."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY062", Severity.ERROR, 95, "the container stayed within its memory")
CAUSE = Cause(
    KIND,
    mentions("outofmemory", "killed due to memory usage"),
    "the container used more memory than it asked for and was killed",
    (
        "ask for more memory in the step, or use less: "
        "on Amazon Linux 2023 the page cache counts too",
    ),
    is_in_log=True,
    describe_job=lambda job: f"requested {job.memory_mib:,} MiB",
)
