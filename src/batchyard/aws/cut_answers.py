"""Answers of AWS whose connection broke in the middle of the body.

botocore does not compare the length of a body with its header: it takes half a JSON document for an
answer without members, and half an XML document for the answer of another server.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

_STATUS = 503
_MAX_DELAY_S = 20.0


def repeat_cut_answers(client: Any, max_attempts: int) -> None:
    """Let the client repeat calls whose answer was cut.

    The last attempt raises ConnectionClosedError, as if the connection had broken earlier.
    """
    service = client.meta.service_model.service_id.hyphenize()
    events = client.meta.events
    events.register_first(f"before-parse.{service}", _replace_cut_answer)
    events.register_first(f"needs-retry.{service}", partial(_decide_delay, max_attempts))


def is_cut(body: object, length: str | None, method: str) -> bool:
    """Return whether a body is shorter than the Content-Length of its answer."""
    if method == "HEAD" or not isinstance(body, bytes) or length is None or not length.isdigit():
        return False
    return len(body) < int(length)


def _replace_cut_answer(response_dict: Any, operation_model: Any, **_: Any) -> None:
    """Replace a cut body by an empty one with status 503, which every parser of botocore reads."""
    length = response_dict["headers"].get("content-length")
    if is_cut(response_dict["body"], length, operation_model.http.get("method", "")):
        response_dict["status_code"], response_dict["body"] = _STATUS, b""


def _decide_delay(
    max_attempts: int, response: Any = None, attempts: int = 1, **_: Any
) -> float | None:
    """Return the seconds to wait before the next attempt; None for a whole answer."""
    from botocore.exceptions import ConnectionClosedError

    if response is None:
        return None
    http_response, parsed = response
    was_replaced = parsed.get("Error", {}).get("Code") == str(_STATUS)
    if not was_replaced or http_response.status_code == _STATUS:
        return None
    if attempts >= max_attempts:
        raise ConnectionClosedError(endpoint_url=http_response.url)
    return random.random() * min(_MAX_DELAY_S, 0.1 * float(2**attempts))
