"""Filter patterns of CloudWatch Logs: what each of its forms finds, and what is none."""

from __future__ import annotations

import json

import pytest

from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.log_filter_patterns import compile_pattern

LINES = [
    "[ERROR] Caught IllegalArgumentException",
    "[ERROR] Unhandled Exception",
    "Exiting with ERRORCODE: -1",
    "[WARN] Failed to process the request",
    "10.10.0.1 GET /index.html 200",
    'she said "no"',
]


def found(pattern: str, lines: list[str]) -> list[int]:
    test = compile_pattern(pattern)
    return [number for number, line in enumerate(lines) if test is None or test(line)]


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("   ", [0, 1, 2, 3, 4, 5]),
        ("ERROR", [0, 1, 2]),  # anywhere, not just as a word
        ("error", []),  # case counts
        ("ERROR Exception", [0, 1]),  # all of them
        ("ERROR -Exiting", [0, 1]),
        ("-ERROR", [3, 4, 5]),
        ("?WARN ?Unhandled", [1, 3]),  # any of them
        ('"Failed to process"', [3]),
        ('"process Failed"', []),
        ('?"index.html" ?"[WARN]"', [3, 4]),
        ('-"[ERROR]" ERROR', [2]),
        (r'"\"no\""', [5]),
        ("WARN ?Unhandled", [3]),  # beside others a question mark does not count
        (r"%10\.10\.0\.\d+%", [4]),
        (r"%^\[ERROR\] [CU]%", [0, 1]),
        ("%Exception$%", [0, 1]),
        (r"%200|-1$%", [2, 4]),
        ("%GET% 200", [4]),
    ],
)
def test_words(pattern: str, numbers: list[int]) -> None:
    assert found(pattern, LINES) == numbers


EVENTS = [
    {
        "level": "ERROR",
        "x": 5,
        "user": {"id": 1, "email": "John.Doe@example.com"},
        "tags": ["a", "b"],
    },
    {"level": "ERROR", "x": 3, "code": None, "is_fatal": True},
    {"level": "WARN", "x": 4.5, "users": [{"id": 7}, {"id": 8}], "is_fatal": False},
    {"level": "INFO", "x": "3", "my key": "v*v", "ip": "123.123.0.9"},
    {"level": 1e3, "x": -2},
]
MESSAGES = [*map(json.dumps, EVENTS), "no JSON { level }", '"a string"', "[1, 2]", "{broken"]


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ('{ $.level = "ERROR" }', [0, 1]),
        ("{$.level=ERROR}", [0, 1]),
        ('{ $.level = "ERROR" && $.x > 3 }', [0]),
        ('{ $.level != "ERROR" }', [2, 3, 4]),
        ("{ $.x = 3 }", [1, 3]),  # a number, or a text that reads so
        ("{ $.x != 3 }", [0, 2, 4]),
        ("{ $.x >= 4.5 }", [0, 2]),
        ("{ $.x < 4.5 }", [1, 4]),
        ("{ $.x <= -2 }", [4]),
        ("{ $.level = 1000 }", [4]),
        ("{ $.level > 9.9e2 }", [4]),
        ("{ $.code IS NULL }", [1]),
        ("{ $.is_fatal IS TRUE }", [1]),
        ("{ $.is_fatal is false }", [2]),
        ("{ $.is_fatal EXISTS }", [1, 2]),
        ("{ $.is_fatal NOT EXISTS }", [0, 3, 4, 7]),
        ("{ $.is_fatal = * }", [1, 2]),
        ("{ $.user.id = 1 }", [0]),
        ("{ $.user.email = *example.com }", [0]),
        ('{ $.user.email = "John*" }', [0]),
        ("{ $.ip = 123.123.* }", [3]),
        ("{ $.level = W*N }", []),  # a star counts at either end only
        ("{ $['my key'] = \"v*v\" }", [3]),
        ("{ $.users[1].id = 8 }", [2]),
        ("{ $.users[*].id = 7 }", [2]),
        ("{ $.users[5].id = 7 }", []),
        ("{ $.*.id = 1 }", [0]),
        ('{ $.tags[0] = "a" }', [0]),
        ("{ $[1] = 2 }", [7]),
        ("{ $.level = %^ERR|^WA% }", [0, 1, 2]),
        ("{ $.level != %R% }", [3, 4]),
        ("{ $.x = 5 || $.x = 3 && $.level = INFO }", [0, 3]),  # && binds closer
        ("{ ($.x = 5 || $.x = 3) && $.level = ERROR }", [0, 1]),
        ("{ (($.x = 5)) }", [0]),
    ],
)
def test_conditions_on_json(pattern: str, numbers: list[int]) -> None:
    assert found(pattern, MESSAGES) == numbers


@pytest.mark.parametrize(
    "pattern",
    [
        "foo.bar",  # must be quoted
        '"unfinished',
        "- ERROR",
        "%something!%",
        "%a(b)%",
        "%[%",
        "%%",
        "%a% %b% %c%",  # two are allowed
        "x" * 1025,
        "{",
        "{ }",
        "{ $.x }",
        "{ $.x = }",
        "{ $.x > ERROR }",
        '{ $.x > "3" }',
        "{ $.x == 3 }",
        "{ $.x = 3 && }",
        "{ ($.x = 3 }",
        "{ $.x = 3) }",
        "{ $.x IS MAYBE }",
        "{ $.x NOT NULL }",
        "{ level = 3 }",
        '{ $.level = "ERROR" } more',
        "{" + "(" * 500 + "$.x = 1" + ")" * 500 + "}",
        "{ $.a = %a% || $.a = %b% || $.a = %c% }",
        "[ip, user, status]",
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ApiError) as refused:
        compile_pattern(pattern)
    assert (refused.value.code, refused.value.message) == (
        "InvalidParameterException",
        "Invalid filter pattern",
    )


def test_json_that_is_too_deep_does_not_match() -> None:
    assert found("{ $.a EXISTS }", ["[" * 100_000]) == []
