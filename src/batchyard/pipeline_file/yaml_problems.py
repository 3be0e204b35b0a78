"""What a YAML parser complains about, in words for someone who never heard of a block mapping."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from batchyard.pipeline_file.mistakes import Notes, place_in
from batchyard.units import quoted
from batchyard.yaml_positions import Place

if TYPE_CHECKING:
    import yaml

#: What libyaml and PyYAML's own parser say -> what we say; the last is whether the place is where the trouble
#: began instead of where the parser stumbled.
_PLAIN_WORDS: tuple[tuple[str, str, str, bool], ...] = (
    ("unexpected end of stream", "a quote is opened here and never closed", "close it", True),
    (
        "unexpected document (separator|indicator)",
        "a quote is opened here and never closed",
        "close it",
        True,
    ),
    (
        "mapping (values|keys) are not allowed",
        "a key is not allowed here",
        'put text that contains ": " in quotes, or check the indentation',
        False,
    ),
    (
        "sequence entries are not allowed",
        'a "-" is not allowed here',
        "begin items on lines of their own",
        False,
    ),
    (
        "',' or '\\]'",
        "this [ is not closed, or a comma is missing in it",
        "write it like [a, b]",
        True,
    ),
    (
        "',' or '}'",
        "this { is not closed, or a comma is missing in it",
        "write it like {a: 1}",
        True,
    ),
    ("could not find expected ':'", 'there is no ":" after this key', "write key: value", True),
    (
        "expected alphabetic or numeric|unexpected character.* while scanning an (alias|anchor)",
        "* and & have a special meaning in YAML",
        "put text that begins with them in quotes",
        True,
    ),
    (
        "expected key|expected '-' indicator|expected <block end>",
        "this does not fit the lines before it",
        "indent items of one list or mapping alike, and close quotes and brackets",
        False,
    ),
    ("tag", "! has a special meaning in YAML", "put text that begins with it in quotes", True),
    (
        "unknown escape|invalid Unicode character escape|expected escape sequence|expected hexdecimal",
        "this backslash sequence is not valid in double quotes",
        "use single quotes, or write \\\\",
        False,
    ),
    ("tab character", "a tab is used for indentation", "indent with spaces", False),
    ("<document start>", "there is text after the end of the document", "remove it", False),
    (
        "node content",
        "a bracket or sign is written where a value is expected",
        "put text in quotes",
        False,
    ),
)


def explain(
    exc: yaml.MarkedYAMLError, text: str, open_brackets: Sequence[Place], notes: Notes
) -> None:
    """Notes the parser's error; ``open_brackets`` are those [ and { whose end it had not seen."""
    problem = exc.problem or "it cannot be read"
    mark = exc.problem_mark or exc.context_mark
    end = place_in(text, len(text.rstrip()))
    stumbled = Place(mark.line + 1, mark.column + 1) if mark else end
    if (stumbled.line, stumbled.column) >= (end.line, end.column):
        if open_brackets:
            notes.wrong(open_brackets[-1], "not YAML: this bracket is never closed", "close it")
            return
        stumbled = end
    if "cannot start any token" in problem and mark:
        notes.wrong(stumbled, *_bad_start(_character(text, stumbled)))
        return
    began = (
        Place(exc.context_mark.line + 1, exc.context_mark.column + 1)
        if exc.context_mark
        else stumbled
    )
    for pattern, what, instead, is_where_it_began in _PLAIN_WORDS:
        if re.search(pattern, f"{problem} {exc.context or ''}"):
            notes.wrong(began if is_where_it_began else stumbled, f"not YAML: {what}", instead)
            return
    notes.wrong(stumbled, f"not YAML: {problem}")


def _character(text: str, at: Place) -> str:
    lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text)
    line = lines[at.line - 1] if at.line <= len(lines) else ""
    return line[at.column - 1 : at.column]


def _bad_start(character: str) -> tuple[str, str]:
    if character == "\t":
        return "not YAML: a tab is used for indentation", "indent with spaces"
    return f"not YAML: a value cannot begin with {quoted(character)}", "put it in quotes"
