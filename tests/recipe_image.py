"""Build the image of the shipped recipe on a Debian base, for tests of the worker in containers."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(__file__).parents[1] / ".cache"
IMAGE = "batchyard-recipe:test"

#: Read at import, because fixtures remove BATCHYARD_* variables while a test runs.
_MIRROR = os.environ.get("BATCHYARD_DEBIAN_MIRROR", "http://deb.debian.org/debian")
_SUITE = "trixie"
#: The same each time if it is free: a build with another address repeats what Docker has cached.
_WHEELS_PORT = 41877
_BASE = f"batchyard-debian:{_SUITE}"


def build(folder: Path) -> str:
    """Build the image from the recipe of `image init`, with another base. Return its name."""
    return build_kind(folder, "cpu", IMAGE)


def build_kind(folder: Path, kind: str, tag: str, **arguments: str) -> str:
    """Build an image with `image init` and `image build`, on the Debian base. Return its name."""
    CACHE.mkdir(exist_ok=True)
    # Several test processes may build the image at once: the others wait and use the cache.
    with (CACHE / "recipe-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not docker("image", "ls", "-q", _BASE):
            make_or_skip("a base of Debian's packages", _make_base)
        build_arguments = {"BASE": _BASE, **arguments}
        for words in (
            ["init", "--kind", kind],
            ["build", "--kind", kind, "--tag", tag]
            + [
                word
                for name, value in build_arguments.items()
                for word in ("--build-arg", f"{name}={value}")
            ],
        ):
            command = [sys.executable, "-m", "batchyard", "image", *words]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return tag


def build_with_wheels(folder: Path, kind: str, tag: str, requirements: list[str]) -> str:
    """Build an image whose pip takes wheels from this machine, without PyPI and without CUDA."""
    wheels = CACHE / "example-wheels"
    # The Python of the Debian base.
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    fetch += ["--python-version", "3.13", "--dest", str(wheels), *requirements]
    make_or_skip("the wheels", lambda: _run(fetch))
    with HttpFolder(wheels) as address:
        return build_kind(
            folder, kind, tag, GPU_PACKAGES="", PIP_NO_INDEX="1", PIP_FIND_LINKS=address
        )


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


class HttpFolder:
    """A folder behind an HTTP address on loopback, which a build reaches by the host's network."""

    def __init__(self, folder: Path) -> None:
        handler = partial(QuietHandler, directory=str(folder))
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", _WHEELS_PORT), handler)
        except OSError:
            self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


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
