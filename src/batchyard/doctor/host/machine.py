"""Read-only access to a host: commands, files, disks and two local addresses.

``Machine`` is the seam: tests use recorded answers in place of ``ThisMachine``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: Longer files and answers are cut.
MAX_READ_BYTES = 1_000_000
#: the exit code of `timeout`
_TIMED_OUT = 124


@dataclass(frozen=True, slots=True)
class Output:
    exit_code: int
    stdout: str = ""
    stderr: str = ""


class Machine(Protocol):
    def run(self, words: Sequence[str], timeout_s: float = 10) -> Output | None:
        """Run a command and return its output; None where the program does not exist."""

    def read(self, path: str) -> str | None:
        """Return the text of a file; None where it does not exist.

        Raises OSError where the file may not be read.
        """

    def names(self, pattern: str) -> list[str]:
        """Return the paths that match a glob pattern, sorted."""

    def ask(
        self, url: str, method: str = "GET", headers: dict[str, str] | None = None
    ) -> str | None:
        """Return the body of an HTTP answer; None without an answer, or with an error."""

    def disk(self, path: str) -> tuple[int, int] | None:
        """Return the total and the free bytes of a file system; None where it does not exist."""

    def now_ms(self) -> int: ...

    def host_name(self) -> str: ...


class ThisMachine:
    """The machine that this process runs on. ``timeout_s`` limits each HTTP request."""

    def __init__(self, root: str = "/", timeout_s: float = 2.0) -> None:
        self._root = Path(root)
        self._timeout_s = timeout_s

    def run(self, words: Sequence[str], timeout_s: float = 10) -> Output | None:
        try:
            process = subprocess.run(
                list(words),
                capture_output=True,
                timeout=timeout_s,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        except subprocess.TimeoutExpired:
            return Output(_TIMED_OUT, "", f"no answer within {timeout_s:g} s")
        return Output(
            process.returncode,
            process.stdout.decode(errors="replace"),
            process.stderr.decode(errors="replace"),
        )

    def read(self, path: str) -> str | None:
        try:
            with open(self._under_root(path), "rb") as file:
                return file.read(MAX_READ_BYTES).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def names(self, pattern: str) -> list[str]:
        paths = self._root.glob(pattern.lstrip("/"))
        return sorted("/" + str(path.relative_to(self._root)) for path in paths)

    def ask(
        self, url: str, method: str = "GET", headers: dict[str, str] | None = None
    ) -> str | None:
        request = urllib.request.Request(url, method=method, headers=headers or {})
        # The addresses are local: a proxy cannot reach them.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=self._timeout_s) as answer:
                return str(answer.read(MAX_READ_BYTES).decode("utf-8", "replace"))
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def disk(self, path: str) -> tuple[int, int] | None:
        try:
            status = os.statvfs(self._under_root(path))
        except OSError:
            return None
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def host_name(self) -> str:
        return socket.gethostname()

    def _under_root(self, path: str) -> Path:
        return self._root / path.lstrip("/")
