"""The image of our own recipe, on a base of Debian's packages: what tests that run the worker in containers use."""

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

#: asked for now: no variable of ours is left while a test runs
_MIRROR = os.environ.get("BATCHYARD_DEBIAN_MIRROR", "http://deb.debian.org/debian")
_SUITE = "trixie"
_BASE = f"batchyard-debian:{_SUITE}"


def build(folder: Path) -> str:
    """Builds it from the recipe as `image init` writes it to the folder, but for its base. Returns its name."""
    CACHE.mkdir(exist_ok=True)
    # Two processes of tests may want it at once, and the second then finds all that takes long done.
    with (CACHE / "recipe-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not docker("image", "ls", "-q", _BASE):
            made("a base of Debian's packages", _make_base)
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


def made(what: str, make: Callable[[], None]) -> None:
    """Where it cannot be made here, the test is skipped, unless the environment requires it."""
    try:
        make()
    except (OSError, subprocess.CalledProcessError) as exc:
        said = getattr(exc, "stderr", b"") or str(exc).encode()
        problem = f"{what} cannot be made here: {exc}: {said[-500:]!r}"
        if os.environ.get("BATCHYARD_REQUIRE_DOCKER"):
            pytest.fail(problem)
        pytest.skip(problem)


def _make_base() -> None:
    """Debian as it is fresh from debootstrap, kept: it takes longer than all the rest. Only root can."""
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
