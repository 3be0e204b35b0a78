"""User data -> report: every check of what a node does at boot. Pure, and answers for any bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from batchyard.doctor.finding import Finding, Kind, Report, Unseen, sort_findings
from batchyard.doctor.userdata import commands, form
from batchyard.doctor.userdata.boot import Boot, boot
from batchyard.doctor.userdata.kinds import (
    AMAZON_LINUX_2_COMMAND,
    AWSLOGS_DRIVER_REMOVED,
    BLOCKING_SERVICE_START,
    DAEMON_JSON_MALFORMED,
    DRIVER_INSTALLED_AT_BOOT,
    ECS_CLUSTER_SET,
    ECS_CONFIG_OVERWRITTEN,
    GPU_SUPPORT_OFF,
    MALFORMED_MIME,
    METADATA_WITHOUT_TOKEN,
    NO_INTERPRETER_LINE,
    NOT_MIME_MULTIPART,
    REBOOT_AT_BOOT,
    SECRET_IN_USER_DATA,
    SERVICE_STOPPED,
    USER_DATA_TOO_LONG,
    WAITS_FOR_ECS_AGENT,
)
from batchyard.doctor.userdata.parts import OTHER, UserData, read

BATCH, ECS = "batch", "ecs"


Found = Iterable[tuple[int, str, tuple[str, ...], tuple[str, ...]]]

Check = tuple[Kind, Callable[[UserData, Boot], Found], bool]

#: kind, check, whether only AWS Batch's nodes are meant. A check yields line, cause, evidence, remedy.
FORM_CHECKS: tuple[Check, ...] = (
    (NOT_MIME_MULTIPART, form.not_mime, True),
    (USER_DATA_TOO_LONG, form.too_long, False),
    (MALFORMED_MIME, form.malformed, False),
    (NO_INTERPRETER_LINE, form.no_interpreter, False),
    (SECRET_IN_USER_DATA, form.no_secrets, False),
)
COMMAND_CHECKS: tuple[Check, ...] = (
    (BLOCKING_SERVICE_START, commands.blocking, False),
    (ECS_CLUSTER_SET, commands.cluster, True),
    (ECS_CONFIG_OVERWRITTEN, commands.config_overwritten, True),
    (METADATA_WITHOUT_TOKEN, commands.without_token, False),
    (DRIVER_INSTALLED_AT_BOOT, commands.drivers, False),
    (WAITS_FOR_ECS_AGENT, commands.waits_for_agent, False),
    (REBOOT_AT_BOOT, commands.reboots, False),
    (SERVICE_STOPPED, commands.stops, False),
    (GPU_SUPPORT_OFF, commands.gpu_support_off, False),
    (AMAZON_LINUX_2_COMMAND, commands.old_habits, False),
    (AWSLOGS_DRIVER_REMOVED, commands.log_drivers, False),
    (DAEMON_JSON_MALFORMED, commands.daemon_json, False),
)
_OF_COMMANDS = frozenset(kind for kind, _, _ in COMMAND_CHECKS)
CHECKS: tuple[Check, ...] = tuple(
    sorted(FORM_CHECKS + COMMAND_CHECKS, key=lambda check: check[0].id)
)


def examine(
    data: bytes,
    name: str,
    owner: str = BATCH,
    line_of: Callable[[int], str] | None = None,
    *,
    size: int = 0,
) -> Report:
    """``line_of`` says where a line stands, where not simply at ``name:line``; ``size`` what EC2 counts, else."""
    user_data = read(data)
    user_data.size = size or user_data.size
    would_do = boot(user_data)
    place = line_of or (lambda line: f"{name}:{line}" if line else name)
    findings, right = _checked(CHECKS, user_data, would_do, owner, place)
    is_foreign = bool(user_data.parts) and all(part.kind == OTHER for part in user_data.parts)
    blind = "no part of it is a script or cloud-config for Linux" if is_foreign else ""
    unseen = [
        Unseen(kind, why)
        for why in _not_followed(would_do, place)
        for kind in right
        if kind in _OF_COMMANDS
    ]
    right = [kind for kind in right if not unseen or kind not in _OF_COMMANDS]
    return Report(
        f"user data {name}",
        sort_findings(findings),
        tuple(right),
        tuple(unseen),
        blind_reason=blind,
    )


def _not_followed(would_do: Boot, place: Callable[[int], str]) -> list[str]:
    """Return why the commands of the user data are not all known: the first script in another language, if any."""
    return [
        f"{place(line)} runs a script for {interpreter}, which is not followed"
        for line, interpreter in would_do.not_followed[:1]
    ]


def examine_run(would_do: Boot, owner: str, line_of: Callable[[int], str]) -> list[Finding]:
    """Of what user data has run by somebody else, who has a form of his own: cfn-init."""
    return _checked(COMMAND_CHECKS, read(b""), would_do, owner, line_of)[0]


def _checked(
    checks: tuple[Check, ...],
    user_data: UserData,
    would_do: Boot,
    owner: str,
    place: Callable[[int], str],
) -> tuple[list[Finding], list[Kind]]:
    findings: list[Finding] = []
    right: list[Kind] = []
    for kind, look, is_for_batch in checks:
        if is_for_batch and owner != BATCH:
            continue
        found = [
            Finding(kind, cause, evidence, remedy, place(at))
            for at, cause, evidence, remedy in look(user_data, would_do)
        ]
        findings += found
        if not found:
            right.append(kind)
    return findings, right
