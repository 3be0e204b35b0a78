"""Checks of what the user data runs and writes. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from batchyard.doctor.shell.trace import Ran
from batchyard.doctor.userdata import services
from batchyard.doctor.userdata.boot import Boot
from batchyard.doctor.userdata.parts import UserData

Found = Iterator[tuple[int, str, tuple[str, ...], tuple[str, ...]]]

ECS_CONFIG = "/etc/ecs/ecs.config"
METADATA = ("169.254.169.254", "[fd00:ec2::254]", "instance-data")

_RESERVED = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?(ECS_CLUSTER|ECS_INSTANCE_ATTRIBUTES)=")
_SET_BY_SED = re.compile(r"(ECS_CLUSTER|ECS_INSTANCE_ATTRIBUTES)=")
_GPU_OFF = re.compile(r"(?m)^[ \t]*ECS_ENABLE_GPU_SUPPORT=[\"']?(?:false|0|no)\b", re.IGNORECASE)
_DRIVERS = re.compile(
    r"(?:kmod-|xserver-xorg-video-|xorg-x11-drv-)?nvidia-(?:driver|open|kmod|dkms|headless|\d{3}).*"
    r"|kmod-nvidia.*|(?:akmod|dkms)-nvidia.*|cuda|cuda-(?:drivers|toolkit|runtime|\d).*|nvidia-release"
)
_DRIVER_FILE = re.compile(r"(?:.*/)?NVIDIA-Linux-.*\.run|(?:.*/)?cuda_\d.*\.run", re.IGNORECASE)
_LOG_DRIVERS = re.compile(r"(?m)^[ \t]*ECS_AVAILABLE_LOGGING_DRIVERS=(.*)$")
_AL2_COMMANDS = {
    "amazon-linux-extras": "dnf install PACKAGE",
    "yum-config-manager": "dnf config-manager",
    "ntpd": "chronyd, which runs already",
    "ec2-metadata-v1": "curl with a token",
}
_ORDERS = {
    "ecs": "ecs.service is ordered After=cloud-final.service, which runs this script",
    "docker": "ecs.service is PartOf=docker.service and After=cloud-final.service, which runs this script",
}
_NOT_INSTALLING = frozenset(
    "remove erase purge autoremove autopurge list info search show provides repoquery download clean makecache "
    "check-update history hold versionlock disable reset rm se if".split()
)
_INSTALLERS = frozenset({"yum", "dnf", "apt", "apt-get", "zypper", "microdnf", "rpm", "dpkg"})


def shown(ran: Ran) -> str:
    text = " ".join(ran.words)
    text = text if len(text) <= 90 else text[:87] + "..."
    return f"runs `{text}`" + (f", reached through {' > '.join(ran.via[-3:])}" if ran.via else "")


def _once(commands: list[Ran]) -> Iterator[Ran]:
    """A line that is reached in several ways is one finding: the first way that waits for it."""
    seen = set()
    for ran in sorted(commands, key=lambda ran: ran.is_detached or ran.is_background):
        if (ran.line, ran.words) not in seen:
            seen.add((ran.line, ran.words))
            yield ran


def blocking(data: UserData, boot: Boot) -> Found:
    for ran in _once(boot.ran):
        names = services.started(ran.words)
        if ran.is_detached or ran.is_background:
            continue
        if ran.waits_for is not None and not names:
            yield _waits_in_line(ran, *ran.waits_for)
        if not names:
            continue
        unit = names[0]
        yield (
            ran.line,
            f"{unit} is started and waited for, while {unit} waits for the user data to end: the node never joins",
            (
                shown(ran),
                _ORDERS.get(unit, f"{unit} holds ecs.service, which waits for this script"),
            ),
            (
                f"delete the line: {unit} starts by itself once the user data has ended, or",
                f"systemctl restart --no-block {unit}"
                if unit in services.WATCHED
                else "take it away",
            ),
        )


def _waits_in_line(
    ran: Ran, unit: str, late: str
) -> tuple[int, str, tuple[str, ...], tuple[str, ...]]:
    return (
        ran.line,
        f"{unit} is started and waited for, while it waits for {late}, which waits for the user data to end: "
        "the node never joins",
        (shown(ran), f"{unit} is ordered After={late}"),
        (
            f"systemctl start --no-block {unit}, or enable it without --now: it starts by itself at boot",
        ),
    )


def waits_for_agent(data: UserData, boot: Boot) -> Found:
    for loop in boot.loops:
        is_forever = all(
            ran.program in ("true", ":", "[", "[[", "test", "sleep") for ran in loop.asks
        )
        asking = [
            ran
            for ran in (*loop.asks, *(loop.does if is_forever else ()))
            if services.asks_agent(ran.words)
        ]
        if asking and not loop.is_counted and not loop.is_background:
            yield (
                loop.line,
                "a loop waits for the ECS agent, which waits for the user data to end: the node never joins",
                (shown(asking[0]),),
                ("put `(` before the loop and `) &` behind it, or take it away",),
            )
    yield from waits_for_itself(boot)


def waits_for_itself(boot: Boot) -> Found:
    """For the end of cloud-init, which runs the user data."""
    asked = {
        ran.line: ran
        for ran in boot.ran
        if services.waits_for_boot(ran.words) and not ran.is_bounded
    }
    waiting = [
        (line, ran) for line, ran in asked.items() if not ran.is_background and not ran.is_detached
    ]
    for loop in boot.loops:
        asking = [ran for ran in loop.asks if services.asks_boot(ran.words)]
        if asking and not loop.is_counted and not loop.is_background:
            waiting.append((loop.line, asking[0]))
    for line, ran in sorted(dict(reversed(waiting)).items()):
        yield (
            line,
            "the user data waits for cloud-init to end, which waits for the user data to end: the node never joins",
            (shown(ran),),
            ("take it away, or put `(` before it and `) &` behind it",),
        )


def cluster(data: UserData, boot: Boot) -> Found:
    for line, name, how in _settings(boot):
        yield (
            line,
            f"{name} is set on a node of AWS Batch, which sets it itself: the node joins the wrong cluster, or none",
            (how,),
            (
                "delete the line, or for a cluster of your own or an UNMANAGED environment: add --for ecs",
            ),
        )


def _settings(boot: Boot) -> Iterator[tuple[int, str, str]]:
    for wrote in boot.wrote:
        match = _RESERVED.search(wrote.content or "")
        if match and ("ecs.config" in wrote.path or "${" in wrote.path):
            yield wrote.line, match[1], f"{match[1]}= is written to {wrote.path}"
    for ran in boot.ran:
        match = (
            _SET_BY_SED.search(" ".join(ran.words))
            if ran.program in ("sed", "perl", "crudini")
            else None
        )
        if match and any("ecs.config" in word for word in ran.words):
            yield ran.line, match[1], shown(ran)


def config_overwritten(data: UserData, boot: Boot) -> Found:
    lines = set()
    for wrote in boot.wrote:
        if wrote.path == ECS_CONFIG and not wrote.is_append and wrote.line not in lines:
            lines.add(wrote.line)
            yield (
                wrote.line,
                "ecs.config is overwritten: what AWS Batch wrote there, the cluster's name above all, may be lost",
                (f"{ECS_CONFIG} is written anew",),
                (f"append: >> {ECS_CONFIG}, or tee -a, or `append: true` in cloud-config",),
            )
    for ran in boot.ran:
        if ran.program in ("rm", "truncate", "unlink", "shred") and any(
            _is_config(word, ran) for word in ran.words[1:]
        ):
            yield ran.line, "ecs.config is deleted", (shown(ran),), ("delete the line",)


def _is_config(word: str, ran: Ran) -> bool:
    """The file itself, a pattern that fits it, or the folder that it is in."""
    path = (
        posixpath.normpath(posixpath.join(ran.folder, word))
        if word and not word.startswith(("-", "$"))
        else ""
    )
    is_folder = path in ("/etc/ecs", "/etc") and any(
        re.fullmatch(r"-\w*[rR]\w*|--recursive", w) for w in ran.words
    )
    is_pattern = (
        "*" in path and path.count("/") == ECS_CONFIG.count("/") and fnmatchcase(ECS_CONFIG, path)
    )
    return path == ECS_CONFIG or is_folder or is_pattern


def without_token(data: UserData, boot: Boot) -> Found:
    seen = set()
    for ran in boot.ran:
        if ran.program not in ("curl", "wget", "http", "GET") or ran.line in seen:
            continue
        text = " ".join(_without_exceptions(ran.words))
        is_about = any(host in text for host in METADATA)
        # A header in a variable may well be the token.
        has_header = (
            "metadata-token" in text.lower()
            or "api/token" in text
            or re.search(r"(?:-H|--header)[ =]?\$", text)
        )
        if is_about and not has_header:
            seen.add(ran.line)
            yield (
                ran.line,
                "the metadata service is asked without a token, which Amazon Linux 2023 refuses (401)",
                (shown(ran),),
                (
                    "TOKEN=$(curl -sX PUT http://169.254.169.254/latest/api/token "
                    "-H 'X-aws-ec2-metadata-token-ttl-seconds: 300')",
                    'curl -s -H "X-aws-ec2-metadata-token: $TOKEN" http://169.254.169.254/latest/meta-data/...',
                ),
            )


def _without_exceptions(words: tuple[str, ...]) -> list[str]:
    """`curl --noproxy host` only names it."""
    return [
        word
        for before, word in zip(("", *words), words, strict=False)
        if before != "--noproxy" and not word.startswith("--noproxy=")
    ]


def drivers(data: UserData, boot: Boot) -> Found:
    named = [(package, line, f"cloud-config installs {package}") for package, line in boot.packages]
    for ran in boot.ran:
        if ran.program == "ubuntu-drivers" and {"install", "autoinstall"} & set(ran.words):
            named.append(("nvidia-driver", ran.line, shown(ran)))
        elif ran.program in _INSTALLERS and _installs(ran):
            named += [(word, ran.line, shown(ran)) for word in ran.words[1:]]
        elif ran.program == "dkms" and any("nvidia" in word for word in ran.words):
            named.append(("nvidia-dkms", ran.line, shown(ran)))
        elif _DRIVER_FILE.fullmatch(ran.words[0]):
            named.append(("nvidia-driver", ran.line, shown(ran)))
    lines = set()
    for name, line, how in named:
        if _is_driver(name.rsplit("/", 1)[-1].removesuffix(".rpm")) and line not in lines:
            lines.add(line)
            yield (
                line,
                "a GPU driver or CUDA is installed at boot: nodes join minutes late, each with another version",
                (how,),
                (
                    "use the image type ECS_AL2023_NVIDIA, which has the driver, and put CUDA into the container image",
                ),
            )


def _installs(ran: Ran) -> bool:
    """And does not remove, list or ask."""
    if ran.program in ("rpm", "dpkg"):
        return any(
            re.fullmatch(r"-[a-zA-Z]*[iUF][a-zA-Z]*|--(?:install|upgrade|unpack)", w)
            for w in ran.words
        ) and not any(re.match(r"-q|--query|--info|-[a-z]*e", w) for w in ran.words)
    verbs = [word for word in ran.words[1:] if not word.startswith("-")]
    return not set(verbs[:1]) & _NOT_INSTALLING and not (
        verbs[:1] == ["module"] and set(verbs[1:2]) & _NOT_INSTALLING
    )


def _is_driver(name: str) -> bool:
    """By its name, or by a pattern that would fit one."""
    is_pattern = "*" in name and any(
        fnmatchcase(known, name) for known in ("nvidia-driver", "cuda-drivers")
    )
    return bool(_DRIVERS.fullmatch(name)) or (is_pattern and name.strip("*?") != "")


def reboots(data: UserData, boot: Boot) -> Found:
    for ran in _once(boot.ran):
        is_systemctl = ran.program == "systemctl" and {"reboot", "poweroff", "halt"} & set(
            ran.words
        )
        # Called off, announced only, or asked what it can do.
        only_says = {"--help", "--version"} | (
            {"-c", "-k", "--show"} if ran.program == "shutdown" else set()
        )
        is_plain = ran.program in (
            "reboot",
            "shutdown",
            "poweroff",
            "halt",
        ) and not only_says & set(ran.words)
        if is_plain or is_systemctl:
            yield (
                ran.line,
                "the node is rebooted or shut down at boot: AWS Batch may take it for dead, or pay for it in vain",
                (shown(ran),),
                ("do what needs the reboot in the image instead",),
            )


def stops(data: UserData, boot: Boot) -> Found:
    for ran in _once(boot.ran):
        for name in services.stopped(ran.words):
            # ecs.service wants docker.service: who starts the one starts the other.
            enough = {name, "ecs", *services.TARGETS}
            later = [
                o for o in boot.ran if o.step > ran.step and enough & set(services.begun(o.words))
            ]
            if not later:
                yield (
                    ran.line,
                    f"{name} is stopped, disabled or masked, and nothing starts it again: the node never joins",
                    (shown(ran),),
                    (f"delete the line, or end with: systemctl start --no-block {name}",),
                )


def gpu_support_off(data: UserData, boot: Boot) -> Found:
    for wrote in boot.wrote:
        if "ecs.config" in wrote.path and _GPU_OFF.search(wrote.content or ""):
            yield (
                wrote.line,
                "GPU support is switched off, and /etc/ecs/ecs.config wins over the image's own file",
                (f"ECS_ENABLE_GPU_SUPPORT=false in {wrote.path}",),
                ("delete the line: GPU images switch it on",),
            )


def old_habits(data: UserData, boot: Boot) -> Found:
    lines = set()
    for ran in boot.ran:
        instead = _AL2_COMMANDS.get(ran.program)
        if instead and ran.line not in lines:
            lines.add(ran.line)
            yield (
                ran.line,
                f"{ran.program} does not exist on Amazon Linux 2023",
                (shown(ran),),
                (f"use {instead}",),
            )
    for wrote in boot.wrote:
        if wrote.path == "/etc/sysconfig/docker" and wrote.line not in lines:
            lines.add(wrote.line)
            yield (
                wrote.line,
                "Docker on Amazon Linux 2023 does not take its options from /etc/sysconfig/docker as before",
                (f"{wrote.path} is written",),
                ("write them to /etc/docker/daemon.json",),
            )


def log_drivers(data: UserData, boot: Boot) -> Found:
    for wrote in boot.wrote:
        match = _LOG_DRIVERS.search(wrote.content or "")
        if (
            match
            and "awslogs" not in match[1]
            and "${" not in match[1]
            and "ecs.config" in wrote.path
        ):
            yield (
                wrote.line,
                "the awslogs driver is taken away: jobs that log to CloudWatch are never placed on this node",
                (f"ECS_AVAILABLE_LOGGING_DRIVERS={match[1][:80]}",),
                ("add awslogs to the list, or leave the line out",),
            )


def daemon_json(data: UserData, boot: Boot) -> Found:
    """The file as it is in the end."""
    last: dict[str, tuple[int, str]] = {}
    for wrote in boot.wrote:
        if wrote.path.endswith("docker/daemon.json"):
            before = last.get(wrote.path, (0, ""))[1] if wrote.is_append else ""
            last[wrote.path] = (wrote.line, before + (wrote.content or ""))
    for line, text in last.values():
        # What was left open (a variable) cannot be judged.
        if not text.strip() or "$" in text:
            continue
        try:
            json.loads(text)
        except (ValueError, RecursionError) as exc:
            yield (
                line,
                "daemon.json is not JSON: Docker does not start with it",
                (str(exc),),
                ("python3 -m json.tool FILE",),
            )
