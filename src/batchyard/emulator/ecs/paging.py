"""Pages of ECS's List operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.emulator import paging
from batchyard.emulator.api_errors import ApiError, InvalidRequestError


def page(member: str, entries: Sequence[Any], request: dict[str, Any]) -> dict[str, Any]:
    """Return the requested page of at most 100 entries. Raises ApiError."""
    try:
        return paging.page_answer(member, entries, request)
    except InvalidRequestError as exc:
        raise ApiError("InvalidParameterException", exc.message) from None
