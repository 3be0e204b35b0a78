"""The syntax tree of a shell script. Pure values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """$name or ${name...}: ``operator`` is :- or % or ,, ..., ``operand`` the text behind it."""

    name: str
    is_quoted: bool = False
    operator: str = ""
    operand: tuple[Piece, ...] = ()
    #: ${name[@]}, ${name[*]}
    is_array: bool = False
    #: * instead of @: all elements are joined to one word
    joins: bool = False
    #: of ${@:2}: how many arguments are skipped
    start: int = 0


@dataclass(frozen=True, slots=True)
class Substitution:
    """$(...), `...`, <(...)."""

    script: Script
    is_quoted: bool = False
    #: the value of $((...)), which may contain commands; None: it is the output of the script
    text: str | None = None
    #: <(...), whose value is the name of a file
    is_file: bool = False


Piece = Text | Variable | Substitution


@dataclass(frozen=True, slots=True)
class Word:
    pieces: tuple[Piece, ...]
    line: int

    @property
    def plain(self) -> str | None:
        """The text of a word without quotes and expansions, which can be a reserved word."""
        if (
            len(self.pieces) == 1
            and isinstance(self.pieces[0], Text)
            and not self.pieces[0].is_quoted
        ):
            return self.pieces[0].text
        return None


@dataclass(slots=True)
class Heredoc:
    """The text behind <<END; ``body``, ``line`` and ``pieces`` are set at the end of the line."""

    delimiter: str
    is_quoted: bool
    strips_tabs: bool
    body: str = ""
    line: int = 0
    #: $(...) in the body
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Redirect:
    operator: str
    target: Word | None
    heredoc: Heredoc | None = None


@dataclass(frozen=True, slots=True)
class Simple:
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    line: int
    #: name=(words)
    arrays: tuple[tuple[str, tuple[Word, ...]], ...] = ()
    #: the text of the command, as it is written
    source: str = ""
    #: `!` is before the command
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Compound:
    """if, while, until, for, case, ( ), { }, coproc and functions."""

    kind: str
    #: the scripts in it, in their order; the first one of a loop is the condition
    bodies: tuple[Script, ...]
    line: int
    #: the variable of `for`, the name of a function
    name: str = ""
    #: the values of `for`, the subject of `case`
    words: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    #: the text of the subject of `case`
    subject: str = ""


Command = Simple | Compound


@dataclass(frozen=True, slots=True)
class Item:
    """Pipelines joined by && and ||, up to ; & or the end of the line."""

    pipelines: tuple[tuple[Command, ...], ...]
    is_background: bool = False


Script = tuple[Item, ...]
