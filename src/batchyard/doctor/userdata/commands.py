"""Checks of the commands that user data runs at boot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from batchyard.doctor.finding import Kind, Severity
from batchyard.doctor.shell.trace import CommandRun
from batchyard.doctor.userdata import services
from batchyard.doctor.userdata.boot import Boot
from batchyard.doctor.userdata.observation import Observation, Observations, check_user_data
from batchyard.doctor.userdata.parts import UserData

METADATA_HOSTS = ("169.254.169.254", "[fd00:ec2::254]", "instance-data")

BLOCKING_SERVICE_START = Kind(
    "BY101", Severity.ERROR, 98, "nothing starts or restarts ecs or docker and waits for it"
)

_NEVER_JOINS = "waits for the user data to end: the node never joins"
_AL2_COMMANDS = {
    "amazon-linux-extras": "dnf install PACKAGE",
    "yum-config-manager": "dnf config-manager",
    "ntpd": "chronyd, which runs already",
    "ec2-metadata-v1": "curl with a token",
}
_ORDERS = {
    "ecs": "ecs.service is ordered After=cloud-final.service, which runs this script",
    "docker": "ecs.service is PartOf=docker.service and After=cloud-final.service, "
    "which runs this script",
}
#: a loop whose condition has only these programs runs until its body ends it
_CONSTANT_CONDITIONS = ("true", ":", "[", "[[", "test", "sleep")
_SHUTDOWN_PROGRAMS = ("reboot", "shutdown", "poweroff", "halt")


def describe(command: CommandRun) -> str:
    """Return a command, and how it is reached, for the evidence of a finding."""
    text = " ".join(command.words)
    text = text if len(text) <= 90 else text[:87] + "..."
    path = f", reached through {' > '.join(command.via[-3:])}" if command.via else ""
    return f"runs `{text}`{path}"


def _is_in_background(command: CommandRun) -> bool:
    return command.is_detached or command.is_background


def _distinct(commands: Iterable[CommandRun]) -> Iterator[CommandRun]:
    """Yield the commands once for each line: first the ones that the script waits for."""
    seen = set()
    for command in sorted(commands, key=_is_in_background):
        if (command.line, command.words) not in seen:
            seen.add((command.line, command.words))
            yield command


@check_user_data(BLOCKING_SERVICE_START)
def check_blocking_starts(data: UserData, boot: Boot) -> Observations:
    for command in _distinct(boot.commands):
        if _is_in_background(command):
            continue
        services_started = services.find_awaited_starts(command.words)
        if services_started:
            yield _blocking_start(command, services_started[0])
        elif command.waits_for is not None:
            yield _blocking_unit(command, *command.waits_for)


def _blocking_start(command: CommandRun, service: str) -> Observation:
    order = _ORDERS.get(service, f"{service} holds ecs.service, which waits for this script")
    is_watched = service in services.WATCHED
    return (
        command.line,
        f"{service} is started and waited for, while {service} {_NEVER_JOINS}",
        (describe(command), order),
        (
            f"delete the line: {service} starts by itself once the user data has ended, or",
            f"systemctl restart --no-block {service}" if is_watched else "delete the line",
        ),
    )


def _blocking_unit(command: CommandRun, unit: str, late_unit: str) -> Observation:
    return (
        command.line,
        f"{unit} is started and waited for, while it waits for {late_unit}, which {_NEVER_JOINS}",
        (describe(command), f"{unit} is ordered After={late_unit}"),
        (
            f"systemctl start --no-block {unit}, "
            "or enable it without --now: it starts by itself at boot",
        ),
    )


@check_user_data(Kind("BY110", Severity.ERROR, 94, "nothing waits for the ECS agent"))
def check_waits_for_agent(data: UserData, boot: Boot) -> Observations:
    for loop in boot.loops:
        is_constant = all(command.program in _CONSTANT_CONDITIONS for command in loop.condition)
        commands = (*loop.condition, *(loop.body if is_constant else ()))
        questions = [command for command in commands if services.asks_agent(command.words)]
        if questions and not loop.is_counted and not loop.is_background:
            yield (
                loop.line,
                f"a loop waits for the ECS agent, which {_NEVER_JOINS}",
                (describe(questions[0]),),
                ("delete the loop, or run it in the background: `( ... ) &`",),
            )
    yield from _waits_for_cloud_init(boot)


def _waits_for_cloud_init(boot: Boot) -> Observations:
    waits = {
        command.line: command
        for command in boot.commands
        if services.waits_for_boot(command.words) and not command.is_bounded
    }
    # The first wait on a line is the one that is shown.
    waiting = {line: command for line, command in waits.items() if not _is_in_background(command)}
    for loop in boot.loops:
        questions = [command for command in loop.condition if services.asks_boot(command.words)]
        if questions and not loop.is_counted and not loop.is_background:
            waiting.setdefault(loop.line, questions[0])
    for line, command in sorted(waiting.items()):
        yield (
            line,
            f"the user data waits for cloud-init to end, which {_NEVER_JOINS}",
            (describe(command),),
            ("delete the line, or run it in the background: `( ... ) &`",),
        )


@check_user_data(Kind("BY106", Severity.WARNING, 60, "the metadata service is asked with a token"))
def check_metadata_token(data: UserData, boot: Boot) -> Observations:
    lines = set()
    for command in boot.commands:
        if command.program not in ("curl", "wget", "http", "GET") or command.line in lines:
            continue
        text = " ".join(_without_noproxy(command.words))
        if any(host in text for host in METADATA_HOSTS) and not _has_token(text):
            lines.add(command.line)
            yield (
                command.line,
                "the metadata service is asked without a token, "
                "which Amazon Linux 2023 refuses (401)",
                (describe(command),),
                (
                    "TOKEN=$(curl -sX PUT http://169.254.169.254/latest/api/token "
                    "-H 'X-aws-ec2-metadata-token-ttl-seconds: 300')",
                    'curl -s -H "X-aws-ec2-metadata-token: $TOKEN" '
                    "http://169.254.169.254/latest/meta-data/...",
                ),
            )


def _has_token(text: str) -> bool:
    """Return whether a request has a token, or a header in a variable, which may be the token."""
    if "metadata-token" in text.lower() or "api/token" in text:
        return True
    return re.search(r"(?:-H|--header)[ =]?\$", text) is not None


def _without_noproxy(words: tuple[str, ...]) -> list[str]:
    """Remove the hosts of `curl --noproxy host`, which are not asked."""
    return [
        word
        for previous, word in zip(("", *words), words, strict=False)
        if previous != "--noproxy" and not word.startswith("--noproxy=")
    ]


@check_user_data(
    Kind("BY111", Severity.WARNING, 50, "the node is not rebooted or shut down at boot")
)
def check_reboots(data: UserData, boot: Boot) -> Observations:
    for command in _distinct(boot.commands):
        if _shuts_down(command):
            yield (
                command.line,
                "the node is rebooted or shut down at boot: AWS Batch may replace it as unhealthy, "
                "and the time until then is paid for",
                (describe(command),),
                ("do what needs the reboot in the image instead",),
            )


def _shuts_down(command: CommandRun) -> bool:
    words = set(command.words)
    if command.program == "systemctl":
        return not {"reboot", "poweroff", "halt"}.isdisjoint(words)
    # `shutdown -c` cancels, `-k` only warns, `--show` prints.
    harmless = {"--help", "--version"}
    if command.program == "shutdown":
        harmless |= {"-c", "-k", "--show"}
    return command.program in _SHUTDOWN_PROGRAMS and harmless.isdisjoint(words)


@check_user_data(Kind("BY112", Severity.ERROR, 75, "ecs and docker are not stopped or disabled"))
def check_stops(data: UserData, boot: Boot) -> Observations:
    for command in _distinct(boot.commands):
        for service in services.find_stops(command.words):
            if not _is_started_later(service, command.step, boot):
                yield (
                    command.line,
                    f"{service} is stopped, disabled or masked, and nothing starts it again: "
                    "the node never joins",
                    (describe(command),),
                    (f"delete the line, or end with: systemctl start --no-block {service}",),
                )


def _is_started_later(service: str, step: int, boot: Boot) -> bool:
    # ecs.service wants docker.service: a start of the one starts the other.
    sufficient = {service, "ecs", *services.TARGETS}
    return any(
        command.step > step and sufficient.intersection(services.find_starts(command.words))
        for command in boot.commands
    )


@check_user_data(Kind("BY115", Severity.WARNING, 40, "the commands exist on Amazon Linux 2023"))
def check_amazon_linux_2_commands(data: UserData, boot: Boot) -> Observations:
    lines = set()
    for command in boot.commands:
        replacement = _AL2_COMMANDS.get(command.program)
        if replacement and command.line not in lines:
            lines.add(command.line)
            yield (
                command.line,
                f"{command.program} does not exist on Amazon Linux 2023",
                (describe(command),),
                (f"use {replacement}",),
            )
    for write in boot.writes:
        if write.path == "/etc/sysconfig/docker" and write.line not in lines:
            lines.add(write.line)
            yield (
                write.line,
                "Docker on Amazon Linux 2023 does not take its options "
                "from /etc/sysconfig/docker as before",
                (f"{write.path} is written",),
                ("write them to /etc/docker/daemon.json",),
            )
