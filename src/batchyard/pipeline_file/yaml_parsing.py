"""Parse the YAML of a pipeline file, and explain syntax errors without the parser's own terms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from batchyard import yaml_positions
from batchyard.errors import Place
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes, place_in
from batchyard.units import quote
from batchyard.yaml_positions import Document, Node

if TYPE_CHECKING:
    import yaml

#: Characters that YAML forbids. libyaml names no line for them, so they are searched for first.
_NOT_PRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|\ufffe|\uffff")

#: (message of libyaml or of PyYAML's own parser, problem, suggestion, whether the problem is at the
#: start of the construct and not where the parser stopped)
_EXPLANATIONS: tuple[tuple[str, str, str, bool], ...] = (
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
        "unknown escape|invalid Unicode character escape"
        "|expected escape sequence|expected hexdecimal",
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


def parse(text: str, mistakes: Mistakes) -> Node | None:
    """Return the document in ``text``, or None if it is empty.

    None is also returned, and a mistake added, if the text cannot be read.
    """
    import yaml

    forbidden = _NOT_PRINTABLE.search(text)
    if forbidden:
        code = f"the control character U+{ord(forbidden[0]):04X}"
        name = "a NUL byte" if forbidden[0] == "\0" else code
        mistakes.add(place_in(text, forbidden.start()), f"{name} in the file", "remove it")
        return None
    document = yaml_positions.parse(text)
    for problem in document.problems:
        mistakes.add(problem.at, problem.text, problem.suggestion)
        if problem.is_fatal:
            return None
    if isinstance(document.error, yaml.MarkedYAMLError):
        mistakes.add(*_explain(document.error, text, document))
        return None
    if document.error:
        mistakes.add(WHOLE_FILE, f"not YAML: {document.error}")
        return None
    return document.root


def _explain(exc: yaml.MarkedYAMLError, text: str, document: Document) -> tuple[Place, str, str]:
    """Return place, problem and suggestion of a syntax error."""
    end = place_in(text, len(text.rstrip()))
    stop = _place_of(exc.problem_mark or exc.context_mark) or end
    if (stop.line, stop.column) >= (end.line, end.column):
        if document.open_brackets:
            return document.open_brackets[-1], "not YAML: this bracket is never closed", "close it"
        stop = end
    message = exc.problem or "it cannot be read"
    if "cannot start any token" in message:
        return stop, *_explain_first_character(_character(text, stop))
    return _explain_message(message, exc, stop)


def _explain_message(
    message: str, exc: yaml.MarkedYAMLError, stop: Place
) -> tuple[Place, str, str]:
    start = _place_of(exc.context_mark) or stop
    for pattern, problem, suggestion, is_at_start in _EXPLANATIONS:
        if re.search(pattern, f"{message} {exc.context or ''}"):
            return start if is_at_start else stop, f"not YAML: {problem}", suggestion
    return stop, f"not YAML: {message}", ""


def _place_of(mark: yaml.Mark | None) -> Place | None:
    return Place(mark.line + 1, mark.column + 1) if mark else None


def _character(text: str, at: Place) -> str:
    lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text)
    line = lines[at.line - 1] if at.line <= len(lines) else ""
    return line[at.column - 1 : at.column]


def _explain_first_character(character: str) -> tuple[str, str]:
    if character == "\t":
        return "not YAML: a tab is used for indentation", "indent with spaces"
    return f"not YAML: a value cannot begin with {quote(character)}", "put it in quotes"
