"""Run a command of the user once: its seconds, and how it ended."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchyard.bench.interrupts import DelayedSignals
from batchyard.errors import InputError, OperationalError, from_os_error

#: the end of the output that is shown for a command that fails
_TAIL_BYTES, _TAIL_LINES = 4096, 5


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a command."""

    words: tuple[str, ...]
    folder: Path
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its seconds, and what went wrong; empty if nothing did."""

    seconds: float
    problem: str = ""


def run_process(launch: Launch) -> Ended:
    """Run a command to its end. Raises InputError if it cannot be started.

    An interrupt ends the command and all processes that it started.
    """
    with tempfile.TemporaryFile() as output:
        signals = DelayedSignals()
        begin_s = time.perf_counter()
        try:
            process = subprocess.Popen(
                launch.words,
                cwd=launch.folder,
                env=dict(launch.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except ValueError as exc:
            signals.deliver()
            raise InputError(f"the command cannot be started: {exc}") from None
        except OSError as exc:
            signals.deliver()
            raise describe_start_error(launch, exc) from None
        try:
            signals.deliver()
            code = process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        seconds = time.perf_counter() - begin_s
        return Ended(seconds, _describe_exit(code, _tail(output)) if code else "")


def describe_start_error(launch: Launch, exc: OSError) -> InputError | OperationalError:
    """Return the error for a command that the system did not start."""
    if not launch.folder.is_dir():
        return InputError(
            f"--folder {launch.folder}: there is no such folder",
            hint="name the folder in which the command runs",
        )
    if isinstance(exc, FileNotFoundError | PermissionError | NotADirectoryError):
        # A folder of PATH that cannot be searched makes the system deny any unknown name.
        is_missing = isinstance(exc, PermissionError) and not _is_on_path(launch)
        reason = os.strerror(errno.ENOENT) if is_missing else exc.strerror
        return InputError(
            f"the command cannot be started: {launch.words[0]}: {reason}",
            hint="write program and arguments after `--`; a shell's syntax needs sh -c '...'",
        )
    return from_os_error(exc, "start", launch.words[0])


def _is_on_path(launch: Launch) -> bool:
    program, path = launch.words[0], launch.environ.get("PATH")
    return "/" in program or shutil.which(program, os.F_OK, path) is not None


def _tail(output: Any) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL_BYTES))
    lines = output.read().decode("utf-8", "replace").split("\n")
    lines = ["".join(c if c.isprintable() else " " for c in line).strip() for line in lines]
    return " | ".join([line for line in lines if line][-_TAIL_LINES:])


def _describe_exit(code: int, tail: str) -> str:
    """Return how a command failed, with the end of its output."""
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
        ending = f"was ended by {name}"
    else:
        ending = f"exited with {code}"
    return f"{ending}: {tail}" if tail else ending
