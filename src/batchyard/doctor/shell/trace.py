"""The trace of a script: commands, written files, loops; and the context of a command. Values."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchyard.doctor.shell import wrappers
from batchyard.doctor.shell.files import File


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command that is run; an unknown part of a word is ${name} or $()."""

    words: tuple[str, ...]
    line: int
    #: the script does not wait for the command, unless it runs `wait`
    is_background: bool = False
    #: another process runs the command, and nothing waits for it
    is_detached: bool = False
    #: a timeout ends the command
    is_bounded: bool = False
    #: the functions and files through which the command is reached
    via: tuple[str, ...] = ()
    #: the position in the order of all commands
    step: int = 0
    #: the number of the background job to which the command belongs; 0 for none
    job: int = 0
    #: the current folder
    folder: str = "/"
    #: of an awaited start of a unit: the unit, and the late unit that it is ordered after
    waits_for: tuple[str, str] | None = None

    @property
    def program(self) -> str:
        return wrappers.program_name(self.words[0]) if self.words else ""


@dataclass(frozen=True, slots=True)
class FileWrite:
    path: str
    #: None if it is unknown
    content: str | None
    is_append: bool
    line: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A `while` or `until`: the commands of its condition, and of its body."""

    condition: tuple[CommandRun, ...]
    body: tuple[CommandRun, ...]
    #: a count or the clock ends the loop
    is_bounded: bool
    is_background: bool
    line: int
    #: the loop runs as long as its command succeeds: `while docker info`
    awaits_failure: bool = False


@dataclass(slots=True)
class Trace:
    commands: list[CommandRun] = field(default_factory=list)
    writes: list[FileWrite] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    #: line and description of each script that is not followed, like "runs a script for perl"
    not_followed: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Context:
    """What surrounds a command: arguments, standard input and output, background jobs."""

    args: tuple[str, ...] = ()
    #: $0, if it is set
    zero: str = ""
    #: the line of the call of the function that has these arguments
    called_at: int = 0
    is_background: bool = False
    is_detached: bool = False
    is_bounded: bool = False
    via: tuple[str, ...] = ()
    stdin: File | None = None
    #: where the output goes: path, and whether it is appended
    stdout: tuple[str, bool] | None = None
    job: int = 0
    #: standard input is the output of a program that is not known, such as curl
    has_unknown_stdin: bool = False
    #: the command prints into $(...), which waits for all that print into it, background or not
    holds_pipe: bool = False

    @property
    def is_not_awaited(self) -> bool:
        """Whether the script continues without waiting for the command."""
        return self.is_background and not self.holds_pipe
