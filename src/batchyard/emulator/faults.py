"""Trouble on purpose: what a client must live with on a bad day, for those who test theirs. Pure but for its dice."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum

from batchyard.errors import InputError


class Fault(Enum):
    #: 429, and nothing was done
    THROTTLE = "throttle"
    #: 500, and nothing was done
    ERROR = "error"
    #: the connection breaks before anything was done
    RESET = "reset"
    #: it was done, and the connection breaks before the answer
    LOSE = "lose"


@dataclass(frozen=True, slots=True)
class Rates:
    """Which part of all calls meets which trouble, each from 0 to 1."""

    throttle: float = 0.0
    error: float = 0.0
    reset: float = 0.0
    lose: float = 0.0

    @classmethod
    def parsed(cls, text: str) -> Rates:
        """`throttle=0.3,lose=0.05`. Raises InputError."""
        known = [field.name for field in fields(cls)]
        found = {}
        for entry in filter(None, text.split(",")):
            name, _, value = entry.partition("=")
            try:
                rate = float(value)
            except ValueError:
                rate = -1.0
            if name.strip() not in known or not 0 <= rate <= 1:
                raise InputError(
                    f"{entry!r} is no kind of trouble",
                    hint=f"write NAME=PART, of {', '.join(known)}, like throttle=0.3",
                )
            found[name.strip()] = rate
        return cls(**found)


class Faults:
    def __init__(self, rates: Rates, seed: int | None = None) -> None:
        self._rates = rates
        self._dice = random.Random(seed)

    def next(self) -> Fault | None:
        """What the next call meets; most meet nothing."""
        throw = self._dice.random()
        for fault in Fault:
            throw -= getattr(self._rates, fault.value)
            if throw < 0:
                return fault
        return None


class Calls:
    """How often each operation was asked for."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, service: str, operation: str) -> None:
        key = f"{service}:{operation}"
        self._counts[key] = self._counts.get(key, 0) + 1

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(sorted(self._counts.items()))
