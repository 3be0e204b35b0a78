"""The kinds of findings about a host: BY301 to BY399."""

from __future__ import annotations

from batchyard.doctor.finding import Kind, Severity

BOOT_DEADLOCK = Kind("BY301", Severity.ERROR, 99, "no systemd jobs wait on each other")
DRIVER_NOT_ANSWERING = Kind("BY302", Severity.ERROR, 92, "the NVIDIA driver answers")
DEVICE_FILES_MISSING = Kind("BY303", Severity.ERROR, 85, "every GPU has its device file")
DOCKER_NOT_ANSWERING = Kind("BY304", Severity.ERROR, 90, "Docker answers")
NVIDIA_RUNTIME_MISSING = Kind("BY305", Severity.ERROR, 88, "Docker has the nvidia runtime")
DAEMON_JSON_MALFORMED = Kind("BY306", Severity.ERROR, 91, "daemon.json is JSON")
AGENT_NOT_ANSWERING = Kind("BY307", Severity.ERROR, 86, "the ECS agent answers")
AGENT_IN_NO_CLUSTER = Kind("BY308", Severity.ERROR, 84, "the agent is in a cluster")
GPU_SUPPORT_OFF = Kind("BY309", Severity.ERROR, 83, "GPU support is on in ecs.config")
AGENT_MISSED_GPUS = Kind("BY310", Severity.ERROR, 82, "the agent knows the host's GPUs")
CLOUD_INIT_FAILED = Kind("BY311", Severity.ERROR, 80, "cloud-init ended well")
DISK_NEARLY_FULL = Kind("BY312", Severity.WARNING, 70, "the disks have room")
CLOCK_NOT_SYNCHRONIZED = Kind("BY313", Severity.WARNING, 50, "the clock is synchronized")
METADATA_NOT_ANSWERING = Kind("BY314", Severity.WARNING, 55, "the metadata service answers")
CONTAINER_SEES_NO_GPU = Kind("BY315", Severity.ERROR, 95, "a container sees the GPUs")
FABRIC_MANAGER_NOT_RUNNING = Kind(
    "BY316", Severity.ERROR, 78, "fabric manager runs where GPUs need it"
)
UNIT_FAILED = Kind("BY317", Severity.WARNING, 75, "no unit that the node needs has failed")
GPU_ERRORS = Kind("BY318", Severity.ERROR, 70, "GPUs report no errors")
NODE_GPU_CHECK_FAILED = Kind("BY319", Severity.ERROR, 97, "the node's own check of its GPUs passed")
NODE_USER_DATA_UNFINISHED = Kind(
    "BY320", Severity.WARNING, 79, "the node's own user data did all it should"
)

ALL = (
    BOOT_DEADLOCK,
    DRIVER_NOT_ANSWERING,
    DEVICE_FILES_MISSING,
    DOCKER_NOT_ANSWERING,
    NVIDIA_RUNTIME_MISSING,
    DAEMON_JSON_MALFORMED,
    AGENT_NOT_ANSWERING,
    AGENT_IN_NO_CLUSTER,
    GPU_SUPPORT_OFF,
    AGENT_MISSED_GPUS,
    CLOUD_INIT_FAILED,
    DISK_NEARLY_FULL,
    CLOCK_NOT_SYNCHRONIZED,
    METADATA_NOT_ANSWERING,
    CONTAINER_SEES_NO_GPU,
    FABRIC_MANAGER_NOT_RUNNING,
    UNIT_FAILED,
    GPU_ERRORS,
    NODE_GPU_CHECK_FAILED,
    NODE_USER_DATA_UNFINISHED,
)
