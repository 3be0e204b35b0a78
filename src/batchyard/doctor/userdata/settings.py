"""Checks of the settings files that user data writes: ecs.config and Docker's daemon.json. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from batchyard.doctor.finding import Kind, Severity
from batchyard.doctor.shell.trace import CommandRun
from batchyard.doctor.userdata.boot import Boot
from batchyard.doctor.userdata.commands import describe
from batchyard.doctor.userdata.observation import Observations, check_user_data
from batchyard.doctor.userdata.parts import UserData

ECS_CONFIG = "/etc/ecs/ecs.config"

_RESERVED = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?(ECS_CLUSTER|ECS_INSTANCE_ATTRIBUTES)=")
#: programs that edit files
_EDITORS = ("sed", "perl", "crudini")
_SET_BY_SED = re.compile(r"(ECS_CLUSTER|ECS_INSTANCE_ATTRIBUTES)=")
_GPU_OFF = re.compile(r"(?m)^[ \t]*ECS_ENABLE_GPU_SUPPORT=[\"']?(?:false|0|no)\b", re.IGNORECASE)
_LOG_DRIVERS = re.compile(r"(?m)^[ \t]*ECS_AVAILABLE_LOGGING_DRIVERS=(.*)$")


@check_user_data(
    Kind("BY102", Severity.ERROR, 90, "ECS_CLUSTER is left to AWS Batch"), is_for_batch=True
)
def check_reserved_settings(data: UserData, boot: Boot) -> Observations:
    for line, name, evidence in _find_reserved_settings(boot):
        yield (
            line,
            f"{name} is set on a node of AWS Batch, which sets it itself: "
            "the node joins the wrong cluster, or none",
            (evidence,),
            (
                "delete the line, or for a cluster of your own or an UNMANAGED environment: "
                "add --for ecs",
            ),
        )


def _find_reserved_settings(boot: Boot) -> Iterator[tuple[int, str, str]]:
    """Yield line, setting and evidence."""
    for write in boot.writes:
        match = _RESERVED.search(write.content or "")
        if match and ("ecs.config" in write.path or "${" in write.path):
            yield write.line, match[1], f"{match[1]}= is written to {write.path}"
    for command in boot.commands:
        text = " ".join(command.words)
        match = _SET_BY_SED.search(text) if command.program in _EDITORS else None
        if match and "ecs.config" in text:
            yield command.line, match[1], describe(command)


@check_user_data(Kind("BY105", Severity.ERROR, 88, "ecs.config is appended to"), is_for_batch=True)
def check_overwritten_config(data: UserData, boot: Boot) -> Observations:
    lines = set()
    for write in boot.writes:
        if write.path == ECS_CONFIG and not write.is_append and write.line not in lines:
            lines.add(write.line)
            yield (
                write.line,
                "ecs.config is overwritten: settings that AWS Batch wrote there, "
                "such as the cluster's name, may be lost",
                (f"{ECS_CONFIG} is written anew",),
                (f"append: >> {ECS_CONFIG}, or tee -a, or `append: true` in cloud-config",),
            )
    for command in boot.commands:
        if _deletes_config(command):
            yield command.line, "ecs.config is deleted", (describe(command),), ("delete the line",)


def _deletes_config(command: CommandRun) -> bool:
    return command.program in ("rm", "truncate", "unlink", "shred") and any(
        _is_config(word, command) for word in command.words[1:]
    )


def _is_config(word: str, command: CommandRun) -> bool:
    """Return whether a word is ecs.config, a pattern that matches it, or its folder."""
    if not word or word.startswith(("-", "$")):
        return False
    path = posixpath.normpath(posixpath.join(command.folder, word))
    if path in ("/etc/ecs", "/etc"):
        return any(re.fullmatch(r"-\w*[rR]\w*|--recursive", word) for word in command.words)
    is_same_depth = path.count("/") == ECS_CONFIG.count("/")
    return path == ECS_CONFIG or ("*" in path and is_same_depth and fnmatchcase(ECS_CONFIG, path))


@check_user_data(Kind("BY114", Severity.ERROR, 72, "GPU support is not switched off"))
def check_gpu_support(data: UserData, boot: Boot) -> Observations:
    for write in boot.writes:
        if "ecs.config" in write.path and _GPU_OFF.search(write.content or ""):
            yield (
                write.line,
                "GPU support is switched off: /etc/ecs/ecs.config overrides the image's own file",
                (f"ECS_ENABLE_GPU_SUPPORT=false in {write.path}",),
                ("delete the line: GPU images switch it on",),
            )


@check_user_data(Kind("BY116", Severity.ERROR, 60, "the awslogs driver is kept"))
def check_log_drivers(data: UserData, boot: Boot) -> Observations:
    for write in boot.writes:
        match = _LOG_DRIVERS.search(write.content or "")
        if not match or "ecs.config" not in write.path:
            continue
        if "awslogs" not in match[1] and "${" not in match[1]:
            yield (
                write.line,
                "the awslogs driver is not available: "
                "jobs that log to CloudWatch are never placed on this node",
                (f"ECS_AVAILABLE_LOGGING_DRIVERS={match[1][:80]}",),
                ("add awslogs to the list, or leave the line out",),
            )


@check_user_data(Kind("BY117", Severity.ERROR, 75, "daemon.json is JSON"))
def check_daemon_json(data: UserData, boot: Boot) -> Observations:
    for path, (line, text) in _final_daemon_json(boot).items():
        # A text with an unknown variable cannot be judged.
        if not text.strip() or "$" in text:
            continue
        try:
            json.loads(text)
        except (ValueError, RecursionError) as exc:
            yield (
                line,
                "daemon.json is not JSON: Docker does not start with it",
                (str(exc),),
                (f"python3 -m json.tool {path}",),
            )


def _final_daemon_json(boot: Boot) -> dict[str, tuple[int, str]]:
    """Return path -> line of the last command that writes it, and the text that it leaves."""
    texts: dict[str, tuple[int, str]] = {}
    for write in boot.writes:
        if write.path.endswith("docker/daemon.json"):
            old_text = texts.get(write.path, (0, ""))[1] if write.is_append else ""
            texts[write.path] = (write.line, old_text + (write.content or ""))
    return texts
