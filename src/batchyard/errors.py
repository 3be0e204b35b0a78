"""Every error a user can meet, in one family. Imports nothing of ours.

    BatchyardError                  exit 3
      InputError                      exit 2   something the user wrote
        PipelineFileError            exit 2   all mistakes of a pipeline file at once
        RunNotFoundError                   exit 2
      OperationalError                  exit 3   the machine, the disk, another process
        RunLockedError                   exit 3
        NewerStoreError                exit 3
        BrokenStoreError               exit 3
        ContainerEngineError           exit 3

A message says where, what was found, and what to do. The class's docstring is the message of last resort, so no
error is ever blank. The command line prints the message and its causes, one a line; a traceback only with ``-v``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class BatchyardError(Exception):
    """Something went wrong that batchyard has no better name for."""

    exit_code = 3

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        #: what to do about it; printed on a line of its own
        self.hint = hint
        super().__init__(self.message)


class InputError(BatchyardError):
    """What was given cannot be used."""

    exit_code = 2


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
    """There is no run of that name here."""


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


def from_os_error(exc: OSError, doing: str, path: Path | str | None = None) -> OperationalError:
    """The one place where the system's refusals become sentences. ``doing`` completes "could not ..."."""
    import errno

    where = str(path if path is not None else exc.filename or "")
    hints = {
        errno.ENOSPC: "free some space on that disk, then `batchyard resume` goes on; nothing recorded is lost",
        errno.EDQUOT: "free some of your quota, then `batchyard resume` goes on; nothing recorded is lost",
        errno.EACCES: "give yourself write permission there, or choose another folder with --home",
        errno.EPERM: "give yourself write permission there, or choose another folder with --home",
        errno.EROFS: "that file system is read-only: choose another folder with --home",
        errno.EMFILE: "raise the limit of open files (`ulimit -n`), or run fewer children at once",
        errno.ENOENT: "check the path",
        errno.ENOTDIR: "a part of that path is a file and no folder: check the path",
        errno.EISDIR: "that is a folder: name a file",
    }
    reason = exc.strerror or str(exc)
    at = f" {where}" if where else ""
    return OperationalError(f"could not {doing}{at}: {reason}", hint=hints.get(exc.errno or 0, ""))
