"""All causes of failed attempts, in the order in which they are tried.

The first cause that matches an ending explains it. To add a cause, add its file to this folder
and its name here.
"""

from __future__ import annotations

from batchyard.doctor.checks.failures import (
    command_failed,
    command_not_executable,
    container_start_failed,
    host_disk_full,
    host_lost,
    image_architecture_wrong,
    image_pull_failed,
    out_of_memory,
    overrides_too_long,
    queue_deleted,
    queue_time_limit,
    resources_not_ready,
    timed_out,
)

CAUSES = (
    image_architecture_wrong.CAUSE,
    host_disk_full.CAUSE,
    image_pull_failed.CAUSE,
    out_of_memory.CAUSE,
    host_lost.CAUSE,
    overrides_too_long.CAUSE,
    timed_out.CAUSE,
    queue_time_limit.CAUSE,
    queue_deleted.CAUSE,
    resources_not_ready.CAUSE,
    command_not_executable.CAUSE,
    container_start_failed.CAUSE,
    command_failed.CAUSE,
)
