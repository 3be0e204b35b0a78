"""What following a script comes to: commands, files, loops; and what holds for a command from outside. Values."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchyard.doctor.shell import wrappers
from batchyard.doctor.shell.disk import File


@dataclass(frozen=True, slots=True)
class Ran:
    """A command as far as it can be known; what cannot stands as ${name} or $()."""

    words: tuple[str, ...]
    line: int
    #: the script goes on without waiting for it, unless it says `wait`
    is_background: bool = False
    #: another process runs it, for which nobody waits
    is_detached: bool = False
    #: a clock ends it
    is_bounded: bool = False
    #: the functions and files through which it was reached
    via: tuple[str, ...] = ()
    #: its place in the order of things
    step: int = 0
    #: the number of the job in the background to which it belongs; 0 for none
    job: int = 0
    #: where it was run
    folder: str = "/"
    #: units that it waits for by the order of another one, which it starts: that one, and what it is ordered after
    waits_for: tuple[str, str] | None = None

    @property
    def program(self) -> str:
        return wrappers.base(self.words[0]) if self.words else ""


@dataclass(frozen=True, slots=True)
class Wrote:
    path: str
    #: None where it is not known
    content: str | None
    is_append: bool
    line: int


@dataclass(frozen=True, slots=True)
class Looped:
    """A `while` or `until` with what it asks, and what it does meanwhile."""

    asks: tuple[Ran, ...]
    does: tuple[Ran, ...]
    is_counted: bool
    is_background: bool
    line: int


@dataclass(slots=True)
class Trace:
    ran: list[Ran] = field(default_factory=list)
    wrote: list[Wrote] = field(default_factory=list)
    loops: list[Looped] = field(default_factory=list)
    #: line and interpreter of each script in another language
    not_followed: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Around:
    """What holds for a command from outside."""

    args: tuple[str, ...] = ()
    #: $0, where it is given
    zero: str = ""
    #: where the function was called whose arguments these are
    called_at: int = 0
    is_background: bool = False
    is_detached: bool = False
    is_bounded: bool = False
    via: tuple[str, ...] = ()
    stdin: File | None = None
    #: where its output goes: path, whether appended
    stdout: tuple[str, bool] | None = None
    job: int = 0
    #: it prints into $(...), which waits until nobody does, in the background or not
    holds_pipe: bool = False

    @property
    def goes_on(self) -> bool:
        """The script goes on without waiting for what runs here."""
        return self.is_background and not self.holds_pipe
