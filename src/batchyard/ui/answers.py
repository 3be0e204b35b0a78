"""Requests and answers as values, between the server and the functions that answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from batchyard.quick_dataclasses import dataclass

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    #: Parameters of the query, or of the body of a POST.
    parameters: Mapping[str, str]
    #: Names in lower case.
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content_type: str
    #: The content: bytes, or parts that are made while they are sent.
    body: bytes | Iterator[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """A request that is answered with an error: its status, and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def json_answer(value: Any) -> Answer:
    return Answer(200, JSON, json.dumps(value, separators=(",", ":")).encode())


def text_answer(status: int, text: str) -> Answer:
    return Answer(status, TEXT, f"{text}\n".encode())
