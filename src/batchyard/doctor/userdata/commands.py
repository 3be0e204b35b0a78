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
from batchyard.doctor.userdata.waiting import Target, find_waits

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
#: What the packaged unit of the agent says is certain. AWS does not publish the order of Docker's
#: unit on its images: https://github.com/aws/amazon-ecs-agent/issues/1707 has a maintainer's word.
_ECS_ORDER = "certain: ecs.service is ordered After=cloud-final.service, which runs this script"
_DOCKER_ORDER = "on AWS's word: docker.service, too, starts only after cloud-final on its images"
_ORDERS = {
    "ecs": (_ECS_ORDER,),
    "docker": (
        "certain: ecs.service is PartOf=docker.service and After=cloud-final.service, "
        "which runs this script",
        _DOCKER_ORDER,
    ),
}
_TARGET_NAMES = {
    Target.AGENT: "the ECS agent",
    Target.DOCKER: "Docker",
    Target.BOOT: "cloud-init to end",
}
_TARGET_EVIDENCE = {Target.DOCKER: (_DOCKER_ORDER,)}
#: whether the wait is a loop -> remedy
_WAIT_REMEDIES = {
    True: (
        "delete the loop, or run it in the background: `( ... ) &`",
        "or end it after a time: timeout 60 bash -c 'until ...; do sleep 1; done'",
    ),
    False: ("delete the line, or run it in the background: `( ... ) &`",),
}
#: subcommands of docker that need the daemon for long
_DOCKER_USES = frozenset({"pull", "run", "build", "load", "compose"})
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
    order = _ORDERS.get(service, (f"{service} holds ecs.service, which waits for this script",))
    is_watched = service in services.WATCHED
    return (
        command.line,
        f"{service} is started and waited for, while {service} {_NEVER_JOINS}",
        (describe(command), *order),
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


@check_user_data(
    Kind("BY110", Severity.ERROR, 94, "nothing waits for the ECS agent, Docker or the boot")
)
def check_waits(data: UserData, boot: Boot) -> Observations:
    for wait in find_waits(boot.commands, boot.loops):
        subject = "a loop" if wait.is_loop else "the user data"
        yield (
            wait.line,
            f"{subject} waits for {_TARGET_NAMES[wait.target]}, which {_NEVER_JOINS}",
            (describe(wait.command), *_TARGET_EVIDENCE.get(wait.target, ())),
            _WAIT_REMEDIES[wait.is_loop],
        )


@check_user_data(
    Kind("BY118", Severity.WARNING, 45, "no container or image is used before Docker runs")
)
def check_docker_use(data: UserData, boot: Boot) -> Observations:
    waited_lines = {wait.command.line for wait in find_waits(boot.commands, boot.loops)}
    has_own_docker = any(command.program == "dockerd" for command in boot.commands)
    for command in _distinct(boot.commands):
        is_use = command.program == "docker" and _DOCKER_USES.intersection(command.words[1:3])
        if not is_use or _is_in_background(command) or has_own_docker:
            continue
        if command.line not in waited_lines:
            yield (
                command.line,
                "Docker is used while the user data runs, before which it may not start: "
                "the command fails, or the time that it takes delays the node",
                (describe(command), _DOCKER_ORDER),
                (
                    "put the image into the AMI, or run the command after the boot: "
                    "a unit with After=docker.service, started with --no-block",
                ),
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
                (f"use {replacement.replace('PACKAGE', _packages_of(command))}",),
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


def _packages_of(command: CommandRun) -> str:
    """Return the packages of `amazon-linux-extras install -y docker=latest epel`."""
    words = [word for word in command.words[2:] if not word.startswith("-")]
    return " ".join(word.partition("=")[0] for word in words) or "PACKAGE"
