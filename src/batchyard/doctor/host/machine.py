"""The door to a host: runs read-only commands, reads files, asks two local addresses. Nothing here changes anything.

Everything is a parameter, so that another root, or recorded answers, can stand in for the machine.
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

MAX_READ = 1_000_000


@dataclass(frozen=True, slots=True)
class Output:
    exit_code: int
    stdout: str = ""
    stderr: str = ""


class Machine(Protocol):
    def run(self, words: Sequence[str], timeout_s: float = 10) -> Output | None:
        """None where there is no such program."""

    def read(self, path: str) -> str | None:
        """None where there is no such file. Raises OSError where it may not be read."""

    def names(self, pattern: str) -> list[str]:
        """Paths that match, as seen from the root."""

    def ask(
        self, url: str, method: str = "GET", headers: dict[str, str] | None = None
    ) -> str | None:
        """The body of a good answer; None where nobody answers, or not well."""

    def disk(self, path: str) -> tuple[int, int] | None:
        """Total and free bytes."""

    def now_ms(self) -> int: ...

    def host_name(self) -> str: ...


class ThisMachine:
    def __init__(self, root: str = "/", timeout_s: float = 2.0) -> None:
        self._root = Path(root)
        #: for each question to a local address
        self._timeout_s = timeout_s

    def run(self, words: Sequence[str], timeout_s: float = 10) -> Output | None:
        try:
            done = subprocess.run(
                list(words),
                capture_output=True,
                timeout=timeout_s,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        except subprocess.TimeoutExpired:
            return Output(124, "", f"no answer within {timeout_s:g} s")
        return Output(
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )

    def read(self, path: str) -> str | None:
        try:
            with open(self._inside(path), "rb") as file:
                return file.read(MAX_READ).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def names(self, pattern: str) -> list[str]:
        found = self._root.glob(pattern.lstrip("/"))
        return sorted("/" + str(path.relative_to(self._root)) for path in found)

    def ask(
        self, url: str, method: str = "GET", headers: dict[str, str] | None = None
    ) -> str | None:
        request = urllib.request.Request(url, method=method, headers=headers or {})
        # Never through a proxy: these addresses are this machine's own.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=self._timeout_s) as answer:
                return str(answer.read(MAX_READ).decode("utf-8", "replace"))
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def disk(self, path: str) -> tuple[int, int] | None:
        try:
            found = os.statvfs(self._inside(path))
        except OSError:
            return None
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def host_name(self) -> str:
        return socket.gethostname()

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")
