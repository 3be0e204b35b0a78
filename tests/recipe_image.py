"""Build the image of the shipped recipe on a Debian base, for tests of the worker in containers."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[1] / ".cache"
IMAGE = "batchyard-recipe:test"

#: Read at import, because fixtures remove BATCHYARD_* variables while a test runs.
_MIRROR = os.environ.get("BATCHYARD_DEBIAN_MIRROR", "http://deb.debian.org/debian")
_SUITE = "trixie"
_BASE = f"batchyard-debian:{_SUITE}"


def build(folder: Path) -> str:
    """Build the image from the recipe of `image init`, with another base. Return its name."""
    CACHE.mkdir(exist_ok=True)
    # Several test processes may build the image at once: the others wait and use the cache.
    with (CACHE / "recipe-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not docker("image", "ls", "-q", _BASE):
            make_or_skip("a base of Debian's packages", _make_base)
        for arguments in (
            ["init", "--kind", "cpu"],
            ["build", "--tag", IMAGE, "--build-arg", f"BASE={_BASE}"],
        ):
            command = [sys.executable, "-m", "batchyard", "image", *arguments]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return IMAGE


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout


def make_or_skip(product: str, make: Callable[[], None]) -> None:
    """Call `make`. If it fails, skip the test, or fail it if the environment requires Docker."""
    try:
        make()
    except (OSError, subprocess.CalledProcessError) as exc:
        stderr = getattr(exc, "stderr", b"") or str(exc).encode()
        problem = f"{product} cannot be made here: {exc}: {stderr[-500:]!r}"
        if os.environ.get("BATCHYARD_REQUIRE_DOCKER"):
            pytest.fail(problem)
        pytest.skip(problem)


def _make_base() -> None:
    """Make the Debian base with debootstrap, which needs root. It is cached, since it is slow."""
    tree = CACHE / f"recipe-base-{_SUITE}"
    if not tree.exists():
        unfinished = tree.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = ["debootstrap", "--variant=minbase", _SUITE, str(unfinished), _MIRROR]
        subprocess.run(command, check=True, capture_output=True)
        unfinished.rename(tree)
    with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as packer:
        subprocess.run(
            ["docker", "import", "-", _BASE], stdin=packer.stdout, check=True, capture_output=True
        )
