"""Queries of CloudWatch Logs Insights over events."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.log_queries import run_query
from batchyard.emulator.user_log_groups import LoggedEvent

T0 = 1_700_000_000_123
EVENTS = [
    LoggedEvent("/g", "a", T0, "started"),
    LoggedEvent("/g", "a", T0 + 1000, 'error: "no" such | file'),
    LoggedEvent("/g", "b", T0 + 2000, '{"level": "error", "code": 7}'),
    LoggedEvent("/g", "b", T0 + 3000, "{ no json"),
]


def messages(text: str) -> list[str]:
    return [row["@message"] for row in run_query(text, EVENTS)]


def test_the_newest_comes_first_unless_the_query_says_otherwise() -> None:
    newest_first = [event.message for event in reversed(EVENTS)]
    assert messages("fields @message") == newest_first
    assert messages("fields @message | sort @timestamp desc") == newest_first
    assert messages("fields @message | sort @timestamp asc") == newest_first[::-1]
    assert messages("fields @message\n| sort @logStream asc, @timestamp asc") == newest_first[::-1]
    assert messages("fields @message | sort @timestamp asc | limit 1") == ["started"]


def test_the_fields_of_a_row() -> None:
    assert run_query(
        "display @timestamp, @logStream, @log, level, none | limit 1", EVENTS[2:3]
    ) == [
        {
            "@timestamp": "2023-11-14 22:13:22.123",
            "@logStream": "b",
            "@log": "123456789012:/g",
            "level": "error",
            "@ptr": f"b:{T0 + 2000}",
        }
    ]


@pytest.mark.parametrize(
    ("condition", "indexes"),
    [
        ("@message like /err.r/", [2, 1]),
        ("@message like 'error'", [2, 1]),
        ('@message like "such | file"', [1]),
        ("@message not like /err/", [3, 0]),
        ("level = 'error'", [2]),
        ("level='error' and code = 7", [2]),
        ("level = 'error' and code = 8", []),
        ("@message = 'started' or code = 7 and level = 'error'", [2, 0]),
        ("@logStream != 'a'", [3, 2]),
        ("@message =~ /^st/", [0]),
    ],
)
def test_filters(condition: str, indexes: list[int]) -> None:
    expected = [EVENTS[index].message for index in indexes]
    assert messages(f"fields @message | filter {condition}") == expected


def test_counts() -> None:
    assert run_query("stats count(*)", EVENTS) == [{"count(*)": "4"}]
    assert run_query("filter @message like /e/ | stats count(*) as n by @logStream", EVENTS) == [
        {"@logStream": "a", "n": "2"},
        {"@logStream": "b", "n": "1"},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "parse @message '*'",
        "fields a b",
        "filter",
        "filter @message like",
        "filter @message like /(/",
        pytest.param("fields " + "/x" * 100 + '"', id="many slashes and an open quote"),
        "filter @message like 'a' xor @message like 'b'",
        "limit none",
        "limit 0",
        "sort @timestamp sideways",
        "stats avg(code)",
        "| fields",
        "'quoted'",
    ],
)
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        run_query(text, EVENTS)
    error: Any = caught.value
    assert error.code == "MalformedQueryException"
    assert "fields, display, filter, sort, limit, stats" in error.message
