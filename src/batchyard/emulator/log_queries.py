"""Queries of CloudWatch Logs Insights over log events: fields, display, filter, sort, limit, stats.

A subset of Insights: `filter` compares one field with one value and joins comparisons with `and`
and `or`; `stats` counts. The top-level keys of a message that is a JSON object are fields too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.user_log_groups import LoggedEvent

Row = dict[str, str]

_DEFAULT_FIELDS = ("@timestamp", "@message")
#: Rows of a result without `limit`.
_MAX_ROWS = 10_000
#: A quoted text, a regular expression, or any other run of characters up to a pipe.
_PIECE = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|/(?:[^/\\]|\\.)*/|[^|\"'/]|/"
# `*+` tries one reading only: slashes can be read in very many ways.
_COMMAND = re.compile(rf"\s*(\w+)\b((?:{_PIECE})*+)(?:\||$)", re.DOTALL)
_FIELD = re.compile(r"[@A-Za-z_][\w.@]*")
_COMPARISON = re.compile(
    r"\s*(?P<field>[@A-Za-z_][\w.@]*)\s*(?P<operator>not\s+like|like|=~|!=|=)\s*"
    r"(?:\"(?P<text>(?:[^\"\\]|\\.)*)\"|'(?P<text2>(?:[^'\\]|\\.)*)'"
    r"|/(?P<pattern>(?:[^/\\]|\\.)*)/|(?P<number>-?[\d.]+))\s*"
)
_JOIN = re.compile(r"(and|or)\b", re.IGNORECASE)
_STATS = re.compile(r"\s*count\(\*?\)(?:\s+as\s+(\w+))?(?:\s+by\s+(.+))?\s*", re.IGNORECASE)


@dataclass(slots=True)
class Query:
    fields: tuple[str, ...] = _DEFAULT_FIELDS
    filters: list[Callable[[Row], bool]] = field(default_factory=list)
    #: (field, whether the largest comes first), the most important first.
    order: list[tuple[str, bool]] = field(default_factory=lambda: [("@timestamp", True)])
    limit: int = _MAX_ROWS
    #: Name of the count, if the query has `stats`, and the fields that it is grouped by.
    count_name: str | None = None
    count_by: tuple[str, ...] = ()


def run_query(text: str, events: Iterable[LoggedEvent]) -> list[Row]:
    """Return the result rows. Raises ApiError for a query that this module cannot read."""
    query = _parse(text)
    rows = [row for row in map(_to_row, events) if all(passes(row) for passes in query.filters)]
    if query.count_name is not None:
        return _count(query, rows)[: query.limit]
    for name, is_descending in reversed(query.order):
        rows.sort(key=lambda row: row.get(name, ""), reverse=is_descending)
    selected = (*query.fields, "@ptr")
    return [{name: row[name] for name in selected if name in row} for row in rows[: query.limit]]


def _to_row(event: LoggedEvent) -> Row:
    time = datetime.fromtimestamp(event.time_ms / 1000, UTC)
    row = {
        "@timestamp": f"{time:%Y-%m-%d %H:%M:%S}.{event.time_ms % 1000:03d}",
        "@message": event.message,
        "@logStream": event.stream,
        "@log": f"{names.ACCOUNT_ID}:{event.group}",
        "@ptr": f"{event.stream}:{event.time_ms}",
    }
    return _json_fields(event.message) | row


def _json_fields(message: str) -> Row:
    if not message.startswith("{"):
        return {}
    try:
        document = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in document.items()
    }


def _count(query: Query, rows: list[Row]) -> list[Row]:
    assert query.count_name is not None
    counts = Counter(tuple(row.get(name, "") for name in query.count_by) for row in rows)
    return [
        dict(zip(query.count_by, key, strict=True)) | {query.count_name: str(count)}
        for key, count in counts.most_common()
    ]


# -- the text of a query --------------------------------------------------------------------------


def _parse(text: str) -> Query:
    query = Query()
    position = 0
    while position < len(text.rstrip()):
        match = _COMMAND.match(text, position)
        if match is None or match[1].lower() not in _COMMANDS:
            raise _malformed(f"cannot read {text[position : position + 40].strip()!r}")
        _COMMANDS[match[1].lower()](query, match[2].strip())
        position = match.end()
    return query


def _read_fields(query: Query, text: str) -> None:
    query.fields = _field_names(text)


def _read_filter(query: Query, text: str) -> None:
    alternatives: list[list[Callable[[Row], bool]]] = [[]]
    position = 0
    while True:
        comparison = _COMPARISON.match(text, position)
        if comparison is None:
            raise _malformed(f"cannot read the filter {text!r}")
        alternatives[-1].append(_comparison(comparison))
        if comparison.end() == len(text):
            break
        join = _JOIN.match(text, comparison.end())
        if join is None:
            raise _malformed(f"cannot read the filter {text!r}")
        if join[1].lower() == "or":
            alternatives.append([])
        position = join.end()
    query.filters.append(
        lambda row: any(all(passes(row) for passes in group) for group in alternatives)
    )


def _comparison(match: re.Match[str]) -> Callable[[Row], bool]:
    operator = "not like" if match["operator"].startswith("not") else match["operator"]
    if match["pattern"] is not None:
        try:
            pattern = re.compile(match["pattern"])
        except re.error as exc:
            raise _malformed(f"/{match['pattern']}/ is no regular expression: {exc}") from None
        return partial(_matches, match["field"], pattern, is_wanted=operator != "not like")
    text = match["text"] or match["text2"] or match["number"] or ""
    if operator in ("=", "!="):
        return partial(_equals, match["field"], text, is_wanted=operator == "=")
    pattern = re.compile(re.escape(text))
    return partial(_matches, match["field"], pattern, is_wanted=operator != "not like")


def _matches(name: str, pattern: re.Pattern[str], row: Row, *, is_wanted: bool) -> bool:
    return (pattern.search(row.get(name, "")) is not None) == is_wanted


def _equals(name: str, text: str, row: Row, *, is_wanted: bool) -> bool:
    return (row.get(name) == text) == is_wanted


def _read_sort(query: Query, text: str) -> None:
    query.order = []
    for part in text.split(","):
        name, _, direction = part.strip().partition(" ")
        if not _FIELD.fullmatch(name) or direction.strip().lower() not in ("", "asc", "desc"):
            raise _malformed(f"cannot read sort {text!r}")
        query.order.append((name, direction.strip().lower() != "asc"))


def _read_limit(query: Query, text: str) -> None:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= _MAX_ROWS:
        raise _malformed(f"limit must be between 1 and {_MAX_ROWS}; got {text!r}")
    query.limit = int(text)


def _read_stats(query: Query, text: str) -> None:
    match = _STATS.fullmatch(text)
    if match is None:
        raise _malformed(f"this endpoint has stats count(*) [as NAME] [by FIELDS]; got {text!r}")
    query.count_name = match[1] or "count(*)"
    query.count_by = _field_names(match[2]) if match[2] else ()


def _field_names(text: str) -> tuple[str, ...]:
    field_names = tuple(name.strip() for name in text.split(","))
    for name in field_names:
        if not _FIELD.fullmatch(name):
            raise _malformed(f"{name!r} is no field")
    return field_names


_COMMANDS: dict[str, Callable[[Query, str], None]] = {
    "fields": _read_fields,
    "display": _read_fields,
    "filter": _read_filter,
    "sort": _read_sort,
    "limit": _read_limit,
    "stats": _read_stats,
}


def _malformed(message: str) -> ApiError:
    command_names = ", ".join(_COMMANDS)
    return ApiError("MalformedQueryException", f"{message} (this endpoint knows {command_names})")
