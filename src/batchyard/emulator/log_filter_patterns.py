"""Filter patterns of CloudWatch Logs: words, phrases, regular expressions, conditions on JSON. Pure.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from batchyard.emulator.api_errors import ApiError

Test = Callable[[str], bool]
#: a condition on a parsed message
Condition = Callable[[Any], bool]

_MOST_CHARACTERS = 1024
_MOST_REGEXES = 2
#: how deep parentheses may be
_MOST_NESTED = 50

_PHRASE = r'"(?:[^"\\]|\\.)*"'
_REGEX = r"%(?:[^%\\]|\\.)*%"
_TERM = re.compile(rf"\s*(?P<sign>[?-]?)(?P<term>{_PHRASE}|{_REGEX}|\w+)(?=\s|$)")
#: neither parentheses nor `!`, nor anything beyond ASCII
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
    r"""\.(?P<name>[\w-]+|\*)|\[(?P<index>\d+|\*)\]|\['(?P<single>[^']*)'\]|\["(?P<double>[^"]*)"\]"""
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compiled(pattern: str) -> Test | None:
    """Whether a message matches; None where every one does. Raises ApiError."""
    pattern = pattern.strip()
    if len(pattern) > _MOST_CHARACTERS:
        raise _invalid()
    if not pattern:
        return None
    if pattern.startswith("{"):
        return _json_test(pattern)
    return _terms_test(pattern)


def _invalid() -> ApiError:
    return ApiError("InvalidParameterException", "Invalid filter pattern")


# -- words --------------------------------------------------------------------------------------------------------


def _terms_test(pattern: str) -> Test:
    wanted: dict[str, list[Test]] = {"": [], "?": [], "-": []}
    at = regexes = 0
    while at < len(pattern):
        found = _TERM.match(pattern, at)
        if found is None:
            raise _invalid()
        regexes += found["term"].startswith("%")
        wanted[found["sign"]].append(_term_test(found["term"]))
        at = found.end()
    if regexes > _MOST_REGEXES:
        raise _invalid()
    needed, optional, unwanted = wanted[""], wanted["?"], wanted["-"]
    if optional and not needed and not unwanted:
        return lambda message: any(test(message) for test in optional)
    # Beside others, terms with a question mark do not count.
    return lambda message: (
        all(test(message) for test in needed) and not any(test(message) for test in unwanted)
    )


def _term_test(term: str) -> Test:
    if term.startswith("%"):
        expression = _expression(term)
        return lambda message: expression.search(message) is not None
    text = _unquoted(term) if term.startswith('"') else term
    return lambda message: text in message


def _unquoted(phrase: str) -> str:
    return re.sub(r"\\(.)", r"\1", phrase[1:-1], flags=re.DOTALL)


def _expression(text: str) -> re.Pattern[str]:
    text = text[1:-1]
    if not text or not _REGEX_CHARACTERS.fullmatch(text):
        raise _invalid()
    try:
        return re.compile(text, re.ASCII)
    except re.error:
        raise _invalid() from None


# -- JSON ---------------------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str
    text: str


def _json_test(pattern: str) -> Test:
    if not pattern.endswith("}"):
        raise _invalid()
    tokens = list(_tokens(pattern[1:-1].strip()))
    if sum(token.kind == "regex" for token in tokens) > _MOST_REGEXES:
        raise _invalid()
    condition = _Parser(tokens).whole()

    def test(message: str) -> bool:
        if not message.lstrip().startswith(("{", "[")):
            return False
        try:
            value = json.loads(message)
        except (ValueError, RecursionError):
            return False
        return condition(value)

    return test


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise _invalid()
        yield _Token(found.lastgroup, found[found.lastgroup])
        at = found.end()


class _Parser:
    """any := all (`||` all)*; all := one (`&&` one)*; one := `(` any `)` | selector test."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        condition = self._any()
        if self._at < len(self._tokens):
            raise _invalid()
        return condition

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._take_operator("||"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda value: any(part(value) for part in parts)

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._take_operator("&&"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)

    def _one(self) -> Condition:
        if self._take_operator("("):
            self._depth += 1
            if self._depth > _MOST_NESTED:
                raise _invalid()
            condition = self._any()
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
            return lambda value: any(found is constant for found in _select(value, steps))
        raise _invalid()

    def _next(self, *kinds: str) -> _Token:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind not in kinds:
            raise _invalid()
        self._at += 1
        return self._tokens[self._at - 1]

    def _take_operator(self, text: str) -> bool:
        is_next = self._at < len(self._tokens) and self._tokens[self._at] == ("operator", text)
        self._at += is_next
        return is_next


def _comparison(steps: list[str | int], sign: str, literal: _Token) -> Condition:
    if sign in _ORDERS:
        if literal.kind != "word" or not _NUMBER.fullmatch(literal.text):
            raise _invalid()
        order, number = _ORDERS[sign], float(literal.text)
        return lambda value: any(
            _is_number(found) and order(found, number) for found in _select(value, steps)
        )
    if sign not in ("=", "!="):
        raise _invalid()
    is_equal = _equality(literal)
    wanted = sign == "="
    # A member that is not there is neither equal nor unequal: NOT EXISTS asks for that.
    return lambda value: any(is_equal(found) is wanted for found in _select(value, steps))


def _equality(literal: _Token) -> Condition:
    if literal.kind == "regex":
        expression = _expression(literal.text)
        return lambda found: expression.search(_text(found)) is not None
    text = _unquoted(literal.text) if literal.kind == "phrase" else literal.text
    if literal.kind == "word" and _NUMBER.fullmatch(text):
        number = float(text)
        return lambda found: found == number if _is_number(found) else _text(found) == text
    if text == "*":
        return lambda found: found is not None
    # A star means anything at either end, and itself elsewhere.
    core = re.escape(text.strip("*"))
    shape = re.compile(
        f"{'.*' if text[:1] == '*' else ''}{core}{'.*' if text[-1:] == '*' else ''}", re.DOTALL
    )
    return lambda found: (
        isinstance(found, str | int | float) and shape.fullmatch(_text(found)) is not None
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _steps(selector: str) -> list[str | int]:
    """`$.a[0]['b c'].*` -> ["a", 0, "b c", "*"]"""
    steps: list[str | int] = []
    for found in _STEP.finditer(selector):
        if found["index"] not in (None, "*"):
            steps.append(int(found["index"]))
        else:
            steps.append(
                found["name"] or found["index"] or found["single"] or found["double"] or ""
            )
    return steps


def _select(value: Any, steps: list[str | int]) -> Iterator[Any]:
    """The values that a selector stands for: none, one, or with a star several."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step == "*":
        below = (
            list(value.values())
            if isinstance(value, dict)
            else value
            if isinstance(value, list)
            else []
        )
    elif isinstance(step, int):
        below = value[step : step + 1] if isinstance(value, list) else []
    else:
        below = [value[step]] if isinstance(value, dict) and step in value else []
    for item in below:
        yield from _select(item, rest)
