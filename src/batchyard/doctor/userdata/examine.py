"""Examine user data: run all its checks and return a report. Pure; accepts any bytes."""

from __future__ import annotations

from collections.abc import Callable

from batchyard.doctor.finding import Finding, Kind, Report, Unseen, sort_findings
from batchyard.doctor.userdata import commands, drivers, form, settings
from batchyard.doctor.userdata.boot import Boot, follow_boot
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
from batchyard.doctor.userdata.observation import Observations
from batchyard.doctor.userdata.parts import OTHER, UserData, parse_user_data

BATCH, ECS = "batch", "ecs"


#: kind, check, and whether the check is only for nodes of AWS Batch
Check = tuple[Kind, Callable[[UserData, Boot], Observations], bool]

FORM_CHECKS: tuple[Check, ...] = (
    (NOT_MIME_MULTIPART, form.check_mime, True),
    (USER_DATA_TOO_LONG, form.check_size, False),
    (MALFORMED_MIME, form.check_parts, False),
    (NO_INTERPRETER_LINE, form.check_interpreter_lines, False),
    (SECRET_IN_USER_DATA, form.check_secrets, False),
)
COMMAND_CHECKS: tuple[Check, ...] = (
    (BLOCKING_SERVICE_START, commands.check_blocking_starts, False),
    (ECS_CLUSTER_SET, settings.check_reserved_settings, True),
    (ECS_CONFIG_OVERWRITTEN, settings.check_overwritten_config, True),
    (METADATA_WITHOUT_TOKEN, commands.check_metadata_token, False),
    (DRIVER_INSTALLED_AT_BOOT, drivers.check_drivers, False),
    (WAITS_FOR_ECS_AGENT, commands.check_waits_for_agent, False),
    (REBOOT_AT_BOOT, commands.check_reboots, False),
    (SERVICE_STOPPED, commands.check_stops, False),
    (GPU_SUPPORT_OFF, settings.check_gpu_support, False),
    (AMAZON_LINUX_2_COMMAND, commands.check_amazon_linux_2_commands, False),
    (AWSLOGS_DRIVER_REMOVED, settings.check_log_drivers, False),
    (DAEMON_JSON_MALFORMED, settings.check_daemon_json, False),
)
_KINDS_OF_COMMANDS = frozenset(kind for kind, _, _ in COMMAND_CHECKS)
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
    """Check user data.

    ``owner`` is BATCH or ECS: who runs the node. ``line_of`` names the place of a line, by default
    ``name:line``. ``size`` is the size in bytes that EC2 counts, if ``data`` was unpacked already.
    """
    user_data = parse_user_data(data)
    user_data.size = size or user_data.size
    boot = follow_boot(user_data)
    place = line_of or (lambda line: f"{name}:{line}" if line else name)
    findings, right = _run_checks(CHECKS, user_data, boot, owner, place)
    unseen = _find_unseen(right, boot, place)
    unseen_kinds = {check.kind for check in unseen}
    is_for_windows = bool(user_data.parts) and all(p.kind == OTHER for p in user_data.parts)
    reason = "no part of it is a script or cloud-config for Linux" if is_for_windows else ""
    return Report(
        f"user data {name}",
        sort_findings(findings),
        tuple(kind for kind in right if kind not in unseen_kinds),
        tuple(unseen),
        blind_reason=reason,
    )


def _find_unseen(right: list[Kind], boot: Boot, place: Callable[[int], str]) -> list[Unseen]:
    """Return the checks of commands that are not certain, since a script is not followed."""
    if not boot.not_followed:
        return []
    line, interpreter = boot.not_followed[0]
    reason = f"{place(line)} runs a script for {interpreter}, which is not followed"
    return [Unseen(kind, reason) for kind in right if kind in _KINDS_OF_COMMANDS]


def examine_commands(boot: Boot, owner: str, line_of: Callable[[int], str]) -> list[Finding]:
    """Check commands that another program runs for the user data, such as cfn-init."""
    return _run_checks(COMMAND_CHECKS, parse_user_data(b""), boot, owner, line_of)[0]


def _run_checks(
    checks: tuple[Check, ...],
    user_data: UserData,
    boot: Boot,
    owner: str,
    place: Callable[[int], str],
) -> tuple[list[Finding], list[Kind]]:
    """Return the findings, and the kinds of checks without a finding."""
    findings: list[Finding] = []
    right: list[Kind] = []
    for kind, check, is_for_batch in checks:
        if is_for_batch and owner != BATCH:
            continue
        observations = list(check(user_data, boot))
        findings += [
            Finding(kind, cause, evidence, remedy, place(line))
            for line, cause, evidence, remedy in observations
        ]
        if not observations:
            right.append(kind)
    return findings, right
