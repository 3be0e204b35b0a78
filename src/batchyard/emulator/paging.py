"""Answers in pages: maxResults and nextToken."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeVar

from batchyard.emulator.api_errors import InvalidRequestError

T = TypeVar("T")

#: Resources in one page of most Describe and List operations.
MAX_RESULTS = 100


def page_answer(
    member: str, entries: Sequence[Any], request: dict[str, Any], max_results: int = MAX_RESULTS
) -> dict[str, Any]:
    """Return the requested page of the entries as ``member``, with nextToken if more follow.

    Raises InvalidRequestError for a bad maxResults or nextToken.
    """
    page, token = cut_page(entries, request, max_results)
    return {member: list(page)} | next_token(token)


def cut_page(
    entries: Sequence[T], request: dict[str, Any], max_results: int
) -> tuple[Sequence[T], str | None]:
    """Return the requested page, and the token of the next page or None."""
    size = request.get("maxResults", max_results)
    if not isinstance(size, int) or not 1 <= size <= max_results:
        raise InvalidRequestError(f"maxResults should be between 1 and {max_results}; got {size}")
    start = _parse_token(request.get("nextToken"))
    end = start + size
    return entries[start:end], _make_token(end) if end < len(entries) else None


def next_token(token: str | None) -> dict[str, str]:
    return {} if token is None else {"nextToken": token}


def _make_token(start: int) -> str:
    return base64.urlsafe_b64encode(f"from {start}".encode()).decode()


def _parse_token(token: str | None) -> int:
    if not token:  # An empty token is the first page, as it is for AWS.
        return 0
    try:
        word, _, number = base64.urlsafe_b64decode(token.encode()).decode().partition(" ")
        if word == "from":
            return max(0, int(number))
    except (ValueError, binascii.Error):
        pass
    raise InvalidRequestError("nextToken does not come from this endpoint")
