"""Answers in pages: maxResults and nextToken. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

from batchyard.emulator.api_errors import InvalidRequestError

T = TypeVar("T")


def page(items: Sequence[T], at_most: int, token: str | None) -> tuple[Sequence[T], str | None]:
    """One page, and the token of the next one where there is one."""
    start = _start(token)
    end = start + at_most
    return items[start:end], _token(end) if end < len(items) else None


def size_of_page(request: dict[str, object], most: int) -> int:
    """maxResults, from 1 to ``most``, which is also its default."""
    wanted = request.get("maxResults", most)
    if not isinstance(wanted, int) or not 1 <= wanted <= most:
        raise InvalidRequestError(f"maxResults should be between 1 and {most}; got {wanted}")
    return wanted


def _token(start: int) -> str:
    return base64.urlsafe_b64encode(f"from {start}".encode()).decode()


def _start(token: str | None) -> int:
    if token is None:
        return 0
    try:
        word, _, number = base64.urlsafe_b64decode(token.encode()).decode().partition(" ")
        if word == "from":
            return max(0, int(number))
    except (ValueError, binascii.Error):
        pass
    raise InvalidRequestError("nextToken is none that this endpoint gave out")
