"""What `batchyard scale` has set for a dynamic step, as an object beside the blocks in S3. Pure.

A list of the blocks shows the object and its ETag, so that workers read it only after a change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from batchyard.quick_dataclasses import dataclass

FORMAT = 1


class AddedJob(NamedTuple):
    """A further job of the step in AWS Batch, whose children were added."""

    #: position of its first child, after all children that the step has without it
    offset: int
    size: int
    #: whether it waits for the steps that its step needs; not if these have ended by then
    has_needs: bool


@dataclass(frozen=True, slots=True)
class Scale:
    #: children that go on claiming, by their index in the step, as ascending inclusive ranges
    children: tuple[tuple[int, int], ...]
    added: tuple[AddedJob, ...] = ()
    #: whether other steps wait for this one. AWS Batch lets them wait for its own children alone.
    has_dependents: bool = False
    #: unique to each write, so that it can be recognised as one's own
    token: str = ""

    def has_child(self, index: int) -> bool:
        return any(first <= index <= last for first, last in self.children)

    @property
    def added_count(self) -> int:
        """The number of children in all added jobs."""
        return sum(job.size for job in self.added)


def encode(scale: Scale) -> bytes:
    document = {
        "format": FORMAT,
        "children": scale.children,
        "added": scale.added,
        "has_dependents": scale.has_dependents,
        "token": scale.token,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes) -> Scale:
    """Return the scale. Raises ValueError if the content is none of this version."""
    document: Any = json.loads(data)
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise ValueError("it is not a scale of this version")
    try:
        return Scale(
            children=tuple((int(first), int(last)) for first, last in document["children"]),
            added=tuple(AddedJob(*job) for job in document["added"]),
            has_dependents=bool(document["has_dependents"]),
            token=str(document["token"]),
        )
    except (KeyError, TypeError) as exc:
        raise ValueError(f"it is not a scale: {exc}") from exc
