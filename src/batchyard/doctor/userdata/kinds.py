"""The kinds of findings about user data: BY101 to BY199."""

from __future__ import annotations

from batchyard.doctor.finding import Kind, Severity

BLOCKING_SERVICE_START = Kind(
    "BY101", Severity.ERROR, 98, "nothing starts or restarts ecs or docker and waits for it"
)
ECS_CLUSTER_SET = Kind("BY102", Severity.ERROR, 90, "ECS_CLUSTER is left to AWS Batch")
NOT_MIME_MULTIPART = Kind("BY103", Severity.ERROR, 95, "the user data is MIME multipart")
USER_DATA_TOO_LONG = Kind("BY104", Severity.ERROR, 90, "the user data is at most 16 KiB")
ECS_CONFIG_OVERWRITTEN = Kind("BY105", Severity.ERROR, 88, "ecs.config is appended to")
METADATA_WITHOUT_TOKEN = Kind(
    "BY106", Severity.WARNING, 60, "the metadata service is asked with a token"
)
DRIVER_INSTALLED_AT_BOOT = Kind("BY107", Severity.WARNING, 65, "no driver is installed at boot")
MALFORMED_MIME = Kind("BY108", Severity.ERROR, 93, "the MIME parts are well formed")
NO_INTERPRETER_LINE = Kind("BY109", Severity.ERROR, 80, "scripts begin with #!")
WAITS_FOR_ECS_AGENT = Kind("BY110", Severity.ERROR, 94, "nothing waits for the ECS agent")
REBOOT_AT_BOOT = Kind(
    "BY111", Severity.WARNING, 50, "the node is not rebooted or shut down at boot"
)
SERVICE_STOPPED = Kind("BY112", Severity.ERROR, 75, "ecs and docker are not stopped or disabled")
SECRET_IN_USER_DATA = Kind("BY113", Severity.ERROR, 70, "no secret is written in the user data")
GPU_SUPPORT_OFF = Kind("BY114", Severity.ERROR, 72, "GPU support is not switched off")
AMAZON_LINUX_2_COMMAND = Kind(
    "BY115", Severity.WARNING, 40, "the commands exist on Amazon Linux 2023"
)
AWSLOGS_DRIVER_REMOVED = Kind("BY116", Severity.ERROR, 60, "the awslogs driver is kept")
DAEMON_JSON_MALFORMED = Kind("BY117", Severity.ERROR, 75, "daemon.json is JSON")

ALL = (
    BLOCKING_SERVICE_START,
    ECS_CLUSTER_SET,
    NOT_MIME_MULTIPART,
    USER_DATA_TOO_LONG,
    ECS_CONFIG_OVERWRITTEN,
    METADATA_WITHOUT_TOKEN,
    DRIVER_INSTALLED_AT_BOOT,
    MALFORMED_MIME,
    NO_INTERPRETER_LINE,
    WAITS_FOR_ECS_AGENT,
    REBOOT_AT_BOOT,
    SERVICE_STOPPED,
    SECRET_IN_USER_DATA,
    GPU_SUPPORT_OFF,
    AMAZON_LINUX_2_COMMAND,
    AWSLOGS_DRIVER_REMOVED,
    DAEMON_JSON_MALFORMED,
)
