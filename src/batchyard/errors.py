"""The errors that a user can meet.

    BatchyardError                exit code 3
      InputError                  exit code 2   invalid input of the user
        PipelineFileError         exit code 2   all mistakes of a pipeline file
        RunNotFoundError          exit code 2
      OperationalError            exit code 3   the machine, the disk, another process
        RunLockedError            exit code 3
        NewerStoreError           exit code 3
        BrokenStoreError          exit code 3
        ContainerEngineError      exit code 3
        BusyServiceError          exit code 3   the same request may succeed later
          UnreachableServiceError exit code 3   no answer: a lost network, or a wrong address

A message says what happened and to what; a hint says what to do. The default message of an error is
the docstring of its class. The command line prints a traceback only with ``-v``.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from batchyard.quick_dataclasses import dataclass


class BatchyardError(Exception):
    """An error of batchyard."""

    exit_code = 3

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        #: what to do; printed on a separate line
        self.hint = hint
        super().__init__(self.message)


class InputError(BatchyardError):
    """The input is invalid."""

    exit_code = 2


@dataclass(slots=True)
class Place:
    """A position in a file. Line and column count from 1; both are 0 for the whole file."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a file that the user wrote."""

    path: str
    #: line and column count from 1; both are 0 for the whole file
    line: int
    column: int
    problem: str
    #: what to write instead
    suggestion: str = ""
    is_warning: bool = False

    def __str__(self) -> str:
        place = self.path if not self.line else f"{self.path}:{self.line}:{self.column}"
        kind = "warning: " if self.is_warning else ""
        suggestion = f"; {self.suggestion}" if self.suggestion else ""
        return f"{place}: {kind}{self.problem}{suggestion}"


class PipelineFileError(InputError):
    """The pipeline file has mistakes."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


class RunNotFoundError(InputError):
    """There is no such run."""


class OperationalError(BatchyardError):
    """The machine does not allow it: the disk, a permission, another process."""


class RunLockedError(OperationalError):
    """Another process is executing this run."""


class NewerStoreError(OperationalError):
    """The state was written by a newer batchyard."""


class BrokenStoreError(OperationalError):
    """The state on disk cannot be read."""


class ContainerEngineError(OperationalError):
    """No Docker engine answers."""


class BusyServiceError(OperationalError):
    """A service throttles its callers or has a problem of its own, which passes."""


class UnreachableServiceError(BusyServiceError):
    """A service does not answer: the network is lost, or the address is wrong."""


_RESUME_HINT = "then continue with `batchyard resume`; nothing recorded is lost"
_PERMISSION_HINT = "get permission to read and write there, or choose another folder with --home"
_OS_ERROR_HINTS = {
    errno.ENOSPC: f"free some space on that disk, {_RESUME_HINT}",
    errno.EDQUOT: f"free some of your quota, {_RESUME_HINT}",
    errno.EACCES: _PERMISSION_HINT,
    errno.EPERM: _PERMISSION_HINT,
    errno.EROFS: "that file system is read-only: choose another folder with --home",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`), or run fewer children at once",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of that path is a file, not a folder: check the path",
    errno.EISDIR: "that is a folder: name a file",
}


def from_os_error(exc: OSError, doing: str, path: Path | str | None = None) -> OperationalError:
    """Return the error for an error of the operating system.

    ``doing`` completes "could not ..."; ``path`` is the file if ``exc`` does not name it.
    """
    name = str(path if path is not None else exc.filename or "")
    at = f" {name}" if name else ""
    message = f"could not {doing}{at}: {exc.strerror or exc}"
    return OperationalError(message, hint=_OS_ERROR_HINTS.get(exc.errno or 0, ""))
