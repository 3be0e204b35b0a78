"""Examine user data: run all its checks and return a report. Pure; accepts any bytes."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from batchyard.doctor.finding import Finding, Kind, Report, Unseen, sort_findings
from batchyard.doctor.userdata import commands, drivers, form, settings
from batchyard.doctor.userdata.boot import Boot, follow_boot
from batchyard.doctor.userdata.observation import UserDataCheck
from batchyard.doctor.userdata.parts import OTHER, UserData, parse_user_data

BATCH, ECS = "batch", "ecs"


def _checks_in(*modules: ModuleType) -> tuple[UserDataCheck, ...]:
    values = (value for module in modules for value in vars(module).values())
    return tuple(value for value in values if isinstance(value, UserDataCheck))


FORM_CHECKS = _checks_in(form)
COMMAND_CHECKS = _checks_in(commands, drivers, settings)
_KINDS_OF_COMMANDS = frozenset(kind for kind, _, _ in COMMAND_CHECKS)
CHECKS = tuple(sorted(FORM_CHECKS + COMMAND_CHECKS, key=lambda check: check.kind.id))


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
    line, description = boot.not_followed[0]
    reason = f"{place(line)} {description}, which is not followed"
    return [Unseen(kind, reason) for kind in right if kind in _KINDS_OF_COMMANDS]


def examine_commands(boot: Boot, owner: str, line_of: Callable[[int], str]) -> list[Finding]:
    """Check commands that another program runs for the user data, such as cfn-init."""
    return _run_checks(COMMAND_CHECKS, parse_user_data(b""), boot, owner, line_of)[0]


def _run_checks(
    checks: tuple[UserDataCheck, ...],
    user_data: UserData,
    boot: Boot,
    owner: str,
    place: Callable[[int], str],
) -> tuple[list[Finding], list[Kind]]:
    """Return the findings, and the kinds of checks without a finding."""
    findings: list[Finding] = []
    right: list[Kind] = []
    for kind, run, is_for_batch in checks:
        if is_for_batch and owner != BATCH:
            continue
        observations = list(run(user_data, boot))
        findings += [
            Finding(kind, cause, evidence, remedy, place(line))
            for line, cause, evidence, remedy in observations
        ]
        if not observations:
            right.append(kind)
    return findings, right
