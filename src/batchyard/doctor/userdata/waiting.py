"""What user data waits for without a bound: Docker, the ECS agent, or the end of the boot. Pure.

User data runs in cloud-final, and all three come after it: such a wait never ends. Checks of user
data and of a host that is stuck (``host.deadlock``) use this one model. It needs Python only, so
that it also runs on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from batchyard.doctor.shell.trace import CommandRun, Loop
from batchyard.doctor.shell.wrappers import program_name
from batchyard.doctor.userdata.services import match_watched

_TESTS = ("[", "[[", "test")
#: a loop whose condition has only these programs runs until its body ends it
_CONSTANT_CONDITIONS = ("true", ":", "sleep", "((", *_TESTS)
#: subcommands and options that the docker client answers by itself
_DOCKER_ALONE = frozenset(
    {"--version", "-v", "--help", "-h", "help", "context", "completion", "config"}
)
_STATE_VERBS = frozenset({"is-active", "status", "is-failed"})


class Target(Enum):
    """What is waited for. The value is the systemd unit that brings it."""

    AGENT = "ecs.service"
    DOCKER = "docker.service"
    BOOT = "cloud-final.service"


@dataclass(frozen=True, slots=True)
class Wait:
    target: Target
    #: the line of the loop, or of the command
    line: int
    #: the command that asks, or that waits by itself
    command: CommandRun
    is_loop: bool


def find_waits(commands: Sequence[CommandRun], loops: Sequence[Loop]) -> list[Wait]:
    """Return the waits in the foreground that nothing but their target ends, one for each line."""
    waits = {wait.line: wait for wait in _find_waiting_commands(commands)}
    has_own_docker = any(command.program == "dockerd" for command in commands)
    for loop in loops:
        wait = _find_wait_of_loop(loop)
        if wait is not None and not (has_own_docker and wait.target is Target.DOCKER):
            waits.setdefault(wait.line, wait)
    return sorted(waits.values(), key=lambda wait: wait.line)


def _find_waiting_commands(commands: Sequence[CommandRun]) -> Iterator[Wait]:
    for command in reversed(commands):
        is_in_background = command.is_background or command.is_detached
        if waits_for_boot(command.words) and not is_in_background and not command.is_bounded:
            yield Wait(Target.BOOT, command.line, command, is_loop=False)


def _find_wait_of_loop(loop: Loop) -> Wait | None:
    if loop.is_bounded or loop.is_background or loop.awaits_failure:
        return None
    is_constant = all(command.program in _CONSTANT_CONDITIONS for command in loop.condition)
    commands = (*loop.condition, *(loop.body if is_constant else ()))
    for target, asks in _QUESTIONS.items():
        for command in commands:
            if asks(command.words):
                return Wait(target, loop.line, command, is_loop=True)
    return None


# -- questions ------------------------------------------------------------------------------------


def _any_word_has(words: tuple[str, ...], *texts: str) -> bool:
    return any(text in word for word in words for text in texts)


def _program_of(words: tuple[str, ...]) -> str:
    return program_name(words[0]) if words else ""


def _asks_state_of(words: tuple[str, ...], service: str) -> bool:
    """Return whether the command asks systemd or SysV init for the state of a service."""
    if _program_of(words) == "service":
        return words[1:3] == (service, "status")
    if _program_of(words) != "systemctl":
        return False
    has_verb = not _STATE_VERBS.isdisjoint(words) or _shows_state(words)
    return has_verb and any(match_watched(word) == (service,) for word in words)


def _shows_state(words: tuple[str, ...]) -> bool:
    return "show" in words and _any_word_has(words, "ActiveState", "SubState")


def asks_agent(words: tuple[str, ...]) -> bool:
    """Return whether the command asks if the ECS agent runs."""
    program = _program_of(words)
    if program in ("curl", "wget", "nc", "ncat", "http"):
        return _any_word_has(words, "51678")
    if program in ("docker", "pgrep", "pidof", "grep"):
        return _any_word_has(words, "ecs-agent", "amazon-ecs")
    if program in _TESTS:
        return _any_word_has(words, "/var/log/ecs/ecs-agent", "/var/lib/ecs/data")
    return _asks_state_of(words, "ecs")


def asks_docker(words: tuple[str, ...]) -> bool:
    """Return whether the command fails as long as Docker does not run."""
    program = _program_of(words)
    if program == "docker":
        return len(words) > 1 and words[1] not in _DOCKER_ALONE
    if program in ("pgrep", "pidof"):
        return "dockerd" in words or "docker" in words
    if program == "curl":
        return _any_word_has(words, "docker.sock")
    return _asks_state_of(words, "docker")


def asks_boot(words: tuple[str, ...]) -> bool:
    """Return whether the command asks if cloud-init has ended."""
    program = _program_of(words)
    if program in (*_TESTS, "ls", "stat"):
        return any(
            word.startswith("/var/lib/cloud/") and word.endswith("/boot-finished") for word in words
        )
    if program == "systemctl":
        units = ("cloud-final", "cloud-init.target", "multi-user.target", "is-system-running")
        has_verb = "is-active" in words or "is-system-running" in words
        return has_verb and any(word.startswith(units) for word in words)
    return program == "cloud-init" and words[1:2] == ("status",)


def waits_for_boot(words: tuple[str, ...]) -> bool:
    """Return whether the command ends only when cloud-init, or the boot, has ended."""
    program = _program_of(words)
    if program == "cloud-init":
        return words[1:2] == ("status",) and bool({"--wait", "-w", "-wl", "-lw"} & set(words))
    return program == "systemctl" and "is-system-running" in words and "--wait" in words


#: The agent is first: `docker ps | grep ecs-agent` asks for it, not for Docker.
_QUESTIONS: dict[Target, Callable[[tuple[str, ...]], bool]] = {
    Target.AGENT: asks_agent,
    Target.DOCKER: asks_docker,
    Target.BOOT: asks_boot,
}
