"""Filter patterns of CloudWatch Logs: terms, phrases, regular expressions, conditions on JSON.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from batchyard.emulator.api_errors import ApiError

#: Returns whether a message matches.
Matcher = Callable[[str], bool]
#: A condition on a parsed JSON message.
Condition = Callable[[Any], bool]

_MAX_PATTERN_CHARS = 1024
_MAX_REGEXES = 2
#: Depth of nested parentheses.
_MAX_DEPTH = 50

_PHRASE = r'"(?:[^"\\]|\\.)*"'
_REGEX = r"%(?:[^%\\]|\\.)*%"
_TERM = re.compile(rf"\s*(?P<sign>[?-]?)(?P<term>{_PHRASE}|{_REGEX}|\w+)(?=\s|$)")
#: CloudWatch Logs allows no parentheses, no `!` and nothing beyond ASCII.
_REGEX_CHARACTERS = re.compile(r"[A-Za-z0-9:_#=@/;,\-\^$?\[\]{}|\\*+.\s]*")
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<selector>\$(?:\.[\w-]+|\.\*|\[\d+\]|\[\*\]|\['[^']*'\]|\["[^"]*"\])*)
    | (?P<operator>&&|\|\||!=|<=|>=|=|<|>|\(|\))
    | (?P<phrase>{_PHRASE})
    | (?P<regex>{_REGEX})
    | (?P<word>[\w.*+:/@-]+)
    )""",
    re.VERBOSE,
)
_STEP = re.compile(
    r"""\.(?P<name>[\w-]+|\*)|\[(?P<index>\d+|\*)\]"""
    r"""|\['(?P<single>[^']*)'\]|\["(?P<double>[^"]*)"\]"""
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_pattern(pattern: str) -> Matcher | None:
    """Return a function that tells whether a message matches, or None if every message does.

    Raises ApiError for an invalid pattern.
    """
    pattern = pattern.strip()
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise _invalid()
    if not pattern:
        return None
    if pattern.startswith("{"):
        return _json_matcher(pattern)
    return _terms_matcher(pattern)


def _invalid() -> ApiError:
    return ApiError("InvalidParameterException", "Invalid filter pattern")


# -- terms ---------------------------------------------------------------------------------------


def _terms_matcher(pattern: str) -> Matcher:
    by_sign = _matchers_by_sign(pattern)
    required, optional, excluded = by_sign[""], by_sign["?"], by_sign["-"]
    if optional and not required and not excluded:
        return lambda message: any(matches(message) for matches in optional)
    # CloudWatch Logs ignores optional terms in a pattern that also has other terms.
    return lambda message: (
        all(matches(message) for matches in required)
        and not any(matches(message) for matches in excluded)
    )


def _matchers_by_sign(pattern: str) -> dict[str, list[Matcher]]:
    """Return the matchers of the terms by their signs: `?`, `-` or nothing."""
    terms = list(_split_terms(pattern))
    if sum(term.startswith("%") for _, term in terms) > _MAX_REGEXES:
        raise _invalid()
    by_sign: dict[str, list[Matcher]] = {"": [], "?": [], "-": []}
    for sign, term in terms:
        by_sign[sign].append(_term_matcher(term))
    return by_sign


def _split_terms(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the sign and the text of each term."""
    position = 0
    while position < len(pattern):
        match = _TERM.match(pattern, position)
        if match is None:
            raise _invalid()
        yield match["sign"], match["term"]
        position = match.end()


def _term_matcher(term: str) -> Matcher:
    if term.startswith("%"):
        expression = _compile_regex(term)
        return lambda message: expression.search(message) is not None
    text = _unquote(term) if term.startswith('"') else term
    return lambda message: text in message


def _unquote(phrase: str) -> str:
    return re.sub(r"\\(.)", r"\1", phrase[1:-1], flags=re.DOTALL)


def _compile_regex(text: str) -> re.Pattern[str]:
    text = text[1:-1]
    if not text or not _REGEX_CHARACTERS.fullmatch(text):
        raise _invalid()
    try:
        return re.compile(text, re.ASCII)
    except re.error:
        raise _invalid() from None


# -- JSON ----------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str
    text: str


def _json_matcher(pattern: str) -> Matcher:
    if not pattern.endswith("}"):
        raise _invalid()
    tokens = list(_tokens(pattern[1:-1].strip()))
    if sum(token.kind == "regex" for token in tokens) > _MAX_REGEXES:
        raise _invalid()
    condition = _Parser(tokens).parse()

    def matches(message: str) -> bool:
        if not message.lstrip().startswith(("{", "[")):
            return False
        try:
            value = json.loads(message)
        except (ValueError, RecursionError):
            return False
        return condition(value)

    return matches


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise _invalid()
        yield _Token(match.lastgroup, match[match.lastgroup])
        position = match.end()


class _Parser:
    """Parses any := all (`||` all)*; all := term (`&&` term)*; term := `(` any `)` | comparison."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._parse_any()
        if self._position < len(self._tokens):
            raise _invalid()
        return condition

    def _parse_any(self) -> Condition:
        parts = [self._parse_all()]
        while self._take_operator("||"):
            parts.append(self._parse_all())
        return parts[0] if len(parts) == 1 else lambda value: any(part(value) for part in parts)

    def _parse_all(self) -> Condition:
        parts = [self._parse_term()]
        while self._take_operator("&&"):
            parts.append(self._parse_term())
        return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)

    def _parse_term(self) -> Condition:
        if self._take_operator("("):
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise _invalid()
            condition = self._parse_any()
            if not self._take_operator(")"):
                raise _invalid()
            self._depth -= 1
            return condition
        steps = _steps(self._next("selector").text)
        token = self._next("operator", "word")
        if token.kind == "word":
            return self._word_condition(steps, token.text.upper())
        return _comparison(steps, token.text, self._next("word", "phrase", "regex"))

    def _word_condition(self, steps: list[str | int], word: str) -> Condition:
        if word == "EXISTS":
            return lambda value: any(True for _ in _select(value, steps))
        if word == "NOT" and self._next("word").text.upper() == "EXISTS":
            return lambda value: not any(True for _ in _select(value, steps))
        constants = {"NULL": None, "TRUE": True, "FALSE": False}
        if word == "IS" and (name := self._next("word").text.upper()) in constants:
            constant = constants[name]
            return lambda value: any(member is constant for member in _select(value, steps))
        raise _invalid()

    def _next(self, *kinds: str) -> _Token:
        if self._position >= len(self._tokens) or self._tokens[self._position].kind not in kinds:
            raise _invalid()
        self._position += 1
        return self._tokens[self._position - 1]

    def _take_operator(self, text: str) -> bool:
        is_next = self._position < len(self._tokens) and self._tokens[self._position] == (
            "operator",
            text,
        )
        self._position += is_next
        return is_next


def _comparison(steps: list[str | int], sign: str, literal: _Token) -> Condition:
    if sign in _COMPARISONS:
        if literal.kind != "word" or not _NUMBER.fullmatch(literal.text):
            raise _invalid()
        compare, number = _COMPARISONS[sign], float(literal.text)
        return lambda value: any(
            _is_number(member) and compare(member, number) for member in _select(value, steps)
        )
    if sign not in ("=", "!="):
        raise _invalid()
    is_equal = _equality(literal)
    expected = sign == "="
    # A missing member is neither equal nor unequal. NOT EXISTS is the test for missing members.
    return lambda value: any(is_equal(member) is expected for member in _select(value, steps))


def _equality(literal: _Token) -> Condition:
    if literal.kind == "regex":
        expression = _compile_regex(literal.text)
        return lambda member: expression.search(_text(member)) is not None
    text = _unquote(literal.text) if literal.kind == "phrase" else literal.text
    if literal.kind == "word" and _NUMBER.fullmatch(text):
        number = float(text)
        return lambda member: member == number if _is_number(member) else _text(member) == text
    if text == "*":
        return lambda member: member is not None
    # A star is a wildcard at either end, and a plain character elsewhere.
    start, end = ".*" if text[:1] == "*" else "", ".*" if text[-1:] == "*" else ""
    expression = re.compile(start + re.escape(text.strip("*")) + end, re.DOTALL)
    return lambda member: (
        isinstance(member, str | int | float) and expression.fullmatch(_text(member)) is not None
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _steps(selector: str) -> list[str | int]:
    """Split a selector: `$.a[0]['b c'].*` becomes ["a", 0, "b c", "*"]."""
    steps: list[str | int] = []
    for match in _STEP.finditer(selector):
        if match["index"] not in (None, "*"):
            steps.append(int(match["index"]))
        else:
            step = match["name"] or match["index"] or match["single"] or match["double"]
            steps.append(step or "")
    return steps


def _select(value: Any, steps: list[str | int]) -> Iterator[Any]:
    """Yield the values that a selector selects: none, one, or with a star several."""
    if not steps:
        yield value
        return
    for member in _members(value, steps[0]):
        yield from _select(member, steps[1:])


def _members(value: Any, step: str | int) -> list[Any]:
    if isinstance(value, list):
        if step == "*":
            return value
        return value[step : step + 1] if isinstance(step, int) else []
    if not isinstance(value, dict):
        return []
    if step == "*":
        return list(value.values())
    return [value[step]] if step in value else []
