"""The result of a check of user data. ``examine`` makes findings of it."""

from __future__ import annotations

from collections.abc import Iterator

#: line of the user data (0 for the whole), cause, evidence, remedy
Observation = tuple[int, str, tuple[str, ...], tuple[str, ...]]
Observations = Iterator[Observation]
