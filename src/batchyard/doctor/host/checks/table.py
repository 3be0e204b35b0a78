"""All checks of a host, in the order of their ids.

To add a finding, write its file and add its ``CHECK`` here: docs/how-to/add-a-finding.md.
"""

from __future__ import annotations

from batchyard.doctor.host.checks import (
    agent_in_no_cluster,
    agent_missed_gpus,
    agent_not_answering,
    boot_deadlock,
    clock_not_synchronized,
    cloud_init_failed,
    container_sees_no_gpu,
    daemon_json_malformed,
    device_files_missing,
    disk_nearly_full,
    docker_not_answering,
    driver_not_answering,
    fabric_manager_not_running,
    gpu_errors,
    gpu_support_off,
    metadata_not_answering,
    node_gpu_check_failed,
    node_user_data_unfinished,
    nvidia_runtime_missing,
    unit_failed,
)

CHECKS = (
    boot_deadlock.CHECK,
    driver_not_answering.CHECK,
    device_files_missing.CHECK,
    docker_not_answering.CHECK,
    nvidia_runtime_missing.CHECK,
    daemon_json_malformed.CHECK,
    agent_not_answering.CHECK,
    agent_in_no_cluster.CHECK,
    gpu_support_off.CHECK,
    agent_missed_gpus.CHECK,
    cloud_init_failed.CHECK,
    disk_nearly_full.CHECK,
    clock_not_synchronized.CHECK,
    metadata_not_answering.CHECK,
    container_sees_no_gpu.CHECK,
    fabric_manager_not_running.CHECK,
    unit_failed.CHECK,
    gpu_errors.CHECK,
    node_gpu_check_failed.CHECK,
    node_user_data_unfinished.CHECK,
)
