"""Check that no GPU driver or CUDA is installed at boot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from batchyard.doctor.finding import Kind, Severity
from batchyard.doctor.shell.trace import CommandRun
from batchyard.doctor.userdata.boot import Boot
from batchyard.doctor.userdata.commands import describe
from batchyard.doctor.userdata.observation import Observations, check_user_data
from batchyard.doctor.userdata.parts import UserData

_DRIVER_PACKAGES = re.compile(
    r"(?:kmod-|xserver-xorg-video-|xorg-x11-drv-)?"
    r"nvidia-(?:driver|open|kmod|dkms|headless|\d{3}).*"
    r"|kmod-nvidia.*|(?:akmod|dkms)-nvidia.*"
    r"|cuda|cuda-(?:drivers|toolkit|runtime|\d).*|nvidia-release"
)
_DRIVER_FILE = re.compile(r"(?:.*/)?NVIDIA-Linux-.*\.run|(?:.*/)?cuda_\d.*\.run", re.IGNORECASE)
_PACKAGE_MANAGERS = frozenset({"yum", "dnf", "apt", "apt-get", "zypper", "microdnf", "rpm", "dpkg"})
_OTHER_VERBS = frozenset(
    "remove erase purge autoremove autopurge list info search show provides repoquery download "
    "clean makecache check-update history hold versionlock disable reset rm se if".split()
)


@check_user_data(Kind("BY107", Severity.WARNING, 65, "no driver is installed at boot"))
def check_drivers(data: UserData, boot: Boot) -> Observations:
    lines = set()
    for package, line, evidence in _find_installed(boot):
        if _is_driver(package.rsplit("/", 1)[-1].removesuffix(".rpm")) and line not in lines:
            lines.add(line)
            yield (
                line,
                "a GPU driver or CUDA is installed at boot: "
                "nodes join minutes late, each with another version",
                (evidence,),
                (
                    "use the image type ECS_AL2023_NVIDIA, which has the driver, "
                    "and put CUDA into the container image",
                ),
            )


def _find_installed(boot: Boot) -> Iterator[tuple[str, int, str]]:
    """Yield each package, or word that may be one, with its line and evidence."""
    for package, line in boot.packages:
        yield package, line, f"cloud-config installs {package}"
    for command in boot.commands:
        for package in _packages_of(command):
            yield package, command.line, describe(command)


def _packages_of(command: CommandRun) -> tuple[str, ...]:
    program, words = command.program, command.words
    if program == "ubuntu-drivers" and {"install", "autoinstall"} & set(words):
        return ("nvidia-driver",)
    if program in _PACKAGE_MANAGERS and _installs(command):
        return words[1:]
    if program == "dkms" and any("nvidia" in word for word in words):
        return ("nvidia-dkms",)
    return ("nvidia-driver",) if _DRIVER_FILE.fullmatch(words[0]) else ()


def _installs(command: CommandRun) -> bool:
    """Return whether a package manager installs: it does not remove, list or search."""
    if command.program in ("rpm", "dpkg"):
        return _has_option(
            command, r"(?:-[a-zA-Z]*[iUF][a-zA-Z]*|--(?:install|upgrade|unpack))\Z"
        ) and not _has_option(command, r"-q|--query|--info|-[a-z]*e")
    verbs = [word for word in command.words[1:] if not word.startswith("-")]
    if verbs[:1] == ["module"]:
        verbs = verbs[1:]
    return _OTHER_VERBS.isdisjoint(verbs[:1])


def _has_option(command: CommandRun, pattern: str) -> bool:
    return any(re.match(pattern, word) for word in command.words)


def _is_driver(name: str) -> bool:
    """Return whether the name, or a pattern that matches it, is a driver's package."""
    if _DRIVER_PACKAGES.fullmatch(name):
        return True
    is_pattern = "*" in name and name.strip("*?") != ""
    return is_pattern and any(
        fnmatchcase(package, name) for package in ("nvidia-driver", "cuda-drivers")
    )
